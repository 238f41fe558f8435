"""Runs that earlier versions stored by other rules: how requests travelled was part of what a run was."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.identity.fingerprints import canonical_json, fingerprint
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import FinalOutputEvent, RunArtifact
from pytest_agentbench.store.artifacts import Lane, Store

TRAVEL = {"timeout_seconds": 60, "retries": 3}
COVERED = {"case_id": "sum", "messages": ["2 + 2?"], "runner": {"type": "llm_probe", "settings": {"seed": 1}}}


def profile(**defaults) -> RunProfile:
    return RunProfile(schema_version=1, run_profile_id="p", title="p", runner_defaults={"seed": 1, **defaults})


def open_lane(output: Path, run_profile: RunProfile, suite: str | None = None) -> Lane:
    return Store(output).lane(suite, run_profile, EvaluationProfile.default(), "gpt")


def store_as_before(output: Path, *, in_profile: bool, suite: str | None = None, **fields) -> RunArtifact:
    """Write a run and its verdict with settings of how requests travel in the fingerprints of run and profile."""
    settings = {**json.loads(open_lane(output, profile()).run_settings)}
    if in_profile:
        settings["runner_defaults"] |= TRAVEL
    lane = replace(open_lane(output, profile(), suite), run_settings=canonical_json(settings))
    covered = {**COVERED, "runner": {"type": "llm_probe", "settings": {"seed": 1, **TRAVEL}}, **fields}
    key = fingerprint(covered)
    artifact = RunArtifact(
        run_id="r1",
        case_id="sum",
        runner_type="llm_probe",
        model={"model_id": "gpt"},
        repetition=1,
        fingerprint=key,
        status="success",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_seconds=0.1,
        trace=(FinalOutputEvent(sequence=0, at=0.1, content="4"),),
    )
    lane.write_run(artifact, covered)
    verdict = Evaluation(
        case_id="sum",
        run_id="r1",
        fingerprint="e" * 64,
        run_fingerprint=key,
        evaluation_profile_id="default",
        outcome="passed",
    )
    lane.write_evaluation(1, verdict)
    Store(output).close()
    return artifact


def find(lane: Lane, covered=COVERED, counts=lambda run: True):
    found = lane.earlier.find("sum", (), 1, canonical_json(covered), counts)
    return None if found is None else found[0]


@pytest.mark.parametrize("in_profile", [False, True])
@pytest.mark.parametrize("now", [{}, TRAVEL, {"retries": 9, "outage_seconds": 0}])
@pytest.mark.parametrize("suite", [None, "small"])
def test_a_run_is_found_whatever_was_said_of_how_requests_travel(tmp_path, in_profile, now, suite):
    stored = store_as_before(tmp_path, in_profile=in_profile, suite=suite)
    lane = open_lane(tmp_path, profile(**now))
    assert lane.find_run("sum", 1, fingerprint(COVERED)) is None
    assert find(lane) == stored
    verdict, _ = lane.find_evaluation(stored, "e" * 64)
    assert verdict.outcome == "passed"


def test_what_differs_in_anything_else_is_not_found(tmp_path):
    store_as_before(tmp_path, in_profile=True)
    lane = open_lane(tmp_path, profile())
    assert find(lane, {**COVERED, "messages": ["3 + 3?"]}) is None
    assert find(lane, {**COVERED, "runner": {"type": "llm_probe", "settings": {"seed": 2}}}) is None
    assert find(lane, counts=lambda run: run.status == "failed") is None
    assert find(open_lane(tmp_path, profile(seed=2))) is None


def test_a_run_that_was_changed_since_is_not_found(tmp_path):
    store_as_before(tmp_path, in_profile=False)
    lane = open_lane(tmp_path, profile())
    path = f"{lane.runs}/sum/run_1.fingerprint_input.json"
    with lane.documents.writing():
        lane.documents.put(path, canonical_json({**COVERED, "added": 1}))
    assert find(lane, {**COVERED, "added": 1}) is None
    with lane.documents.writing():
        lane.documents.put(path, b"[")
    assert find(lane) is None


def test_a_new_store_is_not_searched(tmp_path):
    assert open_lane(tmp_path, profile()).earlier is None
