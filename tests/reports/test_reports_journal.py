"""The journal: written line by line, read whatever state its session left it in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reports_samples import make_row
from support.small_disk import small_disk

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.journal import FOLDER, Journal, JournalReader, RowsGoneError, journals, read_journal
from pytest_agentbench.reports.report import build_report, write_report

BEGUN = {"started_at": "2026-11-22T10:00:00+00:00", "command": ["cases"], "warnings": ["mind this"]}
OVER = {**BEGUN, "duration_seconds": 12.5, "exit_status": 1}
SPENT = {"run": 0.25, "judge": None}
ROWS = [make_row(case_id=f"c{at}", outcome=outcome) for at, outcome in enumerate(["passed", "failed", "error"])]
ENDED = build_report(ROWS, OVER, SPENT)
ENDED["comparison"] = compare(build_campaign(ENDED, "base.json"), build_campaign(ENDED)).as_dict()


@pytest.fixture
def journal(tmp_path):
    """A journal of three runs, the last reported first; told warnings are in `said`."""
    journal = written(tmp_path)
    yield journal
    journal.close()


def written(output: Path) -> Journal:
    said: list[str] = []
    journal = Journal(output, BEGUN, said.append)
    journal.said = said  # type: ignore[attr-defined]
    journal.plan(4)
    for at in (2, 0, 1):
        journal.row(ROWS[at], at, SPENT)
    return journal


def test_a_finished_session_reads_back_as_its_report(journal, tmp_path):
    journal.end(ENDED)
    assert journals(tmp_path) == [journal.path]
    assert read_journal(journal.path) == ENDED


def test_rows_that_report_json_has_leave_the_journal(journal, tmp_path):
    following = JournalReader(journal.path)
    following.read()
    write_report(ENDED, tmp_path / "report.json")
    journal.end(ENDED, written=True)
    assert b"c0" not in journal.path.read_bytes()
    assert json.loads(journal.row_text(0)) == ROWS[2]
    assert read_journal(journal.path) == ENDED
    following.read()
    assert (following.is_over, following.report()) == (True, ENDED)


@pytest.mark.parametrize("later", [True, False], ids=["later", "none"])
def test_rows_that_report_json_has_no_more_are_missed(journal, tmp_path, later):
    journal.end(ENDED, written=True)
    if later:
        report = build_report(ROWS, {**OVER, "started_at": "2026-11-22T11:00:00+00:00"}, SPENT)
        write_report(report, tmp_path / "report.json")
    expected = "found a later session's report there" if later else "found none there"
    with pytest.raises(RowsGoneError, match=expected):
        read_journal(journal.path)


@pytest.mark.parametrize("planted", ["file", "folder"])
def test_a_file_that_replaced_a_journal_is_not_overwritten(journal, tmp_path, planted):
    if planted == "file":
        journal.path.unlink()
        journal.path.write_text("another's")
    else:
        journal.path.parent.rename(tmp_path / "moved")
        (tmp_path / FOLDER).symlink_to(tmp_path / "moved")
    before = journal.path.read_bytes()
    write_report(ENDED, tmp_path / "report.json")
    journal.end(ENDED, written=True)
    assert journal.path.read_bytes().startswith(before)
    assert json.loads(journal.row_text(0)) == ROWS[2]


def test_the_report_of_a_running_session_has_its_progress(journal):
    report = read_journal(journal.path)
    assert [row["case_id"] for row in report["runs"]] == ["c0", "c1", "c2"]
    assert report["totals"]["spent_usd"] == SPENT
    assert report["session"]["exit_status"] is None
    assert report["session"]["warnings"] == [
        "mind this",
        "The session is still running: 3 of 4 runs are reported.",
    ]


def test_a_session_that_is_gone_without_an_end_was_killed(journal):
    assert JournalReader(journal.path).is_live()
    journal.close()  # as the kernel does for a killed process
    assert not JournalReader(journal.path).is_live()
    assert read_journal(journal.path)["session"]["warnings"][-1] == "The session was killed: 3 of 4 runs are reported."


def test_a_later_line_on_a_run_takes_the_place_of_the_earlier(journal):
    journal.row({**ROWS[0], "outcome": "error", "message": "teardown failed"}, 0, SPENT)
    journal.end(ENDED)
    report = read_journal(journal.path)
    assert [row["outcome"] for row in report["runs"]] == ["error", "failed", "error"]


def test_a_reader_takes_only_what_was_added(journal):
    reader = JournalReader(journal.path)
    assert reader.read() == journal.path.stat().st_size
    assert reader.read() == 0
    journal.progress(3, 30, (f"run {number}" for number in range(30)))
    assert reader.read() > 0
    assert (reader.ended, reader.in_flight, reader.running[:2], len(reader.running)) == (3, 30, ["run 0", "run 1"], 20)


def test_progress_is_noted_seldom(journal):
    before = journal.path.stat().st_size
    journal.progress(0, 1, ["one"])
    once = journal.path.stat().st_size
    journal.progress(1, 1, ["two"])  # at once
    assert journal.path.stat().st_size == once > before


@pytest.mark.parametrize("cut", range(1, 200, 17))
def test_a_line_that_was_cut_short_is_left_out(journal, cut):
    journal.close()
    os.truncate(journal.path, journal.path.stat().st_size - cut)
    report = read_journal(journal.path)
    assert [row["case_id"] for row in report["runs"]] == ["c0", "c2"]  # c1 was the last
    assert not [text for text in report["session"]["warnings"] if "Broken" in text]


@settings(max_examples=40)
@given(junk=st.binary(max_size=60).filter(lambda data: b"\n" not in data))
def test_lines_that_are_none_are_counted(tmp_path_factory, junk):
    journal = written(tmp_path_factory.mktemp("output"))
    journal.close()
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join([*lines[:2], junk + b"\n", *lines[2:]]))
    report = read_journal(journal.path)
    assert len(report["runs"]) == 3
    assert "Broken lines of the journal: 1." in report["session"]["warnings"]


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"run","seconds":1,"at":3,"spent_usd":{},"row":' + "[" * 100_000,
        json.dumps({"event": "run", "seconds": 1, "at": 3, "spent_usd": SPENT, "row": {"nodeid": "x"}}),
        json.dumps({"event": "run", "seconds": 1, "at": 3, "spent_usd": SPENT, "row": {**ROWS[0], "tags": 7}}),
        json.dumps({"event": "run", "seconds": 1, "at": 3, "spent_usd": 5, "row": ROWS[0]}),
        json.dumps({"event": "run", "seconds": 1, "at": None, "spent_usd": SPENT, "row": ROWS[0]}),
        '{"event":"progress","seconds":1e999,"ended":1,"in_flight":1,"running":[]}',
        '{"event":"progress","seconds":1,"ended":NaN,"in_flight":1,"running":[]}',
        '{"event":"progress","seconds":1,"ended":1,"in_flight":1,"running":7}',
        '{"event":"begin","seconds":0,"journal":1,"session":{"warnings":7}}',
        '{"event":"begin","seconds":0,"journal":1,"session":[1]}',
        json.dumps({"event": "end", "seconds": 1, "spent_usd": SPENT, "report": {"session": {"command": "x"}}}),
        json.dumps({"event": "end", "seconds": 1, "spent_usd": SPENT, "report": {"session": OVER, "comparison": 7}}),
        json.dumps({"event": "end", "seconds": 1, "spent_usd": SPENT, "report": {"session": OVER, "runs": 7}}),
    ],
    ids=lambda line: line[:40],
)
def test_lines_of_a_wrong_form_are_counted_too(tmp_path, line):
    journal = written(tmp_path)
    journal.close()
    with journal.path.open("a") as file:
        file.write(f"{line}\n")
    report = read_journal(journal.path)
    assert report["runs"] == ROWS
    assert report["session"]["warnings"] == ["mind this", "Broken lines of the journal: 1.", ANY]
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_an_existing_path_at_the_journals_name_is_not_changed(tmp_path, kind):
    (tmp_path / ".journals").mkdir()
    theirs = tmp_path / ".journals/20261122T100000000000Z-0123abcd.journal"
    if kind == "fifo":
        os.mkfifo(theirs)
    elif kind == "link":
        (tmp_path / "elsewhere").write_text("theirs")
        theirs.symlink_to(tmp_path / "elsewhere")
    else:
        theirs.mkdir()
    ours = written(tmp_path)
    ours.close()
    assert journals(tmp_path) == [ours.path]
    assert ours.said == []
    assert os.path.lexists(theirs)


def test_events_of_a_newer_version_are_passed_over(journal):
    with journal.path.open("a") as file:
        file.write(json.dumps({"event": "weather", "seconds": 5}) + "\n")
    assert len(read_journal(journal.path)["runs"]) == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is not a session's journal"),
        ("{}\n", "is not a session's journal"),
        ('{"event":"begin","seconds":0,"journal":2,"session":{}}\n', "journal: found version 2, expected 1"),
    ],
)
def test_a_file_that_is_not_a_journal_is_an_error(tmp_path, content, problem):
    path = tmp_path / "x.journal"
    path.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        read_journal(path)
    with pytest.raises(ConfigError, match=r"gone\.journal: cannot be read"):
        read_journal(tmp_path / "gone.journal")


def test_a_session_removes_the_journals_of_those_that_are_over(journal, tmp_path):
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    other = written(tmp_path)  # beside the one that runs
    assert journals(tmp_path) == [other.path, journal.path]
    other.close()
    third = written(tmp_path)
    assert journals(tmp_path) == [third.path, journal.path]
    third.discard()
    assert journals(tmp_path) == [journal.path]
    assert (tmp_path / FOLDER / "notes.txt").exists()


def test_no_journals_where_there_is_no_output(tmp_path):
    assert journals(tmp_path / "missing") == []


@pytest.mark.slow
def test_a_killed_process_lets_go_of_its_journal(tmp_path):
    source = (
        "import os, pathlib, sys; from pytest_agentbench.reports.journal import Journal; "
        "journal = Journal(pathlib.Path(sys.argv[1]), {}, print); journal.plan(3); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        [path] = journals(tmp_path)
        assert JournalReader(path).is_live()
        process.kill()
        process.wait()
        assert not JournalReader(path).is_live()


@pytest.mark.parametrize("place", ["a file", "a link"])
def test_a_folder_that_cannot_be_had_is_one_warning(tmp_path, place):
    output = tmp_path / "outputs"
    if place == "a file":
        output.write_text("")
    else:
        output.symlink_to(tmp_path / "nowhere")
    journal = written(output)
    [said] = journal.said
    assert "the session's journal cannot be written" in said
    journal.end(ENDED)
    journal.discard()


def test_a_full_disk_is_one_warning_and_what_was_written_is_read(tmp_path):
    with small_disk(tmp_path / "disk", "64k"):
        journal = written(tmp_path / "disk")
        for at in range(3, 200):
            journal.row(make_row(case_id=f"c{at}", message="x" * 500), at, SPENT)
        [said] = journal.said
        assert "No space left on device" in said
        report = read_journal(journal.path)
        assert 3 < len(report["runs"]) < 200
        assert report["session"]["warnings"][-1] == (
            f"The session was killed: {len(report['runs'])} of 4 runs are reported."
        )
