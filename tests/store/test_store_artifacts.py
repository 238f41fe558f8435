from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.stored import Stored, as_files, find_stored, list_stored

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.errors import AgentbenchError, InfrastructureError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.evaluation import (
    CheckResult,
    Evaluation,
    JudgeIteration,
    JudgeResult,
    JudgeVerdict,
    Scored,
)
from pytest_agentbench.records.run import FinalOutputEvent, MessageEvent, RunArtifact, RunError, ToolCallEvent
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.artifacts import ModelStore, Store
from pytest_agentbench.store.documents import load_evaluation, load_run

SECRET = "hunter2-hunter2"
RUN_INPUT = {"messages": ["hello"], "temperature": 0.0}


def artifact(text: str = "4", *, key: str = "a" * 64, case_id: str = "sum", **fields) -> RunArtifact:
    trace = (
        MessageEvent(sequence=0, at=0.0, role="user", content="2 + 2?"),
        FinalOutputEvent(sequence=1, at=0.1, content=text),
    )
    given = {
        "run_id": "r1",
        "case_id": case_id,
        "runner_type": "llm_probe",
        "model": {"model_id": "gpt"},
        "repetition": 1,
        "fingerprint": key,
        "status": "success",
        "started_at": datetime(2026, 1, 1, tzinfo=UTC),
        "duration_seconds": 0.1,
        "trace": trace,
    }
    return RunArtifact(**(given | fields))


def evaluation(*, judged: bool = False, outcome: str = "passed", **fields) -> Evaluation:
    score = Scored(score=7.0, evidence=("fine",))
    names = ("task", "process", "autonomy", "closeness", "efficiency", "spark")
    iteration = JudgeIteration(
        judge_run_id="main",
        judge_id="j",
        model="m",
        repetition=1,
        status="success",
        verdict=JudgeVerdict(summary="Right.", dimensions=dict.fromkeys(names, score), overall=score),
    )
    result = JudgeResult(
        method="median",
        pass_threshold=0.5,
        overall=7.0,
        dimensions=dict.fromkeys(names, 7.0),
        passed=True,
        summary="Right.",
        sampled=1,
        iterations=(iteration,),
    )
    return Evaluation(case_id="sum", outcome=outcome, judge=result if judged else None, **fields)


def make_model_store(
    output: Path, *, suite: str | None = None, model: str = "gpt", redact: bool = True, **settings
) -> ModelStore:
    run_profile = RunProfile(schema_version=1, run_profile_id="p", title="P", runner_defaults=settings)
    policy = {"redact_secrets": redact}
    evaluation_profile = EvaluationProfile(
        schema_version=1, evaluation_profile_id="strict", title="E", security_policy=policy
    )
    return Store(output, Redactor({"MY_API_KEY": SECRET})).of_model(suite, run_profile, evaluation_profile, model)


@pytest.fixture
def model_store(tmp_path: Path) -> ModelStore:
    return make_model_store(tmp_path)


def newer(case_id: str) -> bytes:
    return json.dumps({"schema_version": 99, "case_id": case_id}).encode()


def test_concurrent_stores_share_one_transaction(model_store):
    async def store_both():
        first, second = (asyncio.create_task(model_store.store_run(artifact(case_id=name), RUN_INPUT)) for name in "ab")
        await asyncio.sleep(0)
        assert model_store.documents.modified(f"{model_store.runs}/a/run_1.json") is None  # it waits for the other
        return await first, await second

    assert asyncio.run(store_both()) == (f"{model_store.runs}/a/run_1.json", f"{model_store.runs}/b/run_1.json")
    assert {model_store.find_run(name, 1, "a" * 64)[0].case_id for name in "ab"} == {"a", "b"}


@pytest.mark.parametrize("turn", [os.fspath, as_files], ids=["database", "files"])
def test_a_runs_files_stay_until_the_run_in_its_place_is_stored(model_store, tmp_path, turn):
    first, second = (
        model_store.write_workspace("sum", 1, name, lambda file: file.write(b"tar")) for name in ("r1", "r2")
    )
    path = model_store.write_run(artifact(workspace=first), RUN_INPUT)
    turn(tmp_path)
    again = artifact(run_id="r2", workspace=second)
    with pytest.raises(RuntimeError), model_store.documents.writing():  # noqa: PT012
        model_store.write_run(again, RUN_INPUT)
        raise RuntimeError
    assert (tmp_path / first).exists()
    if hasattr(os, "fork") and turn is os.fspath:  # a session that is killed before the step ends
        if not (child := os.fork()):
            with model_store.documents.writing():
                model_store.write_run(again, RUN_INPUT)
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert load_run(tmp_path, path).workspace == first
        assert (tmp_path / first).exists()
    model_store.write_run(again, RUN_INPUT)
    assert load_run(tmp_path, path).workspace == second
    assert [(tmp_path / each).exists() for each in (first, second)] == [False, True]


