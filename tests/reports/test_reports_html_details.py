"""What the page gets to show of stored runs: bounded, and as far as the files go."""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64decode
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.stored_runs import (
    ANSWER,
    CHANGES,
    CHECKS,
    StoredRuns,
    answered,
    called,
    coding_trace,
    judged,
    said,
    told,
    verdict,
)

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact, RunnerEvent
from pytest_agentbench.reports.html import placing as chunks
from pytest_agentbench.reports.html.details import (
    FIRST_EVENTS,
    LAST_EVENTS,
    LEAST,
    ROOM,
    TEXT,
    deciding_options,
    run_detail,
)
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.html.placing import place_details, remove_earlier


@pytest.fixture
def stored(tmp_path):
    return StoredRuns(tmp_path / "outputs")


def detail(stored, row=-1, **changes):
    return run_detail({**stored.rows[row], **changes}, stored.output)


def notes(stored, **changes):
    found = detail(stored, **changes)
    assert json.loads(json.dumps(found)) == found
    return found["notes"]


def test_a_small_run_is_shown_as_it_is_stored(stored):
    evaluation = verdict("failed", checks=CHECKS, judge=judged([5.0, 6.0]), final_score=5.5)
    stored.add(trace=coding_trace(ANSWER), changes=CHANGES, evaluation=evaluation, outcome="failed")
    found = detail(stored)
    assert found["notes"] == []
    run = RunArtifact.model_validate(found["run"])
    assert (run.final_output, run.changes, len(run.tool_calls)) == (ANSWER, CHANGES, 5)
    assert Evaluation.model_validate(found["evaluation"]).checks == CHECKS


def test_raw_usage_of_providers_is_left_out(stored):
    usage = {"input_tokens": 5, "raw": [{"prompt_tokens": 5}]}
    stored.add(trace=[answered("x", 1.0)], usage=usage, evaluation=verdict(judge=judged([5.0])))
    path = stored.output / stored.rows[0]["evaluation"]
    path.write_text(path.read_text().replace('"raw":[]', '"raw":[{"prompt_tokens":7}]'))
    assert "prompt_tokens" not in json.dumps(detail(stored))


def test_a_long_answer_is_cut_with_its_full_length(stored):
    stored.add(trace=[said("user", "hi"), answered("x" * 5_000_000, 1.0)])
    (_, answer) = detail(stored)["run"]["trace"]
    assert answer["content"] == {"cut": "x" * TEXT, "of": 5_000_000}


def test_the_answer_has_room_however_long_the_trace_is(stored):
    stored.add(trace=[*(said("user", "y" * TEXT) for _ in range(40)), answered("the answer", 1.0)])
    trace = detail(stored)["run"]["trace"]
    assert trace[-1]["content"] == "the answer"
    assert [event["content"] for event in trace[:3]] == ["y" * TEXT] * 3
    assert trace[30]["content"] == {"cut": "y" * LEAST, "of": TEXT}


def test_of_a_huge_trace_the_first_and_last_events_are_shown(stored):
    calls = (called("search", {"q": f"question {n}"}, n) for n in range(8_000))
    stored.add(trace=[*calls, answered("done", 8_000)])
    found = detail(stored)["run"]["trace"]
    at = next(at for at, event in enumerate(found) if "cut" in event)
    assert found[at] == {"cut": at + LAST_EVENTS, "of": 8_001}
    assert [found[0]["arguments"], found[at - 1]["sequence"]] == [{"q": "question 0"}, at - 1]
    assert len(found) == at + 1 + LAST_EVENTS
    assert found[-1]["content"] == "done"
    assert len(json.dumps(found)) < 3 * ROOM


def test_a_trace_of_five_thousand_events_is_whole(stored):
    stored.add(trace=[RunnerEvent(sequence=0, at=n, name="step", data={"n": n}) for n in range(FIRST_EVENTS)])
    assert len(detail(stored)["run"]["trace"]) == FIRST_EVENTS


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=20), inner, max_size=30),
    max_leaves=200,
)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=20), nested, max_size=20), st.integers(1_000, 20_000))
def test_arguments_of_any_size_stay_within_the_limit_of_the_page(tmp_path, arguments, room):
    stored = StoredRuns(tmp_path)
    stored.add(trace=[called("tool", arguments, 1.0), told("tool", "z" * 3 * room, 2.0), answered("done", 3.0)])
    found = run_detail(stored.rows[0], tmp_path, room)
    assert len(json.dumps(found, ensure_ascii=False)) < 8 * room + 20_000
    assert found["run"]["trace"][-1]["content"] == "done"


