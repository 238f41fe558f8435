"""Runs that start from a template: what they did to it is told to people, judges and checks, and kept on request."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from support.bench import HEAD, check
from support.stored import find_stored

from pytest_agentbench.store.contents import Contents
from pytest_agentbench.store.documents import load_run
from pytest_agentbench.store.maintenance import Verification

WORKING = (
    HEAD
    + r"""
def agent(case, context):
    note("runs.txt", case.case_id)
    if case.metadata.get("idle"):
        return "Paris"
    folder = context.workspace
    source = folder.read_text("src/app.py")
    folder.write_text("src/app.py", source.replace("Rome", case.metadata.get("capital", "Paris")))
    (folder.path / "old.txt").rename(folder.path / "new.txt")
    (folder.path / "run.sh").chmod(0o755)
    folder.write_text("report.md", "# Report\nkey: hunter2-hunter2\n")
    (folder.path / "evil\x1b[31m").write_text("\x1b[2Jgone\n")
    return "Paris"
"""
)


@pytest.fixture
def project(bench, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # for workers
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2")
    bench.agent(WORKING)
    bench.temporary = tmp_path / "temporary"
    for name, text in (("src/app.py", "capital = 'Rome'\n"), ("old.txt", "kept\n"), ("run.sh", "echo\n")):
        bench.write(f"cases/one/template/{name}", text)
    return bench


def stored(project):
    [run] = find_stored(project.path / "outputs", "run_1.json")
    return load_run(run.output, run.path)


def test_each_run_works_on_its_own_copy_and_its_changes_are_stored(project):
    project.case("one", workspace="template")
    finished = project.run("--agentbench-repetitions", "2")
    assert set(finished.outcomes.values()) == {"passed"}
    for found in find_stored(project.path / "outputs", "run_?.json"):
        run = load_run(found.output, found.path)
        assert [(each.change, each.path) for each in run.changes] == [
            ("added", "evil\x1b[31m"),
            ("renamed", "new.txt"),
            ("added", "report.md"),
            ("mode", "run.sh"),
            ("modified", "src/app.py"),
        ]
        assert run.changes[-1].diff == "@@ -1 +1 @@\n-capital = 'Rome'\n+capital = 'Paris'\n"
        assert run.changes[2].diff.endswith("+key: [redacted]\n")
    assert (project.path / "cases/one/template/src/app.py").read_text() == "capital = 'Rome'\n"
    assert not list(project.temporary.iterdir())


@pytest.mark.slow
def test_an_edited_template_makes_another_run(project):
    project.case("one", workspace="template")
    project.run()
    project.run()
    assert project.lines("runs.txt") == ["one"]
    (project.path / "cases/one/template/run.sh").chmod(0o700)
    project.run()
    assert project.lines("runs.txt") == ["one", "one"]


@pytest.mark.slow
def test_a_run_that_changed_nothing_and_one_without_a_workspace_differ(project):
    project.case("one", workspace="template", metadata={"idle": True})
    project.run()
    assert stored(project).changes == ()
    shutil.rmtree(project.path / "outputs")
    project.case("one", metadata={"idle": True})
    project.run()
    assert stored(project).changes is None


def test_a_wrong_template_is_an_error_before_anything_runs(project):
    project.case("one", workspace="template")
    (project.path / "cases/one/template/.tmp").mkdir()
    finished = project.run()
    assert finished.outcomes == {"one[agent]": "error"}
    assert "this name is reserved for the run's temporary folder; rename it" in finished.text
    assert project.lines("runs.txt") == []
    project.case("one", workspace="nowhere")
    finished = project.run()
    assert finished.exit != 0
    assert "nowhere" in finished.text


def test_a_failed_run_shows_what_it_did_to_its_files(project):
    wrong = check("capital", kind="file_contains", path="src/app.py", text="Paris")
    project.case("one", workspace="template", metadata={"capital": "Oslo"}, deterministic_checks=[wrong])
    text = project.run().text
    for line in (
        "workspace:",
        "    modified src/app.py (file, 17 bytes)",
        "        +capital = 'Oslo'",
        "    renamed old.txt to new.txt",
        "    mode run.sh (644 -> 755)",
        r"    added evil\x1b[31m (file, 9 bytes)",
        r"        +\x1b[2Jgone",
        "        +key: [redacted]",
    ):
        assert line in text
    assert "\x1b[2J" not in text
    assert "hunter2" not in text


GONE = (
    HEAD
    + """
import shutil

def agent(case, context):
    folder = context.workspace.path
    if case.metadata["left"] == "nothing":
        shutil.rmtree(folder)
    if case.metadata["left"] == "deep":
        folder.joinpath(*["d"] * 101).mkdir(parents=True)
    if case.metadata["left"] == "many":
        for number in range(1_003):
            (folder / str(number)).touch()
    return "Rome"
