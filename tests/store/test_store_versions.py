"""Artifacts of other versions: older ones are brought up to date, newer ones are left alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.stored import Stored, find_stored
from test_store_artifacts import RUN_INPUT, artifact, evaluation, make_lane

from pytest_agentbench.errors import InfrastructureError
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.store.documents import _MIGRATIONS, VERSION, parse_evaluation, parse_run

V1 = Path(__file__).parent / "v1"
"""What the last release with schema_version 1 wrote of a run with a tool call, a check and a judge."""

OLD = "c08ec139bb374330d5a5e168189772046eeb8ecf46064d98d1b57a7b26c03e4d"


def test_a_run_of_version_1_loads():
    run = parse_run("run_1.json", (V1 / "run_1.json").read_bytes())
    assert (run.schema_version, run.case_id, run.status, run.fingerprint) == (VERSION, "sum", "success", OLD)
    assert (run.final_output, run.workspace, run.cassette) == ("It is 42.", None, None)
    assert [call.arguments for call in run.tool_calls] == [{"path": "answer.txt", "content": "42"}]


def test_an_evaluation_of_version_1_loads():
    done = parse_evaluation("final_result_1.json", (V1 / "final_result_1.json").read_bytes())
    assert (done.schema_version, done.outcome, done.final_score, done.run_id) == (VERSION, "passed", 9.0, None)
    assert done.run_fingerprint == OLD
    assert done.judge is not None


def test_every_older_version_has_a_migration():
    assert sorted(_MIGRATIONS) == list(range(1, VERSION))
    assert all(model.model_fields["schema_version"].default == VERSION for model in (RunArtifact, Evaluation))


def test_a_run_of_version_1_makes_way_and_stays(tmp_path):
    lane = make_lane(tmp_path)
    place = tmp_path / lane.runs / "sum/run_1.json"
    place.parent.mkdir(parents=True)
    shutil.copy(V1 / "run_1.json", place)
    lane.refuse_newer("sum", 1)
    assert lane.find_run("sum", 1, "a" * 64) is None
    lane.write_run(artifact("new"), RUN_INPUT)
    assert lane.find_run("sum", 1, OLD)[0] == parse_run("run_1.json", (V1 / "run_1.json").read_bytes())


@pytest.mark.parametrize("version", [VERSION + 1, 10**9])
def test_what_a_newer_version_wrote_is_never_touched(tmp_path, version):
    lane, said = make_lane(tmp_path), []
    newer = Stored(tmp_path, lane.write_run(artifact("paid"), RUN_INPUT))
    verdict = Stored(tmp_path, lane.write_evaluation(1, evaluation(fingerprint="c" * 64)))
    for path in (newer, verdict):
        path.update(schema_version=version, added=True)
    before = {path: path.read_bytes() for path in find_stored(tmp_path, "*")}
    assert lane.find_run("sum", 1, "a" * 64) is None
    for attempt in (
        lambda: lane.refuse_newer("sum", 1),
        lambda: lane.write_run(artifact("mine"), RUN_INPUT),
        lambda: lane.write_run(artifact("mine", key="b" * 64), RUN_INPUT),
        lambda: lane.write_evaluation(1, evaluation()),
        lambda: newer.run(),
        lambda: verdict.evaluation(),
    ):
        with pytest.raises(InfrastructureError) as raised:
            attempt()
        said.append(str(raised.value))
    assert {path: path.read_bytes() for path in find_stored(tmp_path, "*")} == before
    for text in said:
        assert f"found schema_version {version}, expected at most {VERSION}" in text
        assert "--agentbench-output" in text
    assert [str(newer if "run_1" in text else verdict) in text for text in said] == [True] * 6


def test_the_newer_verdict_alone_is_refused_too(tmp_path):
    lane = make_lane(tmp_path)
    lane.write_run(artifact(), RUN_INPUT)
    verdict = Stored(tmp_path, lane.write_evaluation(1, evaluation()))
    verdict.update(schema_version=VERSION + 1)
    with pytest.raises(InfrastructureError, match="final_result_1"):
        lane.refuse_newer("sum", 1)
    lane.refuse_newer("sum", 2)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None, [1], VERSION + 0.5])
def test_no_other_version_is_guessed_at(tmp_path, version):
    path = Stored(tmp_path, "runs/suit_default/profile/gpt/sum/run_1.json")
    path.write_text(json.dumps(json.loads((V1 / "run_1.json").read_text()) | {"schema_version": version}))
    with pytest.raises(InfrastructureError, match="schema_version"):
        path.run()