def test_a_run_without_a_stored_run_has_a_note(stored):
    stored.add()
    assert notes(stored, artifact=None, outcome="error") == ["Nothing was stored of this run."]
    assert notes(stored, artifact=None, outcome="skipped") == []


@pytest.mark.parametrize("name", ["artifact", "evaluation"])
def test_a_file_that_is_missing_or_broken_is_named(stored, name):
    stored.add(evaluation=verdict())
    path = stored.rows[0][name]
    place = stored.output / path
    whole = place.read_bytes()
    for content, said_of_it in ((whole[:40], "broken"), (b"[]", "found no JSON object"), (b"\xff\xfe", "broken")):
        place.write_bytes(content)
        found = detail(stored)
        (note,) = found["notes"]
        assert note.startswith(f"{path}: ")
        assert said_of_it in note
        assert found["run" if name == "artifact" else "evaluation"] is None
    place.unlink()
    assert notes(stored) == [f"{path}: missing in {stored.output}."]
    place.mkdir()
    assert "found a folder, expected a file" in notes(stored)[0]


def test_nesting_that_no_parser_takes_is_broken_and_not_fatal(stored):
    stored.add()
    (stored.output / stored.rows[0]["artifact"]).write_text('{"trace":' + "[" * 100_000)
    assert "broken" in notes(stored)[0]


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret.json", "runs/../../secret.json", "..\\secret.json"])
def test_a_report_cannot_name_files_outside_of_the_output_folder(stored, path):
    stored.add()
    (stored.output.parent / "secret.json").write_text('{"key": "hidden"}')
    assert notes(stored, artifact=path) == [f"{path}: not read, because it is outside the output folder."]


@pytest.mark.parametrize("path", ["link.json", "folder/secret.json"])
def test_links_lead_to_no_file_outside_of_the_output_folder(stored, tmp_path, path):
    stored.add()
    (tmp_path / "secret.json").write_text('{"key": "hidden"}')
    (stored.output / "link.json").symlink_to(tmp_path / "secret.json")
    (stored.output / "folder").symlink_to(tmp_path)
    assert notes(stored, artifact=path) == [f"{path}: not read, because it is outside the output folder."]


def test_links_within_the_output_folder_and_to_it_are_followed(stored, tmp_path):
    stored.add(trace=[answered("mine", 1.0)])
    (tmp_path / "latest").symlink_to(stored.output)
    (stored.output / "moved").symlink_to(stored.output / "runs")
    row = {**stored.rows[0], "artifact": stored.rows[0]["artifact"].replace("runs/", "moved/", 1)}
    found = run_detail(row, tmp_path / "latest")
    assert (found["run"]["trace"][0]["content"], found["notes"]) == ("mine", [])


@pytest.mark.parametrize("path", ["runs/\0.json", "runs/\ud800.json", "link/\0.json"])
def test_an_impossible_file_name_is_noted(stored, path):
    stored.add()
    (stored.output / "link").symlink_to(stored.output / "runs")
    assert "is not a file name" in notes(stored, artifact=path)[0]


def test_a_fifo_in_place_of_a_run_does_not_hang(stored):
    stored.add()
    place = stored.output / stored.rows[0]["artifact"]
    place.unlink()
    os.mkfifo(place)
    assert "found a pipe, expected a file" in notes(stored)[0]


def test_a_run_that_another_has_taken_the_place_of_is_found_aside(stored):
    stored.add(trace=[answered("mine", 1.0)])
    place = stored.output / stored.rows[0]["artifact"]
    mine = place.read_text()
    other = json.loads(mine)
    place.write_text(json.dumps({**other, "fingerprint": "f" * 64}))
    assert "another run has replaced it" in notes(stored)[0]
    place.with_name(f"{place.stem}.{'0' * 8}.json").write_text(mine)
    assert detail(stored)["run"]["trace"][0]["content"] == "mine"
    assert notes(stored) == []


