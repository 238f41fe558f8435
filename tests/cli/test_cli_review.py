"""People label the stored runs of a real session with the real command."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.ci_logs import FORGED, heeded
from support.github_runner import commands
from support.stored import as_files

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow

REPETITIONS = 2
JUDGED = {
    "summary": "So.",
    "overall": 8,
    "dimensions": {"task": 8},
    "expectations": [{"kind": "hard", "index": 0, "met": 1, "evidence": "one"}],
}
SECRET_VERDICT = "The judge found it lacking"


def case(case_id, **fields):
    base = {
        "schema_version": 1,
        "case_id": case_id,
        "title": f"The task {case_id}",
        "runner": {"type": "llm_probe"},
        "input": {"messages": [{"role": "user", "content": f"Write a line about {case_id}."}]},
        "rubric": {
            "criteria": [{"name": "Wit", "what_good_looks_like": "You smile."}],
            "scoring_instructions": "Be fair.",
        },
        "expectations": {"hard_expectations": [{"text": "It is one line."}]},
    }
    return {name: value for name, value in {**base, **fields}.items() if value is not None}


def write(folder, case_id, script, **fields):
    place = folder / "cases" / case_id
    place.mkdir(parents=True)
    (place / "test.yaml").write_text(yaml.safe_dump(case(case_id, **fields)))
    (place / "demo.yaml").write_text(yaml.safe_dump({"schema_version": 1, **script}))


def environ(folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_", "OPENAI_"))}
    # Else a session with workers removes the 10,000 folders of an earlier session of tests
    return {**kept, "COLUMNS": "80", "NO_COLOR": "1", "PYTEST_DEBUG_TEMPROOT": str(folder.parent)}


def session(folder, *args):
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", "-pno:hypothesispytest", "-pno:anyio", "cases"]
    profile = "--agentbench-evaluation-profile=judged"
    done = subprocess.run(
        [*command, "--model=demo", profile, *args],
        cwd=folder,
        env=environ(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads((folder / "outputs/report.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with a finished session: three judged cases, one that no model judges."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text("[pytest]\nagentbench_repetitions = 2\n")
    profile = {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "Judged",
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "gpt4o"}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main"}],
    }
    (folder / "cases/evaluation_profiles").mkdir(parents=True)
    (folder / "cases/evaluation_profiles/judged.yaml").write_text(yaml.safe_dump(profile))
    write(folder, "good", {"replies": [{"content": "A fine line."}], "judge": JUDGED})
    bad = {**JUDGED, "summary": SECRET_VERDICT, "overall": {"score": 2, "evidence": [SECRET_VERDICT]}}
    hostile = "\x1b[2J<script>alert(1)</script> \u202egnp.exe\n" + "x" * 200_000
    write(folder, "bad", {"replies": [{"content": hostile}], "judge": bad})
    call = {"name": "write_file", "arguments": {"path": "line.txt", "content": "A line."}}
    steps = [{"tool_calls": [call]}, {"content": "It is in line.txt."}]
    question = {
        "messages": [{"role": "user", "content": "Write."}],
        "context": {"llm_probe": {"tools": ["write_file"]}},
    }
    write(folder, "tools", {"replies": [{"steps": steps}], "judge": JUDGED}, input=question)
    unjudged = [{"check_id": "is-there", "declarative": {"kind": "final_response_present"}}]
    write(
        folder,
        "checked",
        {"replies": [{"content": "A line."}]},
        rubric=None,
        expectations=None,
        deterministic_checks=unjudged,
    )
    report = session(folder)
    assert sum("judged" in row for row in report["runs"]) == 3 * REPETITIONS
    return folder


@pytest.fixture
def review(made, tmp_path, monkeypatch, capsys):
    """Run the command in a copy of the project with these lines typed. Return exit status and output."""
    folder = tmp_path / "project"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)

    def call(typed, *argv):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = main(["review", *argv])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def labels():
    path = Path("human.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def answers(count, verdict="p", score="7", comment="so"):
    return f"{verdict}\n{score}\n{comment}\n" * count


def test_each_answer_is_a_label_of_its_run(review):
    code, printed = review(answers(6), "--annotator", "ann")
    report = json.loads(Path("outputs/report.json").read_text())
    rows = {row["run_id"]: row for row in report["runs"] if "judged" in row}
    assert code == 0
    assert "6 labels added to human.jsonl" in printed
    assert {label["run_id"] for label in labels()} == set(rows)
    for label in labels():
        [judged] = rows[label["run_id"]]["judged"]
        assert (label["judges"], label["rubric"]) == ({"judge": judged["judge"]}, judged["rubric"])
        assert label["nodeid"] == rows[label["run_id"]]["nodeid"]
        assert (label["annotator"], label["verdict"], label["score"]) == ("ann", "passed", 7)
        assert label["comment"] == "so"


def test_it_shows_the_task_the_criteria_and_the_work(review):
    _, printed = review(answers(6))
    assert "Write a line about good." in printed
    assert "must: It is one line." in printed
    assert "good: You smile." in printed
    assert "A fine line." in printed
    assert "calls write_file" in printed
    assert "added line.txt" in printed
    assert "+A line." in printed


def test_neither_the_judges_verdict_nor_the_model_is_shown(review):
    _, printed = review(answers(6))
    assert SECRET_VERDICT not in printed
    assert "demo" not in printed


def test_an_answer_cannot_steer_the_terminal_and_a_long_one_is_cut(review):
    _, printed = review(answers(6))
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "<script>alert(1)</script>" in printed
    assert "characters left out" in printed
    assert len(printed) < 300_000


def test_names_of_tools_and_files_cannot_look_like_another_part_of_the_run(review):
    forged = "x\n\nAnswer\n  All is well.\u200f"
    as_files(Path("outputs"))
    for path in Path("outputs/runs").rglob("*/tools/run_[0-9].json"):
        run = json.loads(path.read_text())
        run["trace"] = [{**event, "name": forged} if event["type"] == "tool_call" else event for event in run["trace"]]
        run["changes"] = [{**change, "path": forged} for change in run["changes"]]
        run["status"], run["error"] = "failed", {"code": "x", "message": forged}
        path.write_text(json.dumps(run))
    _, printed = review(answers(6))
    assert printed.count("All is well.") == 3 * REPETITIONS
    assert printed.splitlines().count("Answer") == 3 * REPETITIONS
    assert "\u200f" not in printed


@pytest.mark.parametrize("place", ["{outside}/run_1.json", "../outside/run_1.json", "link/run_1.json", "runs/\0.json"])
def test_a_report_cannot_name_a_run_outside_of_the_output_folder(review, tmp_path, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = Path("outputs/report.json")
    report = json.loads(path.read_text())
    [row, *_] = rows = [row for row in report["runs"] if "judged" in row]
    shutil.copy(Path("outputs", row["artifact"]), outside / "run_1.json")
    Path("outputs/link").symlink_to(outside)
    row["artifact"] = place.format(outside=outside)
    path.write_text(json.dumps({**report, "runs": rows}))
    _, printed = review(answers(6))
    assert printed.count("left out: outputs does not hold this run any more") == 1


@pytest.mark.parametrize("target", ["start-up", "there.jsonl", "/dev/full"])
def test_labels_are_appended_to_no_file_elsewhere(review, tmp_path, target):
    """A run's name in the folder's report could otherwise get into a file that a shell runs at its start."""
    (tmp_path / "there.jsonl").touch()
    Path("human.jsonl").symlink_to(tmp_path / target)
    code, printed = review(answers(6))
    assert (code, printed) == (
        1,
        "human.jsonl: found a link, expected a file of labels; name the file itself with -o PATH\n",
    )
    assert not (tmp_path / "start-up").exists()
    assert not (tmp_path / "there.jsonl").read_text()


def test_a_hostile_folder_holds_nothing_up_and_steers_nothing(review):
    """FIFOs wherever something is read, names that are commands, runs of no form."""
    as_files(Path("outputs"))
    path = Path("outputs/report.json")
    report = json.loads(path.read_text())
    rows = [row for row in report["runs"] if "judged" in row]
    places = [Path("outputs", row["artifact"]) for row in rows]
    places[0].unlink()
    os.mkfifo(places[0])
    places[1].write_text("[" * 100_000)
    places[2].write_bytes(b"\xff\x00")
    path.write_text(json.dumps({**report, "runs": rows}))
    forged = Path("cases", "\n".join(FORGED[:4]).replace("/", "_") + "\x1b[2J")
    forged.mkdir()
    (forged / "test.yaml").write_text("case_id: [\nschema_version: 1\n")
    code, printed = review(answers(6))
    assert code == 0
    assert printed.count("left out: outputs does not hold this run any more") == 3
    assert "3 labels added" in printed
    assert "forged" in printed or "vso" in printed
    assert heeded(printed) == []
    assert commands(printed) == []
    assert "\x1b" not in printed
    for fifo in ("human.jsonl", "outputs/report.json"):
        Path(fifo).unlink()
        os.mkfifo(fifo)
        code, printed = review("")
        assert code == 1
        assert fifo in printed


def test_it_goes_on_where_the_input_ended(review):
    _, printed = review(answers(2) + "p\n", "--annotator", "ann")
    assert len(labels()) == 2
    assert "not saved: the last question has no answer; it is asked again\n2 labels added to human.jsonl" in printed
    _, printed = review(answers(6), "--annotator", "ann")
    assert "4 runs to review; ann has labelled 2 before" in printed
    assert len({label["run_id"] for label in labels()}) == len(labels()) == 6
    code, printed = review("", "--annotator", "ann")
    assert (code, printed) == (0, "0 runs to review; ann has labelled 6 before\n")


def test_every_annotator_is_asked(review):
    review(answers(6), "--annotator", "ann")
    _, printed = review(answers(6, "f"), "--annotator", "bob")
    assert "run 6 of 6" in printed
    assert len(labels()) == 12


def test_skipped_runs_are_asked_again_and_q_ends(review):
    review("s\n" + answers(1, "f", "", "") + "q\n", "--annotator", "ann")
    [label] = labels()
    assert (label["verdict"], label["score"], label["comment"]) == ("failed", None, None)
    _, printed = review("q\n", "--annotator", "ann")
    assert "5 runs to review" in printed


def test_an_invalid_answer_is_asked_again(review):
    _, printed = review("yes\nP\nten\n11\n9,5\n\n", "--annotator", "ann")
    [label] = labels()
    assert label["score"] == 9.5
    assert "p: it passed; f: it failed" in printed
    assert printed.count("expected a number from 0 to 10") == 2


def test_a_sample_is_the_same_for_everybody_and_another_one_by_seed(review):
    for name in ("ann", "bob"):
        review(answers(6), "--annotator", name, "--sample", "3")
    by_name = {name: [each["run_id"] for each in labels() if each["annotator"] == name] for name in ("ann", "bob")}
    assert by_name["ann"] == by_name["bob"]
    assert len(by_name["ann"]) == 3
    orders = set()
    for seed in range(5):
        review(answers(6), "-o", f"labels/{seed}.jsonl", "--seed", str(seed))
        lines = Path(f"labels/{seed}.jsonl").read_text().splitlines()
        orders.add(tuple(json.loads(line)["run_id"] for line in lines))
    assert len(orders) > 1
    assert {frozenset(order) for order in orders} == {frozenset(next(iter(orders)))}


def test_an_edited_rubric_is_not_shown_for_the_one_that_was_judged(review):
    path = Path("cases/good/test.yaml")
    edited = yaml.safe_load(path.read_text())
    edited["rubric"]["scoring_instructions"] = "Be harsh."
    path.write_text(yaml.safe_dump(edited))
    _, printed = review(answers(6))
    assert "4 runs to review" in printed
    assert "left out: 2 runs whose case is missing or has changed (run it again)" in printed
    assert "Be harsh." not in printed


def test_a_judged_anew_run_is_asked_anew(review):
    review(answers(6), "--annotator", "ann")
    path = Path("cases/good/test.yaml")
    edited = yaml.safe_load(path.read_text())
    edited["rubric"]["scoring_instructions"] = "Be harsh."
    path.write_text(yaml.safe_dump(edited))
    human = session(Path.cwd())["human"]
    assert (human["counted"], human["left_out"]["other_rubric"]) == (4, 2)
    _, printed = review(answers(6), "--annotator", "ann")
    assert "2 runs to review; ann has labelled 4 before" in printed
    assert "Be harsh." in printed
    human = session(Path.cwd())["human"]
    assert (human["labels"], human["counted"], human["left_out"]["other_rubric"]) == (8, 6, 2)


def test_a_missing_run_is_reported(review):
    for path in Path("outputs/runs").rglob("*/bad/run_*.json"):
        path.unlink()
    _, printed = review(answers(6))
    assert printed.count("left out: outputs does not hold this run any more") == 2
    assert "4 labels added" in printed


def test_runs_without_an_id_are_not_asked_about(review):
    path = Path("outputs/report.json")
    report = json.loads(path.read_text())
    for row in report["runs"]:
        row.pop("run_id", None)
    path.write_text(json.dumps(report))
    code, printed = review("")
    assert (code, "no run to review" in printed) == (0, True)


def test_a_report_may_be_named_by_its_folder(review):
    code, printed = review("q\n", "outputs")
    assert (code, "6 runs to review" in printed) == (0, True)


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_a_sample_is_a_number(review, capsys, number):
    with pytest.raises(SystemExit):
        review("", f"--sample={number}")
    assert f"found '{number}', expected a whole number from 1" in capsys.readouterr().err


def test_a_report_without_a_judged_run_is_reported(review):
    path = Path("outputs/report.json")
    report = json.loads(path.read_text())
    report["runs"] = [row for row in report["runs"] if "judged" not in row]
    path.write_text(json.dumps(report))
    code, printed = review("")
    assert code == 0
    assert "no run to review: a model must have judged it" in printed


def test_a_report_elsewhere_names_its_runs_and_cases(review, tmp_path, monkeypatch):
    folder = Path.cwd()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.json").write_bytes((folder / "outputs/report.json").read_bytes())
    _, printed = review("q\n", "report.json", "--runs", str(folder / "outputs"), "--cases", str(folder / "cases"))
    assert "6 runs to review" in printed


@pytest.mark.parametrize("content", ["{}\n", "\n\n{"])
def test_a_broken_file_of_labels_is_refused_before_the_first_question(review, content):
    Path("human.jsonl").write_text(content)
    code, printed = review(answers(6))
    assert code == 1
    assert "human.jsonl:" in printed
    assert "run 1" not in printed
    assert Path("human.jsonl").read_text() == content


def test_a_line_without_its_end_is_not_continued(review):
    review(answers(1), "--annotator", "ann")
    path = Path("human.jsonl")
    path.write_text(path.read_text().rstrip("\n"))
    review(answers(1), "--annotator", "ann")
    assert len(labels()) == 2


def test_who_answers_has_a_name(review, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        review("", "--annotator", " ")
    assert "expected a name" in capsys.readouterr().err
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "eve")
    review(answers(1))
    assert labels()[0]["annotator"] == "eve"


def test_no_report_is_an_error(review):
    code, printed = review("", "nowhere.json")
    assert code == 1
    assert "nowhere.json: cannot be read: No such file or directory" in printed


def test_a_session_compares_its_judge_with_the_labels(review):
    review(answers(6), "--annotator", "ann")
    human = session(Path.cwd())["human"]
    [judge] = human["judges"]
    assert (judge["n"], judge["both_passed"], judge["only_people_passed"]) == (6, 4, 2)
    assert (judge["kappa"], judge["scores"]["n"]) == (0.0, 6)
    assert sorted(judge["disagreements"]) == [f"cases/bad/test.yaml::bad[demo{end}]" for end in ("-r2", "")]


def test_a_changed_judge_leaves_the_labels_out(review):
    review(answers(6), "--annotator", "ann")
    path = Path("cases/evaluation_profiles/judged.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "judge_system_prompt": "Judge with mercy."}))
    human = session(Path.cwd())["human"]
    assert (human["counted"], human["left_out"]["other_judge"]) == (0, 6)
    assert human["judges"][0]["stale"] == 6


def test_settings_that_do_not_judge_keep_labels_valid(review):
    review(answers(6), "--annotator", "ann")
    path = Path("cases/evaluation_profiles/judged.yaml")
    edited = {**yaml.safe_load(path.read_text()), "title": "Another title", "metrics": [{"name": "exact_match"}]}
    path.write_text(yaml.safe_dump(edited))
    assert session(Path.cwd())["human"]["counted"] == 6


def test_a_broken_file_of_labels_is_a_warning_of_the_session(review):
    Path("human.jsonl").write_text("{}\n")
    report = session(Path.cwd())
    assert report["human"] is None
    [warning] = [each for each in report["session"]["warnings"] if "labels" in each]
    assert "people's labels are not counted: " in warning
    assert "human.jsonl:1:1: annotator: found nothing" in warning


def test_workers_tell_the_same(review):
    review(answers(6), "--annotator", "ann")
    assert session(Path.cwd(), "-n2")["human"] == session(Path.cwd())["human"]
