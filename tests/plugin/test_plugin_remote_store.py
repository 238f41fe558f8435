"""A store that machines share: a machine is an output folder of its own. Requests are counted where they arrive."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.bench import ECHO_TO_FILE, LEAN, check
from support.fault_endpoint import FaultEndpoint
from support.s3_server import SECRET, S3Server
from test_plugin_reuse import Campaign

JUDGED_ROWS = ("--model=subject", "--agentbench-metric=llm_judgement>=1")
TIMES = {"started_at", "duration_seconds", "waited_seconds", "command"}
PAID_ONCE = {"reused", "evaluation_reused", "spent_usd", "artifact"}


class Machines:
    """A campaign of several machines. `ask(machine)` runs it on one of them: how often subject and judge were asked."""

    def __init__(self, campaign: Campaign, url: str) -> None:
        self.campaign, self.bench, self.url = campaign, campaign.bench, url

    def ask(self, machine: str, *args: str, outcome: str | None = "passed") -> tuple[int, int]:
        self.args = (f"--agentbench-store={self.url}", *on(machine), *args)
        return self.campaign.asked(*self.args, outcome=outcome)

    @property
    def report(self):
        return self.campaign.finished.report


def on(machine: str) -> tuple[str, str]:
    return f"--agentbench-output={machine}", "--agentbench-json=outputs/report.json"


def essence(report, *more: str):
    """What of a report is not about time, nor about who paid."""
    left_out = TIMES | PAID_ONCE | set(more)
    if isinstance(report, dict):
        return {name: essence(value, *more) for name, value in report.items() if name not in left_out}
    return [essence(each, *more) for each in report] if isinstance(report, list) else report


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def campaign(bench):
    with FaultEndpoint() as endpoint:
        yield Campaign(bench, endpoint, "one", "two")


@pytest.fixture
def machines(campaign, folder):
    return Machines(campaign, f"file://{folder}")


@pytest.fixture
def s3(tmp_path, monkeypatch):
    with S3Server(tmp_path / "s3") as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.slow
def test_a_machine_with_nothing_pays_nothing(machines):
    assert machines.ask("first") == (2, 2)
    paid = machines.report
    assert machines.ask("second") == (0, 0)
    assert essence(machines.report) == essence(paid)
    assert machines.campaign.reused == [(True, True)] * 2
    assert machines.ask("second") == (0, 0)  # from its own folder now
    assert essence(machines.report) == essence(paid)


def results(output: Path) -> list[str]:
    """The files of runs and evaluations in an output folder."""
    files = [*output.glob("runs/**/*"), *output.glob("evaluations/**/*")]
    return sorted(path.relative_to(output).as_posix() for path in files if path.is_file())


@pytest.mark.slow
def test_prompts_of_judges_are_shared_through_the_store(machines):
    machines.ask("first")
    machines.ask("second")
    first, second = (machines.bench.path / machine for machine in ("first", "second"))
    names = results(first)
    assert any("prompt.user" in name for name in names)
    assert names == results(second)
    for name in names:
        if "prompt" in name or "fingerprint_input" in name:
            assert json.loads((second / name).read_text()) == json.loads((first / name).read_text())
        else:
            assert (second / name).read_bytes() == (first / name).read_bytes()


@pytest.mark.slow
def test_an_edited_rubric_asks_the_judge_only_and_once(machines):
    machines.ask("first")
    machines.campaign.case("two", good="Says Paris, and why")
    assert machines.ask("second") == (0, 1)
    assert machines.ask("third") == (0, 0)
    assert machines.ask("first") == (0, 0)


@pytest.mark.slow
def test_a_suite_finds_what_the_whole_session_paid(machines):
    machines.ask("first")
    suite = {
        "schema_version": 1,
        "suite_id": "smoke",
        "title": "Smoke",
        "case_selection": {"include_case_ids": ["one"]},
    }
    machines.bench.write("cases/suites/smoke.yaml", suite)
    assert machines.ask("second", "--agentbench-suite=smoke") == (0, 0)


@pytest.mark.slow
def test_earlier_results_are_uploaded_to_a_new_store(machines):
    machines.campaign.asked(*on("first"))
    assert machines.ask("first") == (0, 0)
    assert machines.ask("second") == (0, 0)


@pytest.mark.slow
def test_runs_made_anew_take_the_place_of_the_stored_ones(machines):
    machines.ask("first")
    machines.ask("second")
    assert machines.ask("first", "--agentbench-no-reuse") == (2, 2)
    assert machines.ask("third") == (0, 0)
    first, second, third = (runs(machines.bench.path / machine) for machine in ("first", "second", "third"))
    assert first == third != second


def runs(machine: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(machine.rglob("run_1.json"))]


@pytest.mark.slow
def test_a_run_that_failed_is_made_again_elsewhere_unless_the_profile_reuses_it(machines):
    machines.campaign.subject_fault = "401"
    assert machines.ask("first", outcome="error") == (2, 0)
    machines.campaign.subject_fault = "ok"
    assert machines.ask("second") == (2, 2)
    assert machines.ask("third") == (0, 0)


@pytest.mark.full
def test_a_timed_out_run_that_is_reused_by_profile_travels(machines):
    bench = machines.bench
    bench.profile("hasty", run_timeout_seconds=0.2, reuse_unsuccessful=True, policy={"max_concurrency": 2})
    machines.campaign.subject_fault = "hang"
    asked = machines.ask("first", "--agentbench-run-profile=hasty", outcome="failed")
    assert asked == (2, 0)
    assert machines.ask("second", "--agentbench-run-profile=hasty", outcome="failed") == (0, 0)
    assert {row["status"] for row in machines.report["runs"]} == {"timed_out"}


@pytest.mark.slow
def test_votes_travel(bench, folder):
    store = f"--agentbench-store=file://{folder}"
    with FaultEndpoint() as endpoint:
        votes = {"role": "assistant", "content": json.dumps({"reason": "Yes.", "correct": True})}
        endpoint.answer = lambda body: (
            votes if body["model"] == "judge" else {"role": "assistant", "content": "It is Paris."}
        )
        there = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models({"model_id": "subject", **there, "judge": "judge"}, {"model_id": "judge", **there})
        bench.questions(2)
        assert bench.run(*JUDGED_ROWS, store, *on("first")).exit == 0
        assert len(endpoint.requests) == 4
        assert len(list((folder / "judgements").rglob("*.json"))) == 2
        for file in (folder / "evaluations").rglob("*.jsonl"):
            file.unlink()
        finished = bench.run(*JUDGED_ROWS, store, *on("second"))
        assert finished.exit == 0
        assert len(endpoint.requests) == 4  # the verdicts were made again, of votes that were there
        assert finished.report["totals"]["reused"] == 2
        shutil.rmtree(folder / "judgements")
        bench.run(*JUDGED_ROWS, store, "--agentbench-metric=llm_judgement>=0.5", *on("second"))
        assert len(endpoint.requests) == 4
        assert len(list((folder / "judgements").rglob("*.json"))) == 2


WRITER = """
import pytest
from pytest_agentbench import RunOutput

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case, context):
        with open("runs.txt", "a") as file:
            file.write(case.case_id + "\\n")
        context.workspace.write_text("note.txt", "Paris")
        return "see note.txt"
    return agent
