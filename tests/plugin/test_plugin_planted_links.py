"""Links that a stranger's repository brings in the place of folders that a session writes to."""

from __future__ import annotations

import pytest
from support.bench import ECHO


def plant(link, elsewhere):
    elsewhere.mkdir(exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere, target_is_directory=True)


@pytest.mark.slow
def test_no_session_writes_through_a_link_below_its_output_folder(bench):
    bench.write("conftest.py", ECHO)
    bench.case("one")
    elsewhere = bench.path / "elsewhere"
    for name in ("runs", ".journals", "mcp/catalogues", "judgements/ab", "evaluations/suit_default"):
        plant(link := bench.path / "outputs" / name, elsewhere)
        finished = bench.run()
        assert (finished.exit, finished.report) == (4, None), finished.text
        assert f"{link}: is a link to another folder" in finished.text
        assert not [*elsewhere.iterdir()]
        link.unlink()


@pytest.mark.slow
def test_an_output_folder_that_is_a_link_is_written_to(bench):
    bench.write("conftest.py", ECHO)
    bench.case("one")
    plant(bench.path / "outputs", bench.path / "scratch")
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "passed"}
    assert [*(bench.path / "scratch").rglob("run_1.json")]


@pytest.mark.slow
def test_no_cassette_is_recorded_or_replayed_through_a_link(bench):
    """The folder itself, and one of a dataset's row in it."""
    bench.case("one")
    bench.rows("cases/rows.jsonl", {"id": "q", "question": "Which?", "answer": "Paris"})
    bench.models({"model_id": "gpt", "base_url": "http://127.0.0.1:9", "api_key_env": "none"})
    elsewhere = bench.path / "elsewhere"
    plant(bench.path / "cases/one/cassettes", elsewhere)
    plant(bench.path / "cases/cassettes/rows.q", elsewhere)
    for mode in ("record", "replay"):
        finished = bench.run("--model=gpt", f"--agentbench-cassettes={mode}")
        assert set(finished.outcomes.values()) == {"error"}
        assert finished.text.count("is a link to another folder, expected a folder: cassettes") >= 2
        assert not [*elsewhere.iterdir()]
