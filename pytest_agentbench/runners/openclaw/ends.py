"""What a turn comes to: whether the run goes on, or how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_agentbench.records import RunError, RunStatus
from pytest_agentbench.runners.base import RunEnd
from pytest_agentbench.runners.openclaw.replies import Reply, last_lines
from pytest_agentbench.workspaces import ExecResult

if TYPE_CHECKING:
    from pytest_agentbench.runners.openclaw.relay import ModelRelay


def turn_end(done: ExecResult, reply: Reply | None, relay: ModelRelay, *, limit: float, turn: str) -> RunEnd | None:
    """How the run ended with this turn, None where the turn succeeded.

    `limit` is that of all turns together, in seconds. Raises ProviderError where it failed because the model's provider
    did.
    """
    if done.killed == "time-out":
        return _end("timed_out", "run_timeout", f"no answer within openclaw.timeout_seconds ({limit:g} s), in {turn}")
    if done.killed is not None:
        return _end("failed", "sandbox_limit", f"{turn} went over the sandbox's limit of {done.killed}")
    if reply is not None and reply.error is None and done.exit_code == 0:
        return None
    if relay.failure is not None:
        raise relay.failure
    if relay.refused is not None:
        told = f"{turn} asked for the model {relay.refused!r}, and a run has one model only"
        return _end("failed", "other_model", told)
    return _failed(done, reply, turn)


def _failed(done: ExecResult, reply: Reply | None, turn: str) -> RunEnd:
    if reply is not None and reply.error is not None:
        if reply.timed_out:
            return _end("timed_out", "run_timeout", f"OpenClaw's own time limit ended {turn}: {reply.error}")
        return _end("failed", "openclaw_failed", f"OpenClaw failed in {turn}: {reply.error}")
    if done.exit_code == 0:
        cut = " (what it wrote was too long to be kept)" if done.truncated else ""
        told = f"OpenClaw ended {turn} without a JSON reply{cut}; its last lines:\n{last_lines(done.output)}"
        return _end("invalid", "no_reply", told)
    told = f"OpenClaw ended {turn} with exit code {done.exit_code}; its last lines:\n{last_lines(done.output)}"
    return _end("failed", "openclaw_crashed", told)


def _end(status: RunStatus, code: str, message: str) -> RunEnd:
    return RunEnd(status, RunError(code=code, message=message))
