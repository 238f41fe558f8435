"""Rows that a session keeps: they read as any row does, whatever of them lies in memory and whatever on disk."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from reports_samples import make_row
from support.small_disk import small_disk

from pytest_agentbench.reports import journal
from pytest_agentbench.reports.journal import Journal
from pytest_agentbench.reports.kept_rows import KeptRow, encode_row
from pytest_agentbench.reports.reading import run_mistake
from pytest_agentbench.reports.report import build_report, write_report

SPENT = {"run": 0.25, "judge": None}
ROWS = [
    make_row(),
    make_row("failed", "river", score=2.5, metric=0.0, message="a ÿ and a \ud800 \N{SNOWMAN}", tags=("smoke", "geo")),
    make_row("error", "sea", usage=None, seconds=None, message="no answer"),
    make_row("skipped", "lake", seconds=None),
    make_row("passed", "river", metric=1, repetition=2) | {"reruns": [{"repetition": 1, "outcome": "error"}]},
    make_row("passed", "hill", "own agent", metric=1.0, dataset="places", metadata={"height": 8}) | {"variant": "high"},
    make_row() | {"agreement": {"exact_match": 0.5}, "reruns": [], "checks": [], "run_id": "r1"},
]


@pytest.fixture
def keep(tmp_path):
    """Keep rows in one journal below the test's folder."""
    journal = Journal(tmp_path, {}, print)
    yield lambda rows: [journal.row(row, at, SPENT) for at, row in enumerate(rows)]
    journal.close()


def test_a_kept_row_reads_as_the_row_itself(keep):
    for row, kept in zip(ROWS, keep(ROWS), strict=True):
        assert isinstance(kept, KeptRow)
        assert {name: kept[name] for name in row} == row == dict(kept) == {**kept}
        assert repr([kept[name] for name in row]) == repr([*row.values()])  # 1 is not 1.0
        assert [*kept] == [*row]
        assert len(kept) == len(row)
        assert kept.text() == json.dumps(row, separators=(",", ":"))


def test_a_kept_row_has_no_other_names(keep):
    [kept] = keep(ROWS[:1])
    assert kept.get("variant") is None
    assert kept.get("reruns", ()) == ()
    assert "judge_votes" not in kept
    assert "checks" in kept
    with pytest.raises(KeyError):
        kept["agreement"]


def test_a_report_of_kept_rows_is_the_report_of_the_rows(keep, tmp_path):
    report = build_report(ROWS, {"started_at": "2026-11-22T10:00:00+00:00"}, SPENT)
    of_kept = build_report(keep(ROWS), {"started_at": "2026-11-22T10:00:00+00:00"}, SPENT)
    assert of_kept == report
    for each, name in ((report, "a.json"), (of_kept, "b.json")):
        write_report(each, tmp_path / name)
        assert (tmp_path / name).read_text() == json.dumps(report, separators=(",", ":")) + "\n"


def test_rows_are_there_after_the_end(tmp_path):
    journal = Journal(tmp_path, {}, print)
    kept = [journal.row(row, at, SPENT) for at, row in enumerate(ROWS)]
    journal.end(build_report(ROWS, {}, SPENT))
    assert kept == ROWS
    assert journal.row(ROWS[0], 9, SPENT) == ROWS[0]  # in no file, and not lost
    journal.close()


@pytest.mark.parametrize("place", ["a full disk", "no folder"])
def test_rows_that_cannot_be_written_stay_in_memory(tmp_path, place):
    rows = [make_row("failed", f"c{at}", message="x" * 500) for at in range(200)]
    if place == "no folder":
        (tmp_path / "outputs").write_text("")
        said: list[str] = []
        journal = Journal(tmp_path / "outputs", {}, said.append)
        assert [journal.row(row, at, SPENT) for at, row in enumerate(rows)] == rows
    else:
        with small_disk(tmp_path / "disk", "64k"):
            said = []
            journal = Journal(tmp_path / "disk", {}, said.append)
            assert [journal.row(row, at, SPENT) for at, row in enumerate(rows)] == rows
            journal.close()
    [warning] = said
    assert "journal cannot be written" in warning


@pytest.mark.parametrize("what", ["changed", "cut off", "another's line"])
def test_a_row_that_somebody_changed_on_disk_is_not_believed(tmp_path, what):
    journal = Journal(tmp_path, {}, print)
    row = make_row("failed", score=2.5, message="wrong") | {"reruns": [dict.fromkeys(("repetition", "outcome"), 1)]}
    first = journal.row(row, 0, SPENT)
    if what == "another's line":
        with journal.path.open("ab") as file:
            file.write(b"{}\n")
    kept = journal.row(row, 1, SPENT)
    text = journal.path.read_bytes()
    if what == "changed":
        journal.path.write_bytes(text.replace(b'"final_score":2.5', b'"final_score":9.5'))
    elif what == "cut off":
        journal.path.write_bytes(text[: text.index(b"\n")])
    rows = [kept] if what == "another's line" else [first, kept]
    for row in rows:
        assert (row["outcome"], row["final_score"], row["checks"]) == ("failed", 2.5, [])
        assert row["message"].startswith("the row of this run in the session's journal was changed")
        assert row.get("reruns", ()) == ()
        assert "reruns" not in row
        assert run_mistake(json.loads(row.text())) is None
    write_report(build_report([first, kept], {}), tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["models"][0]["mean_score"] == 2.5
    journal.close()


@pytest.mark.slow
def test_a_kept_row_is_small_and_no_report_is_held_as_text(tmp_path):
    count = 2_000
    journal = Journal(tmp_path, {}, print)
    tracemalloc.start()
    kept = [journal.row(make_row("failed", f"c{at}", metric=1.0, message="x" * 900), at, SPENT) for at in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    assert size / count < 1_000
    report = build_report(kept, {})
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    write_report(report, tmp_path / "report.json")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "report.json").stat().st_size > 3_000_000
    assert peak - before < 300_000
    journal.close()


@pytest.mark.parametrize("text", ["plain", "\x1b[2J", "\x7f", "\x9b2J", "\u202e", "naïve", "NaN", "\ud800"])
def test_a_row_is_written_in_ascii_that_steers_no_terminal(text):
    written = encode_row({"message": text, "metrics": {"m": 1e-7}, "n": 2**70, "tags": ("a",)})

    assert written.isascii()
    assert not any(byte < 32 or byte == 127 for byte in written)
    assert json.loads(written) == {"message": text, "metrics": {"m": 1e-7}, "n": 2**70, "tags": ["a"]}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_row_with_a_number_that_json_lacks_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_row({"metrics": {"m": number}})


def test_a_row_that_was_changed_to_one_of_the_same_python_hash_is_not_accepted(tmp_path, monkeypatch):
    # PYTHONHASHSEED=0 gives hash() a key that everybody knows, and then rows of the same hash can be computed
    monkeypatch.setattr(journal, "hash", lambda text: 0, raising=False)
    written = Journal(tmp_path, {}, print)
    kept = [written.row(make_row("failed", name, message="wrong"), at, SPENT) for at, name in enumerate("ab")]
    written.path.write_bytes(written.path.read_bytes().replace(b'"wrong"', b'"right"'))
    assert all("the row of this run in the session's journal was changed" in row["message"] for row in kept)
    written.close()
