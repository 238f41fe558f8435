"""Sessions on a store that is damaged, full, read-only, newer, or full of odd names: right results or a clear error."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from support.bench import ECHO_TO_FILE, HEAD
from support.fault_endpoint import FaultEndpoint
from support.small_disk import small_disk
from support.stored import Stored, as_files, find_stored

from pytest_agentbench.cli import main

BIG = HEAD + "\ndef agent(case):\n    note('runs.txt', case.case_id)\n    return 'Paris ' + 'x' * 60_000\n"
CONTAINED = "--agentbench-metric=contains_answer"


@pytest.fixture
def project(bench):
    bench.agent(ECHO_TO_FILE)
    return bench


@pytest.fixture
def disk(bench):
    """A file system of 1 MB at `outputs`."""
    with small_disk(bench.path / "outputs") as remount:
        yield remount


def runs(project, *args: str) -> list[str]:
    """The cases that a session has run."""
    before = len(project.lines("runs.txt"))
    project.finished = project.run(*args)
    return project.lines("runs.txt")[before:]


def output(project) -> Path:
    return project.path / "outputs"


def artifacts(project, name: str = "run_1.json") -> list[Stored]:
    return find_stored(output(project), name)


# -- damage


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "emptied", "foreign"])
@pytest.mark.parametrize("name", ["run_1.json", "final_result_1.json"])
def test_a_damaged_document_costs_what_it_held_and_no_more(project, as_stored, damage, name):
    for case_id in ("one", "two"):
        project.case(case_id)
    runs(project)
    [path] = artifacts(project, f"one/{name}")
    whole = path.read_bytes()
    damaged = {"cut": whole[:-20], "emptied": b"", "foreign": b'{"case_id": "one"}'}[damage]
    path.write_bytes(damaged)
    as_stored(output(project))
    check_what_damage_costs(project, path)
    assert path.with_name(f"{name}.unreadable").read_bytes() == damaged


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run_1.json", "final_result_1.json"])
def test_a_folder_in_the_place_of_a_file_costs_what_it_held_and_no_more(project, name):
    for case_id in ("one", "two"):
        project.case(case_id)
    runs(project)
    [path] = artifacts(project, f"one/{name}")
    as_files(output(project))
    path.file.unlink()
    path.file.mkdir()
    check_what_damage_costs(project, path)
    assert path.with_name(f"{name}.unreadable").file.is_dir()


def check_what_damage_costs(project, path):
    assert runs(project) == (["one"] if path.name == "run_1.json" else [])
    assert project.finished.outcomes == {"one[agent]": "passed", "two[agent]": "passed"}
    [warning] = project.finished.report["session"]["warnings"]
    assert warning.startswith(f"{path}: could not be read")
    assert warning.partition(": ")[2] in project.finished.text
    assert runs(project) == []
    assert project.finished.report["session"]["warnings"] == []


@pytest.mark.slow
def test_files_that_show_what_is_stored_may_be_changed_and_removed(project):
    for case_id in ("one", "two"):
        project.case(case_id)
    runs(project)
    shown = [each.file for name in ("run_1.json", "final_result_1.json") for each in artifacts(project, name)]
    content = [path.read_bytes() for path in shown]
    shown[0].write_bytes(b"")
    shown[1].write_bytes(content[1].replace(b"Paris", b"Rome!"))
    shown[2].unlink()
    shown[3].write_bytes(content[3].replace(b'"passed"', b'"failed"'))
    assert runs(project) == []
    assert project.finished.outcomes == {"one[agent]": "passed", "two[agent]": "passed"}
    assert project.finished.report["session"]["warnings"] == []
    assert [path.read_bytes() for path in shown] == content  # as they are shown anew


@pytest.mark.slow
def test_a_damaged_page_costs_the_runs_on_it_only(project):
    names = [f"case-{number}" for number in range(40)]
    for name in names:
        project.case(name)
    assert len(runs(project)) == 40
    for view in ("runs", "evaluations"):
        shutil.rmtree(output(project) / view)
    with contextlib.closing(sqlite3.connect(output(project) / "store.sqlite")) as database:
        leaves = database.execute("SELECT pageno FROM dbstat WHERE name = 'documents' AND pagetype = 'leaf'").fetchall()
    with (output(project) / "store.sqlite").open("r+b") as file:
        file.seek((leaves[len(leaves) // 2][0] - 1) * 8192)
        file.write(b"\xff" * 8192)
    lost = runs(project)
    assert 0 < len(lost) < 10
    assert set(project.finished.outcomes.values()) == {"passed"}
    [warning] = project.finished.report["session"]["warnings"]
    assert f"agentbench store repair --output {output(project)}" in warning
    assert runs(project) == []
    main(["store", "repair", "--output", str(output(project))])
    assert runs(project) == []
    assert set(project.finished.outcomes.values()) == {"passed"}
    assert project.finished.report["session"]["warnings"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["header", "journal"])
def test_a_database_that_cannot_be_opened_is_one_line(project, kind):
    project.case("one")
    runs(project)
    database = output(project) / "store.sqlite"
    if kind == "header":
        database.write_bytes(bytes(8192) + database.read_bytes()[8192:])
    else:
        (output(project) / "store.sqlite-journal").touch()
    done = project.spawn()
    expected = "agentbench store repair --output" if kind == "header" else "found a rollback journal"
    # pytest's short summary has it once more where lines are not cut, as in CI
    assert done.text.partition("short test summary info")[0].count(expected) == 1
    assert "Traceback" not in done.text


@pytest.mark.slow
def test_workers_tell_of_damage_too(project, as_stored):
    for case_id in ("one", "two"):
        project.case(case_id)
    runs(project)
    for path in artifacts(project):
        path.write_bytes(b"")
    as_stored(output(project))
    project.finished = project.spawn("-n", "2")
    assert project.finished.outcomes == {"one[agent]": "passed", "two[agent]": "passed"}
    assert len(project.finished.report["session"]["warnings"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run_1.json", "final_result_1.json"])
@pytest.mark.parametrize("option", ["--agentbench-concurrency=2", "--agentbench-no-reuse"])
def test_a_run_of_a_newer_version_is_an_error_without_a_request(project, as_stored, name, option):
    for case_id in ("one", "two"):
        project.case(case_id)
    runs(project)
    [path] = artifacts(project, f"one/{name}")
    path.write_text(json.dumps(path.json() | {"schema_version": 3}))
    newer = path.read_bytes()
    as_stored(output(project))
    made = runs(project, option)
    assert "one" not in made
    assert project.finished.outcomes == {"one[agent]": "error", "two[agent]": "passed"}
    message = project.finished.runs["one[agent]"]["message"]
    assert f"{path}: found schema_version 3, expected at most 2" in message
    assert "--agentbench-output" in message
    assert path.read_bytes() == newer
    assert not artifacts(project, "*.unreadable")


# -- disks


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
def test_a_full_disk_ends_the_session_and_costs_what_was_in_flight(bench, disk, size):
    bench.agent(BIG)
    bench.questions(60)
    made = runs(bench, CONTAINED, f"--agentbench-concurrency={size}", "--agentbench-json=report.json")
    report = json.loads((bench.path / "report.json").read_text())
    outcomes = [row["outcome"] for row in report["runs"]]
    stored = [path for path in artifacts(bench) if len(path.read_bytes()) > 60_000]
    assert bench.finished.exit == 1
    assert "passed" in outcomes
    assert "skipped" in outcomes
    assert 1 <= outcomes.count("error") <= size
    assert len(made) <= len(stored) + size  # in flight when the disk was full
    [error] = {row["message"] for row in report["runs"] if row["outcome"] == "error"}
    assert "cannot write to" in error
    assert "No space left on device" in error
    assert "not run: cannot write to" in next(row["message"] for row in report["runs"] if row["outcome"] == "skipped")
    assert any("No space left on device" in text for text in report["session"]["warnings"])
    assert not [*output(bench).rglob(".*.tmp")]
    disk("size=20m")
    again = runs(bench, CONTAINED)
    assert set(bench.finished.outcomes.values()) == {"passed"}
    assert len(again) == 60 - len(stored)
    assert runs(bench, CONTAINED) == []


@pytest.mark.slow
def test_a_full_disk_ends_all_workers(bench, disk):
    bench.agent(BIG)
    bench.questions(60)
    finished = bench.spawn(CONTAINED, "-n", "2", "--agentbench-concurrency=2", "--agentbench-json=report.json")
    report = json.loads((bench.path / "report.json").read_text())
    outcomes = [row["outcome"] for row in report["runs"]]
    assert finished.exit == 1
    assert len(outcomes) == 60
    assert outcomes.count("skipped") > 20
    assert 1 <= outcomes.count("error") <= 4


def test_a_disk_that_is_full_already_is_said_before_anything_is_paid(bench, disk):
    bench.agent(BIG)
    bench.case("one")
    (bench.path / "outputs/ballast").write_bytes(bytes(2**20))
    assert runs(bench, "--agentbench-json=report.json") == []
    [row] = json.loads((bench.path / "report.json").read_text())["runs"]
    assert row["outcome"] == "error"
    assert "No space left on device" in row["message"]


@pytest.mark.slow
def test_results_of_a_read_only_store_are_reused(bench, disk):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    runs(bench)
    before = sorted(path for path in (bench.path / "outputs").rglob("*"))
    disk("ro")
    assert runs(bench, "--agentbench-json=report.json") == []
    assert bench.finished.exit == 0
    bench.case("two")
    assert runs(bench, "--agentbench-json=report.json") == []
    rows = json.loads((bench.path / "report.json").read_text())["runs"]
    assert [row["outcome"] for row in rows] == ["passed", "error"]
    assert "Read-only file system" in rows[1]["message"]
    assert runs(bench, "--agentbench-json=report.json", "--agentbench-rejudge") == []
    rows = json.loads((bench.path / "report.json").read_text())["runs"]
    assert [row["outcome"] for row in rows] == ["error", "error"]
    assert sorted(path for path in (bench.path / "outputs").rglob("*")) == before


def test_an_empty_read_only_store_is_a_clear_error(bench, disk):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    disk("ro")
    assert runs(bench, "--agentbench-json=report.json") == []
    [row] = json.loads((bench.path / "report.json").read_text())["runs"]
    assert row["outcome"] == "error"
    assert "Read-only file system" in row["message"]
    assert "Traceback" not in bench.finished.text


# -- clocks and names


@pytest.mark.slow
def test_a_clock_that_was_set_back_changes_nothing(project, as_stored):
    project.case("one")
    runs(project)
    [run] = artifacts(project)
    run.write_bytes(run.read_bytes().replace(b'"started_at":"20', b'"started_at":"21'))
    with contextlib.closing(sqlite3.connect(output(project) / "store.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE documents SET modified = ?", (2**32 * 10**9,))  # in 2106
    as_stored(output(project))
    for path in output(project).rglob("*"):
        os.utime(path, (2**32, 2**32))
    assert runs(project) == []
    assert runs(project, "--agentbench-no-reuse") == ["one"]
    assert runs(project) == []


LONG = "x" * 250
ODD = [
    "a",
    "A",
    "á",
    "a\u0301",
    "a.",
    "..",
    "../../a",
    "a/b",
    "a\\b",
    "con",
    LONG,
    "名前",
    "-rf",
    "a b",
    "A/",
    "~",
    "$HOME",
]


@pytest.mark.slow
def test_rows_with_odd_names_are_distinguished(project):
    project.rows("cases/odd.jsonl", *({"id": name, "question": f"What is {name}?", "answer": "Paris"} for name in ODD))
    assert len(runs(project)) == len(ODD), project.finished.text
    places = [row["artifact"] for row in project.finished.runs.values()]
    assert len({place.casefold() for place in places}) == len(ODD)
    assert all((project.path / "outputs" / place).is_file() for place in places)
    assert {path.name for path in project.path.iterdir()} >= {"cases", "outputs", "runs.txt"}
    assert not list(project.path.parent.glob("run_1*"))
    assert runs(project) == []
    assert [row["artifact"] for row in project.finished.runs.values()] == places


@pytest.mark.parametrize(
    "names", [("openai/GPT-4o", "openai/gpt-4o"), ("../../up", "..", "."), ("m" * 300, "Ünï code")]
)
def test_models_with_odd_names_are_distinguished(bench, names):
    bench.case("one")
    with FaultEndpoint(answer=lambda body: {"role": "assistant", "content": "Paris"}) as endpoint:
        bench.models(*({"model_id": n, "base_url": endpoint.base_url, "api_key_env": "none"} for n in names))
        models = [f"--model={name}" for name in names]
        finished = bench.run(*models)
        assert set(finished.outcomes.values()) == {"passed"}, finished.text
        assert len(endpoint.requests) == len(names)
        assert all(row["reused"] for row in bench.run(*models).runs.values())
        assert len(endpoint.requests) == len(names)
    folders = {path.folder.rpartition("/")[0] for path in artifacts(bench)}
    assert len({folder.casefold() for folder in folders}) == len(names)
    assert len({folder.rpartition("/")[0] for folder in folders}) == 1
