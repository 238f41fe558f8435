"""A hook's process may end in any way: only one verdict with the driver's key counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_agentbench.checks.hooks import HOOK_LIMITS, _verdict
from pytest_agentbench.workspaces.sandboxes.base import ExecResult
from pytest_agentbench.workspaces.sandboxes.isolated import IsolatedResult

KEY = "k" * 64


def done(result: bytes | None, *, code: int | None = 0, output: str = "", killed: Any = None) -> IsolatedResult:
    return IsolatedResult(ExecResult(code, output, killed, truncated=False, seconds=1.0), result)


def reply(**fields: Any) -> bytes:
    return json.dumps({"key": KEY, **fields}).encode()


def test_a_verdict_has_its_message_its_outputs_and_the_printed_text():
    told = reply(passed=True, message="fine", outputs={"n": 1}, metadata={"m": 2})
    found = _verdict(done(told, output="said\n"), KEY)
    assert (found.outcome, found.message) == ("passed", "fine")
    assert found.outputs == {"n": 1, "metadata": {"m": 2}, "printed": "said"}
    assert _verdict(done(reply(passed=True)), KEY).message == "the hook passed"
    found = _verdict(done(reply(passed=False, metadata={})), KEY)
    assert (found.outcome, found.message, found.outputs) == ("failed", "the hook failed", {})


def test_an_exception_of_the_hook_is_an_error():
    found = _verdict(done(reply(error="ValueError: no"), output="x"), KEY)
    assert (found.outcome, found.message, found.outputs) == ("error", "ValueError: no", {"printed": "x"})


@pytest.mark.parametrize(
    ("result", "ended", "said"),
    [
        (b"", {}, "ended with exit code 0 and gave no verdict"),
        (reply(passed=True), {"code": 3}, "ended with exit code 3 and gave no verdict"),
        (None, {}, "gave a verdict that is too long"),
        (reply(passed=True) * 2, {}, "gave more than one verdict"),
        (b"[1]", {}, "was ended by code that it ran, which wrote a verdict in its place"),
        (json.dumps({"passed": True}).encode(), {}, "was ended by code that it ran"),
        (json.dumps({"key": "x", "passed": True}).encode(), {}, "was ended by code that it ran"),
        (reply(passed=True), {"killed": "time-out"}, "was stopped after 30 s and gave no verdict"),
        (reply(passed=True), {"killed": "output"}, "was stopped because it printed without end"),
        (b"", {"killed": "memory"}, f"because it took more than {HOOK_LIMITS.memory_bytes:,} bytes of memory"),
        (b"", {"killed": "processes"}, "because it had more than 64 processes and threads"),
    ],
)
def test_every_other_reply_is_an_error_with_the_reason(result, ended, said):
    found = _verdict(done(result, **ended), KEY)
    assert (found.outcome, found.outputs) == ("error", {})
    assert found.message.startswith("the hook ")
    assert said in found.message