def test_a_failed_store_does_not_affect_concurrent_ones(model_store, tmp_path):
    model_store.documents.put(f"{model_store.runs}/b/run_1.json", newer("b"))

    async def store_three():
        runs = (model_store.store_run(artifact(case_id=name), RUN_INPUT) for name in "abc")
        return await asyncio.gather(*runs, return_exceptions=True)

    first, second, third = asyncio.run(store_three())
    assert isinstance(second, InfrastructureError)
    assert [load_run(tmp_path, path).case_id for path in (first, third)] == ["a", "c"]


def test_a_run_is_stored_although_its_task_is_cancelled(model_store):
    async def cancel_both():
        tasks = [asyncio.create_task(model_store.store_run(artifact(case_id=name), RUN_INPUT)) for name in "ab"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(cancel_both())
    assert isinstance(first, asyncio.CancelledError)
    assert second == f"{model_store.runs}/b/run_1.json"
    assert model_store.find_run("a", 1, "a" * 64) is not None


def test_a_run_loads_back_as_it_was(model_store, tmp_path):
    run = artifact("Ünïcode 🎉 \x00 \u2028")
    assert load_run(tmp_path, model_store.write_run(run, RUN_INPUT)) == run


def test_an_evaluation_loads_back_as_it_was(model_store, tmp_path):
    done = evaluation(judged=True, final_score=7.0, reasons=("because",))
    assert load_evaluation(tmp_path, model_store.write_evaluation(2, done)) == done


def test_where_things_lie(tmp_path):
    model_store = make_model_store(tmp_path, suite="smoke", model="openai/GPT-4o")
    run = model_store.write_run(artifact(), RUN_INPUT)
    result = model_store.write_evaluation(1, evaluation(judged=True), [{"role": "system", "content": "Judge."}])
    profile = run.split("/")[2]
    model = slug("openai/GPT-4o")
    assert run == f"runs/suit_smoke/{profile}/{model}/sum/run_1.json"
    folder = f"evaluations/suit_smoke/evaluation_{profile.removeprefix('run_')}"
    assert result.startswith(f"{folder}/eval_profile_strict_")
    assert result.endswith(f"/{model}/sum/final_result_1.json")
    assert {Path(name).name for name in list_stored(tmp_path)} == {
        ".fingerprint.json",
        "final_result_1.json",
        "judge_1.json",
        "judge_1.prompt.user.json",
        "run_1.fingerprint_input.json",
        "run_1.json",
        "summary_1.md",
    }


def test_default_is_the_suite_where_none_is_named(model_store):
    assert model_store.write_run(artifact(), RUN_INPUT).startswith("runs/suit_default/run_profile_")


def test_nothing_is_made_before_something_is_written(tmp_path):
    make_model_store(tmp_path / "outputs")
    assert not (tmp_path / "outputs").exists()


def test_the_fingerprint_input_is_stored_and_hashes_to_the_fingerprint(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact(key=fingerprint(RUN_INPUT)), RUN_INPUT))
    beside = path.with_name("run_1.fingerprint_input.json").read_bytes()
    assert fingerprint(beside) == path.run().fingerprint


def test_where_results_are_files_a_run_whose_input_cannot_be_stored_is_none(model_store, tmp_path):
    model_store.documents._as_files = True
    folder = tmp_path / Path(model_store.write_run(artifact(case_id="other"), RUN_INPUT)).parent.parent / "sum"
    (folder / "run_1.fingerprint_input.json").mkdir(parents=True)
    with pytest.raises(InfrastructureError, match="cannot write to"):
        model_store.write_run(artifact(), RUN_INPUT)
    assert model_store.find_run("sum", 1, "a" * 64) is None


def test_settings_of_runs_separate_profiles(tmp_path):
    paths = {make_model_store(tmp_path, temperature=t).write_run(artifact(), RUN_INPUT) for t in (0, 0.0, 1)}
    assert len(paths) == 2


def test_profiles_whose_fingerprints_begin_alike_have_folders_of_their_own(model_store, tmp_path):
    profile = model_store.write_run(artifact(), RUN_INPUT).split("/")[2]
    described = Stored(tmp_path, f"runs/suit_default/{profile}/.fingerprint.json")
    described.write_text(json.dumps({"fingerprint": "0" * 64, "input": {}}))
    again = make_model_store(tmp_path).write_run(artifact(), RUN_INPUT)
    assert again.split("/")[2].startswith(profile)
    assert len(again.split("/")[2]) == len(profile) + 2
    assert make_model_store(tmp_path).write_run(artifact(), RUN_INPUT) == again