"""


@pytest.mark.slow
def test_workspaces_of_runs_are_shared_through_the_store(bench, folder):
    store = f"--agentbench-store=file://{folder}"
    bench.agent(WRITER)
    bench.case("note", deterministic_checks=[check("there", kind="file_exists", path="note.txt")])
    assert bench.run(store, *on("first")).exit == 0
    assert bench.run(store, *on("second")).exit == 0
    assert len(list((bench.path / "second").rglob("*.tar"))) == 1
    bench.case("note", deterministic_checks=[check("says", kind="file_contains", path="note.txt", text="Paris")])
    finished = bench.run(store, *on("second"))
    assert finished.exit == 0, finished.text
    assert bench.lines("runs.txt") == ["note"]


@pytest.mark.slow
def test_ini_names_the_store_and_the_command_line_another(bench, folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    bench.write("pytest.ini", f"[pytest]\nagentbench_store = file://{folder}/\n")
    bench.run(*on("first"))
    bench.run(*on("second"))
    assert len(bench.lines("runs.txt")) == 1
    bench.run(f"--agentbench-store=file://{other}", *on("third"))
    bench.run("-o", "agentbench_store=", *on("fourth"))
    assert len(bench.lines("runs.txt")) == 3
    assert len(list(other.rglob("run_1.*"))) == 1


def test_a_store_among_the_cases_is_not_collected(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    (bench.path / "cases/shared").mkdir()
    store = f"--agentbench-store=file://{bench.path}/cases/shared"
    assert bench.run(store).exit == 0
    finished = bench.run(store)
    assert (finished.exit, len(finished.runs)) == (0, 1)


# -- what is wrong


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("bucket/prefix", "found 'bucket/prefix', expected s3://BUCKET/PREFIX"),
        ("ftp://host/x", "found 'ftp://host/x'"),
        ("s3://", "found 's3://'"),
        ("file://relative/x", "expected s3://BUCKET/PREFIX, gs://"),
        ("s3://AKIAXXXX:hunter2@bucket/x", "found 's3://[redacted]@bucket/x'"),
        ("s3://bucket/x?secret=hunter2", "found 's3://bucket/x?[redacted]'"),
    ],
)
def test_a_wrong_url_is_refused_and_secrets_in_it_are_not_shown(bench, url, shown):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    finished = bench.run(f"--agentbench-store={url}")
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert shown in finished.text
    assert "hunter2" not in finished.text
    assert bench.lines("runs.txt") == []
    bench.write("pytest.ini", f"[pytest]\nagentbench_store = {url}\n")
    finished = bench.run()
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert "ini option agentbench_store: " in finished.text
    assert "hunter2" not in finished.text


def refused(bench, *args: str) -> str:
    """What a session says that ends before anything is paid."""
    finished = bench.run(*args)
    assert finished.exit == pytest.ExitCode.USAGE_ERROR, finished.text
    assert bench.lines("runs.txt") == []
    return finished.text


@pytest.fixture
def project(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    return bench


def test_a_folder_that_is_missing_is_refused(project, folder):
    said = refused(project, f"--agentbench-store=file://{folder}/nowhere")
    assert f"--agentbench-store file://{folder}/nowhere cannot be used: no such folder: {folder}/nowhere" in said


@pytest.mark.parametrize(
    ("marker", "said"),
    [("{}", "expected a store of this package"), ('{"schema_version": 9}', "found schema_version 9, expected 1")],
)
def test_a_folder_of_something_else_is_refused(project, folder, marker, said):
    (folder / "agentbench-store.json").write_text(marker)
    assert said in refused(project, f"--agentbench-store=file://{folder}")


def test_nothing_is_opened_where_nothing_runs(project, folder):
    missing = f"--agentbench-store=file://{folder}/nowhere"
    assert project.run(missing, "--collect-only").exit == 0
    assert project.run(missing, "--setup-plan").exit == 0


def test_a_missing_package_is_named_with_its_extra(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    said = refused(project, "--agentbench-store=gs://bucket/prefix")
    assert "--agentbench-store gs://bucket/prefix needs gcsfs: pip install 'pytest-agentbench[gcs]'" in said


def that_removes(folder: Path) -> str:
    """An agent that removes the store while it runs."""
    removing = f"    import shutil\n    def agent(case):\n        shutil.rmtree({str(folder)!r}, True)"
    return ECHO_TO_FILE.replace("    def agent(case):", removing)


@pytest.mark.slow
def test_results_that_cannot_be_brought_are_kept_and_brought_later(project, folder):
    store = f"--agentbench-store=file://{folder}"
    project.agent(that_removes(folder))
    finished = project.run(store, *on("first"))
    said = f"2 results are not in the store file://{folder}: {folder} was removed or replaced"
    assert finished.exit == 1
    assert f"warning: {said}" in finished.text
    assert any(warning.startswith(said) for warning in finished.report["session"]["warnings"])
    assert finished.report["totals"]["passed"] == 1
    assert finished.report["session"]["gate"]["passed"] is None
    assert (project.path / "first").is_dir()
    folder.mkdir()
    assert project.run(store, *on("first")).exit == 0
    assert project.run(store, *on("second")).exit == 0
    assert len(project.lines("runs.txt")) == 1


@pytest.mark.slow
def test_results_that_workers_cannot_bring_fail_the_session(project, folder):
    waiting = "        while len(open('runs.txt').readlines()) < 21: time.sleep(0.001)"
    removing = f"        shutil.rmtree({str(folder)!r}, True)\n"
    project.agent(
        "import shutil, time\n" + ECHO_TO_FILE.replace("        return", f"{waiting}\n{removing}        return")
    )
    project.questions(20)
    finished = project.run(f"--agentbench-store=file://{folder}", "-n", "2", "--agentbench-concurrency=42")
    assert finished.exit == 1
    assert finished.report["totals"]["passed"] == 21
    said = [text for text in finished.report["session"]["warnings"] if f"not in the store file://{folder}" in text]
    assert sum(int(text.split()[0]) for text in said) == 42
    assert finished.report["session"]["exit_status"] == 1


def test_results_that_cannot_be_brought_fail_the_gate(project, folder):
    project.agent(that_removes(folder))
    finished = project.run(f"--agentbench-store=file://{folder}", "--agentbench-fail-under=0.5")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["passed"] is False


# -- a real S3 server


@pytest.mark.slow
def test_s3_gives_a_machine_with_nothing_an_equal_report(campaign, s3):
    machines = Machines(campaign, s3.url("team/bench"))
    assert machines.ask("first") == (2, 2)
    paid = machines.report
    assert machines.ask("second") == (0, 0)
    assert essence(machines.report) == essence(paid)
    kinds = {name.split("/")[0] for name in s3.names("team/bench")}
    assert kinds == {"agentbench-store.json", "runs", "evaluations"}
    assert machines.campaign.asked(*on("third")) == (2, 2)


@pytest.mark.slow
def test_s3_serves_the_workers_of_a_machine_with_nothing(bench, s3):
    store = f"--agentbench-store={s3.url('bench')}"
    with FaultEndpoint() as endpoint:
        endpoint.answer = lambda body: {"role": "assistant", "content": "Paris"}
        bench.models({"model_id": "subject", "base_url": endpoint.base_url, "api_key_env": "none"})
        bench.questions(60)
        args = ("-n", "2", "--model=subject", "--agentbench-concurrency=8", store)
        paid = bench.run(*args, *on("first"))
        assert (paid.exit, len(endpoint.requests)) == (0, 60)
        again = bench.run(*args, *on("second"))
        assert (again.exit, len(endpoint.requests)) == (0, 60)
        assert essence(again.report) == essence(paid.report)
        assert bench.run(*args[2:], *on("third")).report["totals"]["reused"] == 60
        assert len(endpoint.requests) == 60


WITH_S3 = "--agentbench-store=s3://bench/prefix"


@pytest.mark.slow
def test_s3_without_its_bucket_is_refused(project, s3):
    said = refused(project, "--agentbench-store=s3://nobody-made-it/prefix")
    assert "s3://nobody-made-it/prefix cannot be used: The specified bucket does not exist; make the bucket" in said


@pytest.mark.slow
def test_s3_without_its_bucket_is_refused_by_workers_too(project, s3):
    finished = project.run("--agentbench-store=s3://nobody-made-it/prefix", "-n", "2")
    assert finished.exit == pytest.ExitCode.INTERRUPTED
    assert "The specified bucket does not exist; make the bucket" in finished.text
    assert project.lines("runs.txt") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "ANOTHERKEYOFTESTS"},
            "the credentials must allow to read, write and list its objects",
        ),
        (
            {"AWS_SECRET_ACCESS_KEY": "hunter2-hunter2"},
            "the credentials must allow to read, write and list its objects",
        ),
        (
            {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
            "Unable to locate credentials; set AWS_ACCESS_KEY_ID",
        ),
    ],
)
def test_s3_without_permission_is_refused(project, s3, monkeypatch, tmp_path, environ, said):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environ.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    text = refused(project, WITH_S3)
    assert said in text
    assert "hunter2" not in text
    assert SECRET not in text


@pytest.mark.slow
def test_an_endpoint_that_is_not_there_is_refused(project, s3, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3.stop()
    said = "s3://bench/prefix cannot be used: EndpointConnectionError: Could not connect to the endpoint URL"
    assert said in refused(project, WITH_S3)


STOPPING = """
import os, signal
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(case.case_id + "\\n")
        if case.case_id == "two":
            os.kill({pid}, signal.SIGKILL)
        return "Paris"
    return agent
