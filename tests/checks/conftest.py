"""Fixtures that decide a run by one check."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import BUILTIN_CHECKS, run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.workspaces.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "workspace").mkdir()
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def check(tmp_path, workspace):
    """Runs one check on a run that is described by keyword."""
    (tmp_path / "case").mkdir()

    def run(
        kind,
        /,
        *,
        output="the answer",
        calls=(),
        trace=(),
        workspace=workspace,
        kinds=BUILTIN_CHECKS,
        run=None,
        context=None,
        **fields,
    ):
        declared = Check.model_validate({"check_id": "c", "declarative": {"kind": kind, **fields}})
        case = Case(
            case_id="a",
            title="a",
            path=tmp_path / "case" / "test.yaml",
            runner={"type": "llm_probe"},
            checks=(declared,),
            context=context or {},
        )
        events = [*trace, *({"type": "tool_call", "call_id": "1", "name": n, "arguments": a} for n, a in calls)]
        if output is not None:
            events.append({"type": "final_output", "content": output})
        artifact = RunArtifact.model_validate(
            {
                "run_id": "r", "case_id": "a", "runner_type": "llm_probe", "model": {}, "repetition": 1,
                "status": "success", "started_at": datetime.now(UTC), "duration_seconds": 2.5,
                "trace": [{**event, "sequence": at, "at": 0.0} for at, event in enumerate(events)],
                **(run or {}),
            }
        )  # fmt: skip
        (result,) = asyncio.run(run_checks(CheckContext(case, artifact, workspace, METRICS), SecurityPolicy(), kinds))
        return result

    return run