def test_a_run_of_another_fingerprint_moves_aside(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact("old", key="a" * 64), RUN_INPUT))
    model_store.write_run(artifact("new", key="b" * 64), {"messages": ["other"]})
    assert path.run().final_output == "new"
    assert path.with_name("run_1.aaaaaaaa.json").run().final_output == "old"
    assert path.with_name("run_1.aaaaaaaa.fingerprint_input.json").json()["messages"] == ["hello"]
    assert path.with_name("run_1.fingerprint_input.json").json()["messages"] == ["other"]


def test_a_run_of_the_same_fingerprint_is_replaced(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact("old"), RUN_INPUT))
    model_store.write_run(artifact("new"), RUN_INPUT)
    assert path.run().final_output == "new"
    assert len(path.beside()) == 2


def test_a_broken_run_is_replaced(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact("old"), RUN_INPUT))
    path.write_text("{")
    model_store.write_run(artifact("new"), RUN_INPUT)
    assert path.run().final_output == "new"


def test_repetitions_lie_side_by_side(model_store, tmp_path):
    first = Stored(tmp_path, model_store.write_run(artifact(), RUN_INPUT))
    second = Stored(tmp_path, model_store.write_run(artifact(repetition=2), RUN_INPUT))
    assert (first.name, second.name) == ("run_1.json", "run_2.json")
    assert first.folder == second.folder


def test_nothing_of_an_earlier_evaluation_stays(model_store, tmp_path):
    path = Stored(
        tmp_path, model_store.write_evaluation(1, evaluation(judged=True), [{"role": "user", "content": "Judge."}])
    )
    model_store.write_evaluation(1, evaluation())
    assert path.beside() == ["final_result_1.json"]


def test_a_judging_that_failed_takes_no_verdict_away(model_store, tmp_path):
    """It is kept beside the failure, with what its judges said, and found again under its fingerprint."""
    good = evaluation(judged=True, final_score=7.0, fingerprint="c" * 64)
    model_store.write_evaluation(1, good)
    failed = evaluation(outcome="error", fingerprint="c" * 64)
    path = Stored(tmp_path, model_store.write_evaluation(1, failed))
    assert path.evaluation().outcome == "error"
    aside = ["final_result_1.cccccccc.json", "judge_1.cccccccc.json", "summary_1.cccccccc.md"]
    assert [name for name in path.beside() if ".cccccccc." in name] == aside
    assert path.with_name(aside[0]).evaluation() == good
    model_store.write_evaluation(1, failed)
    assert path.with_name(aside[0]).evaluation() == good


def test_a_failure_of_another_verdict_makes_way_without_a_trace(model_store, tmp_path):
    model_store.write_evaluation(1, evaluation(outcome="error", fingerprint="c" * 64))
    path = Stored(tmp_path, model_store.write_evaluation(1, evaluation(judged=True, fingerprint="d" * 64)))
    assert not [name for name in path.beside() if ".cccccccc." in name]
    replaced = evaluation(judged=True, final_score=3.0, fingerprint="d" * 64)
    model_store.write_evaluation(1, replaced)
    assert path.evaluation() == replaced
    assert not [name for name in path.beside() if ".dddddddd." in name]


@pytest.mark.parametrize(("status", "kept"), [("provider_error", True), ("failed", False)])
def test_an_outage_takes_no_run_that_succeeded(model_store, tmp_path, status, kept):
    """A second try of the same fingerprint replaces the first, unless it is an outage after a success."""
    model_store.write_run(artifact("paid"), RUN_INPUT)
    error = RunError(code="x", message="down")
    path = Stored(tmp_path, model_store.write_run(artifact("none", status=status, error=error), RUN_INPUT))
    assert path.run().status == status
    assert (model_store.find_run("sum", 1, "a" * 64, lambda run: run.status == "success") is not None) == kept
    assert path.with_name("run_1.aaaaaaaa.json").exists() == kept


def test_the_summary_tells_why(model_store, tmp_path):
    check = CheckResult(check_id="said", kind="regex_match", outcome="failed", message="no 4\nin it")
    done = evaluation(judged=True, outcome="failed", checks=(check,), reasons=("check said: no 4",))
    text = Stored(tmp_path, model_store.write_evaluation(3, done)).with_name("summary_3.md").read_text()
    for expected in ("repetition 3: failed", "- check said: no 4", "`said`: no 4 in it", "| task | 7 |", "> Right."):
        assert expected in text


def test_secrets_are_not_written_anywhere(model_store, tmp_path):
    call = ToolCallEvent(sequence=0, at=0.0, call_id="1", name="exec_shell", arguments={SECRET: [SECRET]}, raw=None)
    path = Stored(
        tmp_path, model_store.write_run(artifact(trace=(call,), metadata={"x": SECRET}), {"messages": [SECRET]})
    )
    done = evaluation(judged=True, outcome="failed", reasons=(f"got {SECRET}",))
    model_store.write_evaluation(1, done, [{"role": "user", "content": SECRET}])
    assert path.run().metadata == {"x": "[redacted]"}
    assert not [path for path in find_stored(tmp_path, "*") if SECRET in path.read_text()]
    assert not [file for file in tmp_path.iterdir() if file.is_file() and SECRET.encode() in file.read_bytes()]


