"""A store that others can write: with a key only what is signed counts."""

from __future__ import annotations

import json

import pytest
from support.bench import HEAD
from support.stored import find_stored

KEYED = ("--agentbench-store-key", "TEST_STORE_KEY")
SAYS = HEAD + "def agent(case):\n    note('ran.txt')\n    return case.metadata['says']\n"


@pytest.fixture
def signed(bench, monkeypatch):
    """A session that failed its only case, with a key."""
    monkeypatch.setenv("TEST_STORE_KEY", "0123456789abcdef0123")
    bench.agent(SAYS)
    bench.case("rome", metadata={"says": "Rome"})
    assert bench.run(*KEYED).outcomes == {"rome[agent]": "failed"}
    return bench


def edit(bench, name: str, change) -> None:
    """Change the only document of this name."""
    [document] = find_stored(bench.path / "outputs", name)
    document.write_bytes(change(document.read_bytes()))


def runs(bench) -> int:
    return len(bench.lines("ran.txt"))


RUN, VERDICT = "run_1.json", "final_result_1.json"


@pytest.mark.slow
def test_signed_results_are_reused_without_a_warning(signed):
    again = signed.run(*KEYED)
    assert (again.runs["rome[agent]"]["reused"], again.runs["rome[agent]"]["evaluation_reused"]) == (True, True)
    assert (runs(signed), again.report["session"]["warnings"]) == (1, [])
    assert signed.run().runs["rome[agent]"]["evaluation_reused"]  # who asks for no key reads it too


def forge(content: bytes) -> bytes:
    return content.replace(b"Rome", b"Paris").replace(b'"failed"', b'"passed"')


def unsign(content: bytes) -> bytes:
    document = json.loads(content)
    del document["signature"]
    return json.dumps(document, separators=(",", ":")).encode()


@pytest.mark.parametrize("change", [forge, unsign])
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_run_that_was_edited_or_is_not_signed_is_made_again_and_told(signed, as_stored, change, workers):
    edit(signed, RUN, change)
    as_stored(signed.path / "outputs")
    again = signed.run(*KEYED, *workers)
    assert again.outcomes == {"rome[agent]": "failed"}
    assert (again.runs["rome[agent]"]["reused"], runs(signed)) == (False, 2)
    [told] = again.report["session"]["warnings"]
    assert " of the store had no signature of --agentbench-store-key's key and were ignored" in told
    assert "run" in told.partition(" of the store")[0]


def test_a_verdict_that_was_edited_is_made_again(signed, as_stored):
    edit(signed, VERDICT, forge)
    as_stored(signed.path / "outputs")
    again = signed.run(*KEYED)
    assert again.outcomes == {"rome[agent]": "failed"}
    assert (again.runs["rome[agent]"]["reused"], again.runs["rome[agent]"]["evaluation_reused"]) == (True, False)
    assert runs(signed) == 1


def test_another_key_takes_nothing(signed, monkeypatch):
    monkeypatch.setenv("TEST_STORE_KEY", "another key of enough letters")
    assert signed.run(*KEYED).runs["rome[agent]"]["reused"] is False


@pytest.mark.slow
def test_a_run_in_the_place_of_another_repetition_is_not_taken(signed, as_stored):
    [run] = find_stored(signed.path / "outputs", RUN)
    run.with_name("run_2.json").write_bytes(run.read_bytes())
    as_stored(signed.path / "outputs")
    again = signed.run(*KEYED, "--agentbench-repetitions", "2")
    assert [row["reused"] for row in again.runs.values()] == [True, False]


@pytest.mark.slow
def test_a_shared_store_gives_signed_results_only(signed, tmp_path_factory):
    shared = tmp_path_factory.mktemp("shared")
    url = f"--agentbench-store=file://{shared}"
    assert signed.run(*KEYED, url).exit == 1  # brings it there
    fresh = ("--agentbench-output", "elsewhere")
    assert signed.run(*KEYED, url, *fresh).runs == {}  # report.json lies elsewhere
    row = json.loads((signed.path / "elsewhere/report.json").read_text())["runs"][0]
    assert (row["reused"], runs(signed)) == (True, 1)
    [run] = shared.glob("runs/*/*/*/run_1.*.jsonl")
    run.write_bytes(forge(run.read_bytes()))
    signed.run(*KEYED, url, "--agentbench-output", "third")
    report = json.loads((signed.path / "third/report.json").read_text())
    assert (report["runs"][0]["reused"], report["runs"][0]["outcome"], runs(signed)) == (False, "failed", 2)
    assert "were ignored" in report["session"]["warnings"][0]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TEST_STORE_KEY", "short", "which is not set, or holds fewer than 16 characters"),
        ("GONE_KEY", None, "which is not set, or holds fewer than 16 characters"),
        ("PLAIN_NAME", "0123456789abcdef0123", "with KEY, SECRET or TOKEN in it"),
        ("0123-sk-secret", None, "never the key itself"),
    ],
)
def test_a_key_that_is_none_is_wrong_usage(bench, monkeypatch, name, value, said):
    if value is not None:
        monkeypatch.setenv(name, value)
    bench.agent()
    bench.case("one")
    finished = bench.run("--agentbench-store-key", name)
    assert finished.exit == 4
    assert said in " ".join(finished.text.split())
    assert "0123" not in finished.text
