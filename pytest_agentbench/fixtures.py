"""The fixtures that cases and hand-written tests use. Rooms are imported when a fixture is used, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_agentbench.engine.job import Job
    from pytest_agentbench.public import Run
    from pytest_agentbench.records.case import Case, McpServer, Model
    from pytest_agentbench.workspaces.workspace import Workspace


@pytest.fixture(scope="session")
def agentbench_runner() -> Any:
    """Provide the agent under test. The default runs each case by its file; override it in a conftest.py for your own.

    Return a callable, sync or async, that takes `(case)` or `(case, context)` and returns the answer as text, or a
    `RunOutput`. With session scope its runs start ahead of pytest; with a narrower scope they are made one at a time.
    Function-scoped autouse fixtures do not surround a run that has started ahead.
    """
    from pytest_agentbench.runners.base import CaseRunner

    return CaseRunner()


@pytest.fixture(scope="session")
def agentbench_mcp_servers() -> Mapping[str, McpServer | Mapping[str, Any]]:
    """Provide MCP servers of all cases, by name, in addition to the servers of files. Override it in a conftest.py.

    Each is a `McpServer`, or a mapping of its fields. Start a server here on a free port of this machine: the port's
    number is not part of a run's identity. The fixture's servers take precedence over all files.
    """
    return {}


@pytest.fixture
def agentbench_case(request: pytest.FixtureRequest) -> Case:
    """Return the case of the item: messages, tags, reference answer, metadata."""
    return _require_job(request).make_case()


@pytest.fixture
def agentbench_model(request: pytest.FixtureRequest) -> Model | None:
    """Return the model of the item; None if the user's own agent runs without one, or predictions are graded."""
    return _require_job(request).plan.model


@pytest.fixture
def agentbench_run(request: pytest.FixtureRequest, agentbench_runner: Any, agentbench_mcp_servers: Any) -> Run:
    """Return the finished run of the case that `@pytest.mark.agentbench` names, for hand-written assertions.

    A reason for a missing result (a provider's error, a missing key) is an error or a skip of the test, as for cases.
    """
    __tracebackhide__ = True
    from pytest_agentbench.collection.marks import finished_run

    return finished_run(request.node, agentbench_runner, agentbench_mcp_servers)


@pytest.fixture
def agentbench_workspace(request: pytest.FixtureRequest, agentbench_run: Run) -> Workspace:
    """Return the folder the run worked in, as it left it; it is removed when the test has ended."""
    return agentbench_run.workspace


@pytest.fixture
def _agentbench_plan(request: pytest.FixtureRequest) -> Any:
    """Return the plan and repetition of a hand-written test's case."""
    return request.param


def _require_job(request: pytest.FixtureRequest) -> Job:
    from pytest_agentbench.engine.driver import JOB

    job: Job | None = request.node.stash.get(JOB, None)
    if job is None:
        raise pytest.UsageError(
            f"{request.node.nodeid}: {request.fixturename} needs a case: mark the test "
            '@pytest.mark.agentbench("case_id") or with the path of a test.yaml'
        )
    return job