"""
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left", "line"),
    [
        ("nothing", "    not compared: the folder is gone or cannot be looked into"),
        ("deep", "    not compared: its folders are nested deeper than 100"),
        ("many", "    3 more changes that are not listed"),
    ],
)
def test_a_failed_run_shows_that_something_of_what_it_did_is_not_told(project, left, line):
    project.agent(GONE)
    project.write("cases/one/template/a", "")
    project.case("one", workspace="template", metadata={"left": left})
    finished = project.run()
    assert finished.outcomes == {"one[agent]": "failed"}
    assert line in [each.removeprefix("E  ") for each in finished.text.splitlines()]


@pytest.mark.slow
def test_a_session_that_needs_no_container_does_not_import_dockers_sdk(project):
    unconfigure = (
        "def pytest_unconfigure(config):\n    import sys\n    note('docker.txt', str('docker' in sys.modules))\n"
    )
    project.agent(WORKING + unconfigure)
    project.case("one", workspace="template")
    assert project.spawn().outcomes == {"one[agent]": "passed"}
    assert project.lines("docker.txt") == ["False"]


def test_files_that_checks_name_and_that_were_made_are_kept_by_themselves(project):
    looked_at = check("there", kind="file_exists", path="run.sh")
    project.case("one", workspace="template", deterministic_checks=[looked_at])
    project.run()
    run = stored(project)
    outputs = {each.artifact_id: each for each in run.output_artifacts}
    assert list(outputs) == ["run.sh", "evil\x1b[31m", "new.txt", "report.md", "src/app.py"]
    report = outputs["report.md"]
    file = project.path / "outputs" / report.uri
    assert file.read_text() == "# Report\nkey: [redacted]\n"
    assert (report.artifact_type, report.size) == ("workspace_file", 25)
    assert outputs["new.txt"].media_type == "text/plain"
    assert re.fullmatch(r"[0-9a-f]{8}\.[0-9a-f]{16}\.report\.md", file.name)
    assert file.parent.name == "outputs"
    assert file.parent.parent.name == "run_1.artifacts"
    assert not list(Verification(Contents(project.path / "outputs")).problems())
    file.write_text("other")
    [problem] = Verification(Contents(project.path / "outputs")).problems()
    assert "output_artifacts: found" in problem
    assert "missing or damaged" in problem


def test_the_files_of_a_run_that_is_no_more_go_with_it(project):
    project.case("one", workspace="template")
    project.run()
    before = {each.uri for each in stored(project).output_artifacts}
    project.run("--agentbench-no-reuse")
    after = {each.uri for each in stored(project).output_artifacts}
    there = {
        path.relative_to(project.path / "outputs").as_posix()
        for path in project.path.rglob("run_1.artifacts/outputs/*")
    }
    assert before.isdisjoint(after)
    assert there == after


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_workspaces_of_runs_that_did_not_pass_are_kept_on_request(project, workers):
    wrong = check("never", kind="file_exists", path="never.txt")
    project.case("one", workspace="template", deterministic_checks=[wrong])
    project.case("two", metadata={"idle": True})
    finished = project.run("--agentbench-keep-workspaces", *workers)
    assert finished.outcomes == {"one[agent]": "failed", "two[agent]": "passed"}
    kept = Path(re.search(r"The run's workspace is kept: (\S+)", finished.text)[1])
    assert (kept / "src/app.py").read_text() == "capital = 'Paris'\n"
    project.run("--agentbench-no-reuse")
    assert (kept / "src/app.py").exists()
    assert [path.name for path in project.temporary.iterdir() if path.name.startswith("agentbench-")] == [
        kept.parent.name
    ]
    again = project.run("--agentbench-keep-workspaces", *workers)
    assert "The run was made before; its files are in runs/" in again.text


@pytest.mark.slow
def test_hand_written_tests_see_the_changes(project):
    project.case("one", workspace="template")
    project.write(
        "tests/test_marked.py",
        """
import pytest

@pytest.mark.agentbench("../cases/one/test.yaml")
def test_it(agentbench_run, agentbench_workspace):
    assert "src/app.py" in [change.path for change in agentbench_run.changes]
    assert "Paris" in agentbench_workspace.read_text("src/app.py")
""",
    )
    assert project.run("tests").outcomes == {"test_it[agent]": "passed"}
    assert project.run("tests").outcomes == {"test_it[agent]": "passed"}
    assert project.lines("runs.txt") == ["one"]


def test_predictions_need_no_template(project):
    project.case("one", workspace="template")
    project.write("answers.jsonl", json.dumps({"case_id": "one", "prediction": "Paris"}) + "\n")
    finished = project.run("--agentbench-predictions", "answers.jsonl")
    assert list(finished.outcomes.values()) == ["passed"]
    assert stored(project).changes is None