"""


@pytest.mark.slow
def test_a_server_that_goes_away_stops_the_session_before_more_is_paid(bench, s3, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    bench.agent(STOPPING.format(pid=s3.pid))
    for name in ("one", "two", "xray", "yankee"):
        bench.case(name)
    finished = bench.run(WITH_S3, "--agentbench-concurrency=1", *on("first"))
    assert finished.exit == 1
    assert bench.lines("runs.txt") == ["one", "two"]
    assert finished.outcomes == {
        "one[agent]": "passed",
        "two[agent]": "passed",
        "xray[agent]": "error",
        "yankee[agent]": "skipped",
    }
    problem = "--agentbench-store s3://bench/prefix cannot be searched for paid runs: EndpointConnectionError"
    assert problem in finished.runs["xray[agent]"]["message"]
    assert problem in finished.runs["yankee[agent]"]["message"]
    assert any("not in the store s3://bench/prefix" in text for text in finished.report["session"]["warnings"])
    assert SECRET not in finished.text + json.dumps(finished.report)
    s3.stop()
    s3.start()
    assert bench.run(WITH_S3, *on("first")).exit == 0
    assert bench.run(WITH_S3, *on("second")).exit == 0
    assert sorted(bench.lines("runs.txt")) == ["one", "two", "xray", "yankee"]


@pytest.mark.slow
def test_four_machines_at_once_share_without_harm(bench, s3):
    with FaultEndpoint() as endpoint:
        endpoint.answer = lambda body: {"role": "assistant", "content": "Paris"}
        bench.models({"model_id": "subject", "base_url": endpoint.base_url, "api_key_env": "none"})
        bench.questions(40)
        args = [sys.executable, "-m", "pytest", "-q", *LEAN, "--model=subject", "--agentbench-concurrency=4", WITH_S3]
        running = [
            subprocess.Popen(
                [*args, f"--agentbench-output=machine{n}"], cwd=bench.path, stdout=subprocess.PIPE, text=True
            )
            for n in range(4)
        ]
        said = [process.communicate(timeout=120)[0] for process in running]
        assert [process.returncode for process in running] == [0] * 4, said
        paid = len(endpoint.requests)
        assert 40 <= paid <= 160
        last = bench.run("--model=subject", WITH_S3, *on("last"))
        assert (last.exit, len(endpoint.requests)) == (0, paid)
        assert last.report["totals"]["reused"] == 40
    assert len([name for name in s3.names("prefix") if name.startswith("runs/")]) == 40
