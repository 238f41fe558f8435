"""A verifier that is tests: pytest runs them under a driver in the sandbox; what that reports is judged here."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import Verdict, excerpt
from pytest_agentbench.checks.verifying.command import killed_for, printed
from pytest_agentbench.records import PytestTests, Verifier
from pytest_agentbench.workspaces import WORKSPACE, ExecResult, Mount, Sandbox, SandboxSpec

_DRIVER = Path(__file__).with_name("pytest_driver.py")
_PYTHON_PLACE = "/verifier-python"
_HIDDEN = ("/tmp/", f"{WORKSPACE}/")  # noqa: S108 - where sandboxes have their own
_REPLY_BYTES = 64 * 2**20
_EVIDENCE = 16_384
_SPARE_SECONDS = 15.0
_NAMED = 5
_FAULT = 300


def python_of(spec: SandboxSpec) -> tuple[str, SandboxSpec]:
    """The Python that runs tests in such a sandbox, the image's or else this one; and the sandbox with it in sight."""
    plain = replace(spec, network=False)
    if spec.kind == "docker":
        return "python3", plain
    if spec.kind == "local" or not sys.prefix.startswith(_HIDDEN):
        return sys.executable, plain
    mounts = (*spec.mounts, Mount(Path(sys.prefix), _PYTHON_PLACE))
    return f"{_PYTHON_PLACE}/bin/python", replace(plain, mounts=mounts)


async def run_tests(verifier: Verifier, sandbox: Sandbox, python: str, environment: Mapping[str, str]) -> Verdict:
    """What the tests say. Raises SandboxError where the sandbox fails.

    They import what lies in the folder that PYTHONPATH of the `environment` names, too.
    """
    wanted = verifier.pytest
    assert wanted is not None
    token = secrets.token_hex(32)
    request = {
        "token": token,
        "tests": [_normal(name) for name in wanted.ids],
        "pythonpath": [*wanted.pythonpath, *filter(None, [environment.get("PYTHONPATH")])],
        "plugins": wanted.plugins,
        "config": wanted.config,
        "seconds": verifier.timeout_seconds,
    }
    ended = await sandbox.exec(
        [python, "-I", "-B", "-c", _driver()],
        seconds=verifier.timeout_seconds + _SPARE_SECONDS,
        stdin=json.dumps(request).encode("ascii") + b"\n",
        output_limit=_REPLY_BYTES,
        environment=environment,
    )
    begun, reply = _said(ended.output, token)
    if reply is None:
        return _no_reply(ended, verifier, begun=begun)
    return _judged(wanted, verifier, reply)


@cache
def _driver() -> str:
    return _DRIVER.read_text(encoding="utf-8")


def _said(output: str, token: str) -> tuple[bool, dict[str, Any] | None]:
    """Whether the driver has begun, and its reply: of what may have been written, the lines that have the token."""
    lines = [line for line in output.split("\n") if token in line]
    try:
        found = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):  # it was ended in its reply
        found = []
    return bool(lines), found[1] if len(found) > 1 else None


def _no_reply(ended: ExecResult, verifier: Verifier, *, begun: bool) -> Verdict:
    """What ends a driver that has begun comes from the code under test. All else is the sandbox's fault."""
    how = killed_for(ended, verifier) if ended.killed is not None else f"exit code {ended.exit_code}"
    if begun:
        return Verdict("failed", f"what runs the tests was ended before it could tell: {how}")
    message = f"the tests could not be run, for which the sandbox needs python3: {excerpt(ended.output) or how}"
    return Verdict("error", message, outputs=printed(ended.output[-_EVIDENCE:]))


def _judged(wanted: PytestTests, verifier: Verifier, reply: Mapping[str, Any]) -> Verdict:
    tests: dict[str, dict[str, Any]] = reply["tests"]
    outputs = {
        "tests": {name: each["outcome"] for name, each in tests.items()},
        **printed(reply["output"]),
    }
    if not reply["loaded"] and reply["stopped"] is None:
        why = "; ".join(message for _, message in reply["problems"]) or excerpt(reply["output"])
        message = f"pytest cannot be run in the sandbox: {why}; install it in the image, or use a command"
        return Verdict("error", message, outputs=outputs)
    passed = sum(each["outcome"] == "passed" for each in tests.values())
    faults = [fault if len(fault) <= _FAULT else f"…{fault[-_FAULT:]}" for fault in _faults(wanted, verifier, reply)]
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
    all_passed = bool(tests) and all(each["outcome"] == "passed" for each in tests.values())
    if all_passed and reply["ended"] is not None and (reply["ended"], reply["exit"]) != (0, 0):
        yield f"pytest ended with exit status {reply['ended']}, its process with {reply['exit']}"


def is_named(test: str, name: str) -> bool:
    """Whether the node id is that of a test, or below a function, class, file or folder, of that name."""
    return test == name or test.startswith((f"{name}[", f"{name}::", f"{name}/"))


def _evidence(reply: Mapping[str, Any]) -> str | None:
    """Of the first message that there is, what pytest marks as the error, on one line; or else its end."""
    messages: Sequence[str] = [message for _, message in reply["problems"]]
    messages = [*messages, *(each.get("message", "") for each in reply["tests"].values())]
    message = next(filter(None, messages), None)
    if message is None:
        return None
    marked = [line[1:].strip() for line in message.splitlines() if line.startswith("E ")]
    return excerpt(" ".join(marked) or message)


def _normal(name: str) -> str:
    """A test's name as pytest says it: its path without `.` and needless slashes."""
    path, colons, rest = name.partition("::")
    return "/".join(part for part in path.split("/") if part not in ("", ".")) + colons + rest
