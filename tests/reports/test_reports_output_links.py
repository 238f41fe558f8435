"""Links in the places of outputs: the link is replaced, and the file that it leads to stays as it is."""

from __future__ import annotations

import pytest
from reports_samples import make_row

from pytest_agentbench.bounded.writing import write_lines, write_text
from pytest_agentbench.cli import main
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.learning import LEARNED
from pytest_agentbench.reports.html import placing
from pytest_agentbench.reports.report import build_report, write_report
from pytest_agentbench.store.output_folder import refuse_links

MINE = "a file of the user's own\n"


@pytest.fixture
def source(tmp_path):
    report = build_report([make_row(), make_row("failed", "river", score=2.5)], {"started_at": "2026-11-22T10:00:00Z"})
    write_report(report, tmp_path / "source.json")
    return str(tmp_path / "source.json")


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine"
    path.write_text(MINE)
    return path


PARQUET = pytest.param("--parquet", marks=pytest.mark.slow)  # its library takes a second to import


@pytest.mark.parametrize("option", ["--html", "--json", "--csv", "--markdown", "--chart", PARQUET])
def test_report_replaces_a_link_in_the_place_of_an_output(tmp_path, source, mine, option):
    (target := tmp_path / "target").symlink_to(mine)
    assert main(["report", source, option, str(target)]) == 0
    assert target.is_file()
    assert not target.is_symlink()
    assert mine.read_text() == MINE


def test_links_in_the_place_of_the_details_of_a_page_are_replaced(tmp_path, source, mine, monkeypatch):
    monkeypatch.setattr(placing, "EMBEDDED", 0)
    for _ in range(2):
        assert main(["report", source, "--html", str(tmp_path / "page.html")]) == 0
        [chunk] = (tmp_path / "page.html_files").iterdir()
        assert not chunk.is_symlink()
        chunk.unlink()
        chunk.symlink_to(mine)
    assert mine.read_text() == MINE


@pytest.mark.parametrize("command", [["schema"], ["merge"], ["agents"], ["write_text"], ["write_lines"]])
def test_other_outputs_replace_a_link(tmp_path, source, mine, command, monkeypatch):
    match command[0]:
        case "schema":
            (target := tmp_path / "schemas/test_case.schema.json").parent.mkdir()
            arguments = ["schema", "test_case", "--output", str(target.parent)]
        case "merge":
            target = tmp_path / "merged.json"
            arguments = ["merge", source, "-o", str(target)]
        case "agents":
            monkeypatch.chdir(tmp_path)
            (target := tmp_path / "agents/mine/agent.yaml").parent.mkdir(parents=True)
            mine.unlink()  # only a link that leads nowhere looks as if nothing were there
            arguments = ["agents", "init", "mine"]
        case _:
            target, arguments = tmp_path / "target", []
    target.symlink_to(mine)
    if command[0] == "write_text":
        write_text(target, "text")
    elif command[0] == "write_lines":
        write_lines(target, [b"text"])
    else:
        main(arguments)
    assert not mine.exists() if command[0] == "agents" else mine.read_text() == MINE
    assert command[0] == "agents" or not target.is_symlink()


def test_a_link_in_the_place_of_a_folder_of_the_package_below_the_output_folder_is_refused(tmp_path, mine):
    """The folder of what endpoints have taught, and of batches."""
    output = tmp_path / "outputs"
    link = output / LEARNED.partition("/")[0]
    output.mkdir()
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link to another folder"):
        refuse_links(output)
    assert main(["batch", "list", "--output", str(output)]) != 0