def test_a_later_run_and_a_later_verdict_are_told_from_the_reports_own(stored):
    stored.add(trace=[answered("x", 1.0)], evaluation=verdict(final_score=5.0))
    assert "run again since" in notes(stored, duration_seconds=0.25)[0]
    assert "run again since" in notes(stored, run_id="another")[0]
    assert notes(stored, run_id="run-0", duration_seconds=0.25) == []
    assert "judged again since" in notes(stored, final_score=8.0)[0]
    place = stored.output / stored.rows[0]["evaluation"]
    place.write_text(json.dumps({**json.loads(place.read_text()), "run_id": "another"}))
    assert "on another run" in notes(stored)[0]
    assert detail(stored)["evaluation"] is None


def test_without_the_output_folder_each_file_is_named(stored):
    stored.add(evaluation=verdict())
    found = run_detail(stored.rows[0], None)
    assert (found["run"], found["evaluation"], len(found["notes"])) == (None, None, 2)


# -- where they are kept


def unpacked(text):
    return json.loads(gzip.decompress(b64decode(text)))


def test_few_details_are_in_the_page(stored, tmp_path):
    for number in range(3):
        stored.add(repetition=number + 1, trace=[answered(f"answer {number}", 1.0)])
    placed = place_details(stored.report, tmp_path / "report.html", stored.output)
    assert (placed.facts["kind"], placed.facts["starts"], placed.facts["base"]) == ("embedded", [0], "outputs")
    (details,) = (unpacked(placed.blocks[name]) for name in placed.facts["blocks"])
    assert [each["run"]["trace"][0]["content"] for each in details] == [f"answer {n}" for n in range(3)]
    assert not (tmp_path / "report.html_files").exists()


def test_the_tools_that_runs_called_are_named_for_the_search(stored, tmp_path):
    stored.add(trace=[called("find", {}, 1.0, "c1"), called("order", {}, 1.1, "c2"), called("find", {}, 1.2, "c3")])
    stored.add(repetition=2)
    stored.add(repetition=3, trace=[called("order", {}, 1.0)])
    placed = place_details(stored.report, tmp_path / "report.html", stored.output)
    assert placed.facts["tools"] == {"names": ["find", "order"], "runs": [[0, 1], [], [1]]}


def in_chunks(stored, page, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 4_000)
    monkeypatch.setattr(chunks, "EMBEDDED", 1_000)
    placed = place_details(stored.report, page, stored.output)
    remove_earlier(page, placed)
    return placed


def test_many_details_are_in_files_beside_the_page(stored, tmp_path, monkeypatch):
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered(f"answer {number}", 1.0)])
    page = tmp_path / "nightly report.html"
    placed = in_chunks(stored, page, monkeypatch)
    assert (placed.facts["kind"], placed.blocks) == ("chunks", {})
    found = {}
    for start, address in zip(placed.facts["starts"], placed.facts["files"], strict=True):
        folder, name = address.split("/")
        assert folder == "nightly%20report.html_files"
        said_in_it = (tmp_path / "nightly report.html_files" / name).read_text()
        assert said_in_it.startswith(f'agentbenchChunk("{name}","')
        for at, each in enumerate(unpacked(said_in_it.split('"')[3]), start):
            found[at] = each["run"]["trace"][0]["content"]
    assert found == {n: f"answer {n}" for n in range(12)}
    assert len(placed.facts["files"]) > 2


def test_a_link_in_the_place_of_the_folder_beside_the_page_is_not_followed(stored, tmp_path, monkeypatch):
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered(f"answer {number}", 1.0)])
    mine = tmp_path / "mine" / f"runs-{'0' * 16}.js"
    mine.parent.mkdir()
    mine.touch()
    page = tmp_path / "report.html"
    (tmp_path / "report.html_files").symlink_to(mine.parent)
    with pytest.raises(UnwritableError, match="is a link to another folder"):
        in_chunks(stored, page, monkeypatch)
    monkeypatch.undo()
    remove_earlier(page, place_details(stored.report, page, stored.output))
    assert [*mine.parent.iterdir()] == [mine]


def test_an_earlier_pages_files_do_not_pile_up(stored, tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered(f"first {number}", 1.0)])
    first = in_chunks(stored, page, monkeypatch)
    stored.rows.clear()
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered(f"second {number}", 1.0)])
    (tmp_path / "report.html_files" / "notes.txt").write_text("mine")
    second = in_chunks(stored, page, monkeypatch)
    there = {f"report.html_files/{path.name}" for path in (tmp_path / "report.html_files").iterdir()}
    assert there == {*second.facts["files"], "report.html_files/notes.txt"}
    assert not {*first.facts["files"]} & there
    monkeypatch.undo()
    remove_earlier(page, place_details(stored.report, page, stored.output))
    assert [path.name for path in (tmp_path / "report.html_files").iterdir()] == ["notes.txt"]