def test_secrets_stay_where_the_policy_says_so(tmp_path):
    run = artifact(SECRET)
    assert load_run(tmp_path, make_model_store(tmp_path, redact=False).write_run(run, RUN_INPUT)) == run


@pytest.mark.parametrize("content", ["half \ud800 a pair", float("nan"), {"when": datetime.now(UTC)}, object(), {1: 2}])
def test_any_returned_value_can_be_stored_and_loaded(model_store, tmp_path, content):
    run = artifact(content if isinstance(content, str) else "4", metadata={"returned": content})
    path = Stored(tmp_path, model_store.write_run(run, RUN_INPUT))
    assert path.run().case_id == "sum"
    model_store.write_evaluation(1, evaluation(outcome="failed", reasons=(str(content),)))


@pytest.mark.parametrize(
    "case_id",
    ["..", ".", "", "a/b", "a\\b", "A", "ä", "con:1", "x" * 300, "trailing.", "\ud800", "a\x00b", "-rf", "a b"],
)
def test_no_case_id_leads_out_of_its_folder(model_store, tmp_path, case_id):
    path = Stored(tmp_path, model_store.write_run(artifact(case_id=case_id), RUN_INPUT))
    assert path.exists()
    as_files(tmp_path)
    assert path.file.is_file()
    assert path.file.resolve().parent.parent == (tmp_path / model_store.runs).resolve()


def test_slugs():
    assert [slug(name) for name in ("a", "math_demo.17", "gpt-4o")] == ["a", "math_demo.17", "gpt-4o"]
    names = ["A b", "a b", "a_b", "a/b", "ä", "ö"]
    assert len({slug(name).casefold() for name in names}) == len(names)
    assert slug("openai/gpt-4o").startswith("openai_gpt-4o-")


# -- what can go wrong ------------------------------------------------------------


def test_an_output_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "outputs").write_text("a file")
    model_store = make_model_store(tmp_path / "outputs")
    for write in (
        lambda: model_store.write_run(artifact(), RUN_INPUT),
        lambda: model_store.write_evaluation(1, evaluation()),
    ):
        with pytest.raises(InfrastructureError, match=r"cannot write to .*outputs: .*--agentbench-output"):
            write()


def test_a_missing_broken_or_newer_file_is_a_clear_error(model_store, tmp_path):
    with pytest.raises(AgentbenchError, match="cannot be read"):
        load_run(tmp_path, f"{model_store.runs}/sum/run_1.json")
    path = Stored(tmp_path, model_store.write_run(artifact(), RUN_INPUT))
    newer = path.json() | {"schema_version": 99}
    for text, expected in ((json.dumps(newer), "schema_version"), ("", "file"), ('{"a":1}', "run_id")):
        path.write_text(text)
        with pytest.raises(AgentbenchError, match=expected):
            path.run()


def in_child(code: str, output: Path) -> list[str]:
    here = Path(__file__).parent
    prelude = f"import sys; sys.path[:0] = {[str(here), str(here.parent)]!r}\nfrom pathlib import Path\n"
    prelude += f"from test_store_artifacts import *\noutput = Path({str(output)!r})\n"
    return [sys.executable, "-c", prelude + code]


@pytest.mark.slow
def test_a_full_disk_keeps_earlier_results(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact("kept"), RUN_INPUT))
    code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))  # no file of this process grows further
try:
    make_model_store(output).write_run(artifact("x" * 9_000), RUN_INPUT)
except InfrastructureError as error:
    print(error)
"""
    done = subprocess.run(in_child(code, tmp_path), capture_output=True, text=True, timeout=60, check=True)
    assert "cannot write to" in done.stdout
    assert path.run().final_output == "kept"
    assert path.beside() == ["run_1.fingerprint_input.json", "run_1.json"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_process_leaves_a_whole_run(model_store, tmp_path):
    path = Stored(tmp_path, model_store.write_run(artifact("0" * 100_000), RUN_INPUT))
    code = """
model_store = make_model_store(output)
print("writing", flush=True)
while True:
    for digit in "0123456789":
        model_store.write_run(artifact(digit * 100_000), RUN_INPUT)
"""
    for _ in range(3):
        with subprocess.Popen(in_child(code, tmp_path), stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            while process.poll() is None and path.run().final_output[0] == "0":
                pass
            for _ in range(random.randrange(30)):
                path.run()
            process.send_signal(signal.SIGKILL)
        assert len(set(path.run().final_output)) == 1
        model_store.write_run(artifact("0" * 100_000), RUN_INPUT)
