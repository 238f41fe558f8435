"""What only the local sandbox does; what it has in common with bubblewrap is in test_workspaces_host_sandboxes.py."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest
from support.processes import running

from pytest_agentbench.workspaces.sandboxes.base import ExecResult, ResourceLimits
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.workspace import Workspace

NAP = f"999.{os.getpid():07}"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a child subreaper")


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    workspaces = Workspaces()
    yield workspaces.create("case")
    workspaces.close()


def run(workspace: Workspace, command: str, *, seconds: float = 20, **options: int) -> ExecResult:
    return asyncio.run(LocalSandbox(workspace).exec(["/bin/sh", "-c", command], seconds=seconds, **options))


@pytest.mark.slow
@linux_only
def test_killing_the_launcher_gains_nothing(workspace: Workspace) -> None:
    result = run(workspace, f"sleep {NAP} & kill -9 $PPID; exec sleep {NAP}", seconds=0.4)
    assert result.exit_code in (None, 137)
    assert not running(NAP)


@pytest.mark.slow
@linux_only
def test_a_process_that_restarts_itself_for_ever_is_ended(workspace: Workspace) -> None:
    """At most two of these live at once, but never the same for long."""
    (workspace.path / "again.sh").write_text(f"sleep 0.01; setsid sh again.sh sleep {NAP} &\n")
    result = run(workspace, f"sh again.sh sleep {NAP}; sleep 60", seconds=1)
    assert result.killed == "time-out"
    assert not running(NAP)


def test_keeps_the_beginning_and_the_end_of_long_output(workspace: Workspace) -> None:
    result = run(workspace, "echo first; seq 1 200000; echo last", output_limit=1000)
    assert result.truncated
    assert result.output.startswith("first\n1\n2\n")
    assert result.output.endswith("200000\nlast\n")
    assert "bytes left out ...]" in result.output
    assert len(result.output) < 1100


@linux_only
@pytest.mark.slow
def test_limits_processor_time(workspace: Workspace) -> None:
    limits = ResourceLimits(cpu_seconds=1)
    argv = ["/bin/sh", "-c", "while :; do :; done"]
    result = asyncio.run(LocalSandbox(workspace, limits).exec(argv, seconds=20))
    assert result.exit_code == 137