def test_pages_of_one_name_and_several_suffixes_keep_their_own_details(stored, tmp_path, monkeypatch):
    kept = []
    for name in ("a.html", "a.htm", "a"):
        stored.rows.clear()
        for number in range(12):
            stored.add(repetition=number + 1, trace=[answered(f"{name} {number}", 1.0)])
        kept += in_chunks(stored, tmp_path / name, monkeypatch).facts["files"]
    assert all((tmp_path / unquote(address)).is_file() for address in kept)


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["", "notes.txt", "runs-0123456789abcdef.js"])
def test_a_folder_of_somebody_else_stays(stored, tmp_path, theirs):
    (tmp_path / "report.html_files" / theirs).mkdir(parents=True)
    stored.add()
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    assert (tmp_path / "report.html_files" / theirs).is_dir()


def test_a_page_that_cannot_be_written_leaves_the_old_one_its_details(stored, tmp_path, monkeypatch):
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered(f"first {number}", 1.0)])
    first = in_chunks(stored, tmp_path / "report.html", monkeypatch)
    (tmp_path / "report.html").mkdir()
    stored.rows.clear()
    with pytest.raises(UnwritableError):
        write_page(stored.report, tmp_path / "report.html", output=stored.output)
    assert all((tmp_path / unquote(address)).is_file() for address in first.facts["files"])


def test_an_unwritable_place_is_an_error_that_names_the_option(stored, tmp_path, monkeypatch):
    for number in range(12):
        stored.add(repetition=number + 1, trace=[answered("x", 1.0)])
    (tmp_path / "report.html_files").write_text("in the way")
    with pytest.raises(UnwritableError, match=r"html_files.*name another place for the page with --agentbench-html"):
        in_chunks(stored, tmp_path / "report.html", monkeypatch)


def test_no_runs_make_no_chunks(stored, tmp_path):
    placed = place_details(stored.report, tmp_path / "report.html", stored.output)
    assert (placed.facts["kind"], placed.facts["starts"], placed.blocks) == ("embedded", [], {})


def test_numbers_that_no_browser_reads_are_null(stored):
    stored.add(trace=[RunnerEvent(sequence=0, at=0, name="NaN", data={"v": 1.5})])
    place = stored.output / stored.rows[0]["artifact"]
    place.write_text(place.read_text().replace('"v":1.5', '"v":NaN,"w":-Infinity'))
    (event,) = detail(stored)["run"]["trace"]
    assert (event["name"], event["data"]) == ("NaN", {"v": None, "w": None})


@pytest.mark.slow
def test_ten_thousand_runs_are_read_and_packed_in_seconds(stored, tmp_path):
    stored.add(trace=coding_trace(ANSWER), evaluation=verdict(checks=CHECKS, judge=judged([5.0, 6.0])))
    report = {**stored.report, "runs": stored.rows * 10_000}
    begun = os.times()
    placed = place_details(report, tmp_path / "report.html", stored.output)
    ended = os.times()
    assert ended.user + ended.system - begun.user - begun.system < 20
    assert len(placed.facts["starts"]) > 20
    assert placed.facts["starts"][-1] < 10_000


# -- the command that makes a run again


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ((), ""),
        (("cases/", "-k", "smoke", "-n", "4", "--model", "gpt4o"), ""),
        (("--agentbench-profile", "standard", "-x"), "--agentbench-profile standard"),
        (("--agentbench-metric=f1>=0.5", "--agentbench-html", "page.html"), "'--agentbench-metric=f1>=0.5'"),
        (("-c", "ci.ini", "--rootdir=x y", "--agentbench-no-reuse"), "-c ci.ini '--rootdir=x y'"),
        (("--agentbench-suite",), "--agentbench-suite"),
        (("--agentbench-output", "$(rm -rf ~)"), "--agentbench-output '$(rm -rf ~)'"),
    ],
)
def test_options_that_decide_a_run_are_kept(command, kept):
    assert deciding_options(command) == kept
