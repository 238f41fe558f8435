"""A verifier that is tests: pytest runs them under a driver in the sandbox; what that reports is judged here."""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import Verdict, excerpt
from pytest_agentbench.checks.verifying.command import killed_for, plain_environment, printed
from pytest_agentbench.records import PytestTests, Verifier
from pytest_agentbench.workspaces import ExecResult, Mount, Sandbox, SandboxSpec

_DRIVER = Path(__file__).with_name("pytest_driver.py")
_PYTHON_PLACE = "/verifier-python"
_REPLY_BYTES = 64 * 2**20
_EVIDENCE = 16_384
_SPARE_SECONDS = 15.0
_NAMED = 5


def python_of(spec: SandboxSpec) -> tuple[str, SandboxSpec]:
    """The Python that runs tests in such a sandbox, the image's or else this one; and the sandbox with it in sight."""
    plain = replace(spec, network=False)
    if spec.kind == "docker":
        return "python3", plain
    if spec.kind == "local" or not sys.prefix.startswith("/tmp/"):  # noqa: S108 - where sandboxes have their own
        return sys.executable, plain
    mounts = (*spec.mounts, Mount(Path(sys.prefix), _PYTHON_PLACE))
    return f"{_PYTHON_PLACE}/bin/python", replace(plain, mounts=mounts)


async def run_tests(verifier: Verifier, sandbox: Sandbox, python: str) -> Verdict:
    """What the tests say. Raises SandboxError where the sandbox fails."""
    wanted = verifier.pytest
    assert wanted is not None
    token = secrets.token_hex(32)
    request = {
        "token": token,
        "tests": [_normal(name) for name in wanted.ids],
        "pythonpath": wanted.pythonpath,
        "plugins": wanted.plugins,
        "config": wanted.config,
        "seconds": verifier.timeout_seconds,
    }
    ended = await sandbox.exec(
        [python, "-I", "-B", "-c", _driver()],
        seconds=verifier.timeout_seconds + _SPARE_SECONDS,
        stdin=json.dumps(request).encode("ascii") + b"\n",
        output_limit=_REPLY_BYTES,
        environment=plain_environment(sandbox),
    )
    reply = _reply(ended.output, token)
    if reply is None:
        return _no_reply(ended, verifier)
    return _judged(wanted, verifier, reply)


@cache
def _driver() -> str:
    return _DRIVER.read_text(encoding="utf-8")


def _reply(output: str, token: str) -> dict[str, Any] | None:
    """The driver's line. Nothing but that may have been written where only the driver writes."""
    try:
        reply = json.loads(output)
    except (ValueError, RecursionError):
        return None
    if not isinstance(reply, dict) or not hmac.compare_digest(str(reply.get("token")), token):
        return None
    return reply


def _no_reply(ended: ExecResult, verifier: Verifier) -> Verdict:
    """What is wrong with the sandbox is an error. What ended a driver that had begun came from the code under test."""
    evidence = printed(ended.output[-_EVIDENCE:])
    if ended.killed is not None:
        return Verdict("failed", killed_for(ended, verifier), outputs=evidence)
    if ended.exit_code == 0 or (ended.exit_code or 0) > 128:
        how = "without a result" if ended.exit_code == 0 else f"by signal {(ended.exit_code or 0) - 128}"
        return Verdict("failed", f"what runs the tests was ended {how}: by the code under test, or for memory")
    message = f"the tests could not be run: {excerpt(ended.output) or f'exit code {ended.exit_code}'}"
    return Verdict("error", message, outputs=evidence)


def _judged(wanted: PytestTests, verifier: Verifier, reply: Mapping[str, Any]) -> Verdict:
    tests: dict[str, dict[str, Any]] = reply["tests"]
    outputs = {
        "tests": {name: each["outcome"] for name, each in tests.items()},
        **printed(reply["output"]),
    }
    if reply["pytest"] is None and reply["stopped"] is None and not tests:
        why = "; ".join(message for _, message in reply["problems"]) or excerpt(reply["output"])
        message = f"pytest cannot be run in the sandbox: {why}; install it in the image, or use a command"
        return Verdict("error", message, outputs=outputs)
    passed = sum(each["outcome"] == "passed" for each in tests.values())
    faults = list(_faults(wanted, verifier, reply))
    said = f"{passed} of {len(tests)} test{'' if len(tests) == 1 else 's'} passed"
    if not faults:
        return Verdict("passed", said, outputs=outputs)
    shown = "; ".join(faults[:_NAMED]) + (f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else "")
    return Verdict("failed", f"{said}: {shown}", actual=_evidence(reply), outputs=outputs)


def _faults(wanted: PytestTests, verifier: Verifier, reply: Mapping[str, Any]) -> Iterator[str]:
    """Every reason not to count what was reported as passed."""
    tests: dict[str, dict[str, Any]] = reply["tests"]
    if reply["stopped"] == "time-out":
        yield f"they had not ended after {verifier.timeout_seconds:g} s"
    elif reply["stopped"] is not None:
        yield f"they were stopped: {reply['stopped']}"
    elif reply["ended"] is None:
        how = f"exit code {reply['exit']}" if reply["exit"] >= 0 else f"signal {-reply['exit']}"
        yield f"their process ended before pytest did ({how})"
    for where, _ in reply["problems"]:
        yield f"{where or 'pytest'} could not be collected"
    for name in map(_normal, wanted.ids):
        found = [test for test in tests if is_named(test, name)]
        if not found:
            yield f"{name} did not run"
        yield from (f"{test} {tests[test]['outcome']}" for test in found if tests[test]["outcome"] != "passed")
    if wanted.count is not None and len(tests) != wanted.count:
        yield f"found {len(tests)} tests, expected {wanted.count}"
    all_passed = bool(tests) and all(each["outcome"] == "passed" for each in tests.values())
    if all_passed and reply["ended"] is not None and (reply["ended"], reply["exit"]) != (0, 0):
        yield f"pytest ended with exit status {reply['ended']}, its process with {reply['exit']}"


def is_named(test: str, name: str) -> bool:
    """Whether the node id is that of a test, or below a function, class, file or folder, of that name."""
    return test == name or test.startswith((f"{name}[", f"{name}::", f"{name}/"))


def _evidence(reply: Mapping[str, Any]) -> str | None:
    """The end of the first message that there is."""
    messages: Sequence[str] = [message for _, message in reply["problems"]]
    messages = [*messages, *(each.get("message", "") for each in reply["tests"].values())]
    return next((excerpt(message) for message in messages if message), None)


def _normal(name: str) -> str:
    """A test's name as pytest says it: its path without `.` and needless slashes."""
    path, colons, rest = name.partition("::")
    return "/".join(part for part in path.split("/") if part not in ("", ".")) + colons + rest
