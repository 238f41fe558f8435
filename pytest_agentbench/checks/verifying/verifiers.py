"""Verifiers of both kinds: a command, and tests under pytest in the sandbox."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import Verdict, compact, excerpt, includes, loads, verdict
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.records.case import PytestTests, Verifier
from pytest_agentbench.terminal_text import count_text
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Mount, Sandbox, SandboxSpec, provider_of
from pytest_agentbench.workspaces.workspace import WORKSPACE

RESULT_VARIABLE = "AGENTBENCH_RESULT"
"""Names the file for the command's result, which is not there before."""

_MAX_RESULT = 256 * 1024
_OUTPUT = 16_384


class _Unreadable(Exception):
    """The file for the result holds no JSON object."""


def plain_environment(sandbox: Sandbox) -> dict[str, str]:
    """Return environment variables that keep a verifier's programs from obeying files of the workspace."""
    return {
        "HOME": private_path(sandbox, ""),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def private_path(sandbox: Sandbox, name: str) -> str:
    """Return a path in the sandbox's /tmp as its programs see it."""
    return f"{provider_of(sandbox.kind).places(sandbox.workspace).tmp}/{name}".rstrip("/")


async def run_command(verifier: Verifier, sandbox: Sandbox, environment: Mapping[str, str]) -> Verdict:
    """Return the verdict of the verifier's command. Raises SandboxError if the sandbox fails."""
    assert verifier.command is not None
    # An unguessable name: code under test cannot put a result there.
    name = f"result-{secrets.token_hex(16)}.json"
    ended = await sandbox.exec(
        verifier.command,
        seconds=verifier.timeout_seconds,
        output_limit=_OUTPUT,
        environment={**environment, "PYTHONSAFEPATH": "1", RESULT_VARIABLE: private_path(sandbox, name)},
    )
    outputs: dict[str, Any] = {"exit_code": ended.exit_code, **printed_evidence(ended.output)}
    try:
        result = await _read_result(sandbox, name)
    except _Unreadable as error:
        return Verdict("failed", str(error), outputs=outputs)
    if result is not None:
        outputs["result"] = result
    compared = _compare(verifier, ended, result)
    return Verdict(compared.outcome, compared.message, compared.expected, compared.actual, outputs)


def printed_evidence(output: str) -> dict[str, str]:
    """Return a verifier's output as evidence. Only the text that the case asks for is parsed from it."""
    if output.strip():
        return {"printed": output}
    return {}


def describe_kill(ended: ExecResult, verifier: Verifier) -> str:
    """Return the sentence for a verifier that was killed."""
    if ended.killed == "time-out":
        return f"the verifier had not ended after {verifier.timeout_seconds:g} s"
    return f"the verifier was killed: it broke the sandbox's limit of {ended.killed}"


async def _read_result(sandbox: Sandbox, name: str) -> dict[str, Any] | None:
    """Return the content of the command's result file, or None if it wrote none."""
    try:
        content = loads((await sandbox.get(f"/tmp/{name}", _MAX_RESULT)).decode("utf-8"))  # noqa: S108 - the sandbox's
    except FileNotFoundError:
        return None
    except (PathRefusedError, OSError, ValueError) as error:
        raise _Unreadable(f"${RESULT_VARIABLE} holds no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _Unreadable(f"${RESULT_VARIABLE}: found {type(content).__name__}, expected a JSON object")
    return content


def _compare(verifier: Verifier, ended: ExecResult, result: dict[str, Any] | None) -> Verdict:
    expected = verifier.expected
    if ended.killed is not None:
        return verdict(False, describe_kill(ended, verifier), actual=excerpt(ended.output))
    if ended.exit_code != expected.exit_code:
        message = f"the verifier's command ended with exit code {ended.exit_code}, expected {expected.exit_code}"
        return verdict(False, message, actual=excerpt(ended.output))
    for text in expected.output_contains:
        if text not in ended.output:
            return verdict(False, "the verifier's command did not print the text", text, excerpt(ended.output))
    if expected.result is not None and (result is None or not includes(result, expected.result)):
        actual = "nothing" if result is None else compact(result)
        return verdict(False, "the verifier's result is not as expected", compact(expected.result), actual)
    return verdict(True, f"the verifier's command ended with exit code {ended.exit_code}")


_DRIVER = Path(__file__).with_name("pytest_driver.py")
_PYTHON_PLACE = "/verifier-python"
_HIDDEN = ("/tmp/", f"{WORKSPACE}/")  # noqa: S108 - where sandboxes have their own
_REPLY_BYTES = 64 * 2**20
_EVIDENCE = 16_384
_SPARE_SECONDS = 15.0
_NAMED = 5
_FAULT = 300


def choose_python(spec: SandboxSpec) -> tuple[str, SandboxSpec]:
    """Return the Python that runs tests in such a sandbox, the image's or else this one, and the sandbox showing it."""
    plain = replace(spec, network=False)
    programs = provider_of(spec.kind).programs
    if programs == "image":
        return "python3", plain
    # A sandbox lays its own /tmp and workspace over this machine's: a Python below these has to be shown elsewhere.
    if programs == "machine" or not sys.prefix.startswith(_HIDDEN):
        return sys.executable, plain
    mounts = (*spec.mounts, Mount(Path(sys.prefix), _PYTHON_PLACE))
    return f"{_PYTHON_PLACE}/bin/python", replace(plain, mounts=mounts)


async def run_tests(verifier: Verifier, sandbox: Sandbox, python: str, environment: Mapping[str, str]) -> Verdict:
    """Return the verdict of the tests. Raises SandboxError if the sandbox fails.

    They can also import from the folder that PYTHONPATH of the `environment` names.
    """
    assert verifier.pytest is not None
    reply = await _ask_driver(verifier, sandbox, python, environment, verifier.pytest.ids)
    if isinstance(reply, Verdict):
        return reply
    return _judge_reply(verifier.pytest, verifier, reply)


async def collect_tests(
    verifier: Verifier, sandbox: Sandbox, python: str, environment: Mapping[str, str], names: Sequence[str]
) -> Mapping[str, Any]:
    """Return the driver's reply for tests that are only collected: all of the files and folders of the `names`.

    Raises SandboxError if the sandbox fails or pytest cannot be run in it.
    """
    reply = await _ask_driver(verifier, sandbox, python, environment, names, collect=True)
    if isinstance(reply, Verdict):
        raise SandboxError(reply.message)
    return reply


async def _ask_driver(
    verifier: Verifier,
    sandbox: Sandbox,
    python: str,
    environment: Mapping[str, str],
    names: Sequence[str],
    *,
    collect: bool = False,
) -> Verdict | dict[str, Any]:
    """Return the driver's reply, or the verdict on a driver that gave none."""
    selection = verifier.pytest
    assert selection is not None
    token = secrets.token_hex(32)
    request = {
        "token": token,
        "tests": [normalize_test_id(name) for name in names],
        "collect": collect,
        "pythonpath": [*selection.pythonpath, *filter(None, [environment.get("PYTHONPATH")])],
        "plugins": selection.plugins,
        "config": selection.config,
        "seconds": verifier.timeout_seconds,
    }
    ended = await sandbox.exec(
        # As text: the sandbox shows no file of this package, and none that the agent left can take its place.
        [python, "-I", "-B", "-c", _driver()],
        # The driver stops the tests at their limit and reports the finished ones; this limit is for a driver
        # that hangs.
        seconds=verifier.timeout_seconds + _SPARE_SECONDS,
        stdin=json.dumps(request).encode("ascii") + b"\n",
        output_limit=_REPLY_BYTES,
        environment=environment,
    )
    begun, reply = _read_reply(ended.output, token)
    if reply is None:
        return _missing_reply_verdict(ended, verifier, begun=begun)
    return reply


@cache
def _driver() -> str:
    return _DRIVER.read_text(encoding="utf-8")


def _read_reply(output: str, token: str) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the driver has begun, and its reply: only lines that have the token count."""
    # Only the driver knows the token, and it prints the token before any of the agent's code is imported.
    lines = [line for line in output.split("\n") if token in line]
    try:
        documents = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):  # it was ended in its reply
        documents = []
    return bool(lines), documents[1] if len(documents) > 1 else None


def _missing_reply_verdict(ended: ExecResult, verifier: Verifier, *, begun: bool) -> Verdict:
    """Return the verdict on a driver without reply: after its first line the tested code failed, else the sandbox."""
    how = f"exit code {ended.exit_code}"
    if ended.killed is not None:
        how = describe_kill(ended, verifier)
    if begun:
        return Verdict("failed", f"the program that runs the tests was ended before its report: {how}")
    message = f"the tests could not be run, for which the sandbox needs python3: {excerpt(ended.output) or how}"
    return Verdict("error", message, outputs=printed_evidence(ended.output[-_EVIDENCE:]))


def _judge_reply(selection: PytestTests, verifier: Verifier, reply: Mapping[str, Any]) -> Verdict:
    tests: dict[str, dict[str, Any]] = reply["tests"]
    outputs = {
        "tests": {name: test["outcome"] for name, test in tests.items()},
        **printed_evidence(reply["output"]),
    }
    if not reply["loaded"] and reply["stopped"] is None:
        why = "; ".join(message for _, message in reply["problems"]) or excerpt(reply["output"])
        message = f"pytest cannot be run in the sandbox: {why}; install it in the image, or use a command"
        return Verdict("error", message, outputs=outputs)
    passed = sum(test["outcome"] == "passed" for test in tests.values())
    faults = list(_find_faults(selection, verifier, reply))
    summary = f"{passed:,} of {count_text(len(tests), 'test')} passed"
    if not faults:
        return Verdict("passed", summary, outputs=outputs)
    named = [fault if len(fault) <= _FAULT else f"…{fault[-_FAULT:]}" for fault in faults[:_NAMED]]
    if len(faults) > _NAMED:
        named.append(f"and {len(faults) - _NAMED} more")
    return Verdict("failed", f"{summary}: {'; '.join(named)}", actual=_evidence(reply), outputs=outputs)


def _find_faults(selection: PytestTests, verifier: Verifier, reply: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason not to count tests that were reported as passed."""
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
    yield from (f"{normalize_test_id(name)} did not run" for name in ids_without_tests(selection, tests))
    for name in map(normalize_test_id, selection.ids):
        matching = [test for test in tests if is_named(test, name)]
        yield from (f"{test} {tests[test]['outcome']}" for test in matching if tests[test]["outcome"] != "passed")
    # If a test failed, pytest's exit status adds nothing.
    all_passed = bool(tests) and all(result["outcome"] == "passed" for result in tests.values())
    if all_passed and reply["ended"] is not None and (reply["ended"], reply["exit"]) != (0, 0):
        yield f"pytest ended with exit status {reply['ended']}, its process with {reply['exit']}"


def ids_without_tests(selection: PytestTests, tests: Collection[str]) -> list[str]:
    """Return the ids that match no test."""
    return [name for name in selection.ids if not any(is_named(test, normalize_test_id(name)) for test in tests)]


def is_named(test: str, name: str) -> bool:
    """Return whether the node id is that of a test, or below a function, class, file or folder, of that name."""
    return test == name or test.startswith((f"{name}[", f"{name}::", f"{name}/"))


def _evidence(reply: Mapping[str, Any]) -> str | None:
    """Return the line that pytest marks as the error in the first message, or the end of the message."""
    messages: Sequence[str] = [message for _, message in reply["problems"]]
    messages = [*messages, *(result.get("message", "") for result in reply["tests"].values())]
    message = next(filter(None, messages), None)
    if message is None:
        return None
    marked = [line[1:].strip() for line in message.splitlines() if line.startswith("E ")]
    return excerpt(" ".join(marked) or message)


def normalize_test_id(name: str) -> str:
    """Return a test id as pytest prints it: its path without `.` and needless slashes."""
    path, colons, rest = name.partition("::")
    return "/".join(part for part in path.split("/") if part not in ("", ".")) + colons + rest
