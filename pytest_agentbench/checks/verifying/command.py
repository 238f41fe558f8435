"""A verifier that is a command: its exit code, what it prints, and the JSON object that it may write."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.checks.base import Verdict, excerpt, verdict
from pytest_agentbench.checks.json_values import compact, includes, loads
from pytest_agentbench.records import Verifier
from pytest_agentbench.workspaces import ExecResult, PathRefusedError, Sandbox

RESULT_VARIABLE = "AGENTBENCH_RESULT"
"""Names the file for the command's result, which is not there before."""

_MAX_RESULT = 256 * 1024
_OUTPUT = 16_384


class _Unreadable(Exception):
    """The file for the result holds no JSON object."""


def plain_environment(sandbox: Sandbox) -> dict[str, str]:
    """Variables that keep a verifier's programs from obeying what lies in the workspace."""
    return {
        "HOME": private_path(sandbox, ""),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def private_path(sandbox: Sandbox, name: str) -> str:
    """A path in the sandbox's /tmp as its programs see it."""
    folder = str(sandbox.workspace.private_tmp()) if sandbox.kind == "local" else "/tmp"  # noqa: S108 - its own
    return f"{folder}/{name}".rstrip("/")


async def run_command(verifier: Verifier, sandbox: Sandbox, environment: Mapping[str, str]) -> Verdict:
    """What the verifier's command finds. Raises SandboxError where the sandbox fails."""
    assert verifier.command is not None
    name = f"result-{secrets.token_hex(16)}.json"
    ended = await sandbox.exec(
        verifier.command,
        seconds=verifier.timeout_seconds,
        output_limit=_OUTPUT,
        environment={**environment, "PYTHONSAFEPATH": "1", RESULT_VARIABLE: private_path(sandbox, name)},
    )
    outputs: dict[str, Any] = {"exit_code": ended.exit_code, **printed(ended.output)}
    try:
        result = await _result(sandbox, name)
    except _Unreadable as error:
        return Verdict("failed", str(error), outputs=outputs)
    if result is not None:
        outputs["result"] = result
    found = _compare(verifier, ended, result)
    return Verdict(found.outcome, found.message, found.expected, found.actual, outputs)


def printed(output: str) -> dict[str, str]:
    """What a verifier printed, as evidence: nothing is read from it but what the case asks for."""
    return {"printed": output} if output.strip() else {}


def killed_for(ended: ExecResult, verifier: Verifier) -> str:
    """The sentence for a verifier that was killed."""
    if ended.killed == "time-out":
        return f"the verifier had not ended after {verifier.timeout_seconds:g} s"
    return f"the verifier was killed: it broke the sandbox's limit of {ended.killed}"


async def _result(sandbox: Sandbox, name: str) -> dict[str, Any] | None:
    """What the command wrote to its file, None where it wrote none."""
    try:
        found = loads((await sandbox.get(f"/tmp/{name}", _MAX_RESULT)).decode("utf-8"))  # noqa: S108 - the sandbox's
    except FileNotFoundError:
        return None
    except (PathRefusedError, OSError, ValueError) as error:
        raise _Unreadable(f"${RESULT_VARIABLE} holds no JSON: {error}") from error
    if not isinstance(found, dict):
        raise _Unreadable(f"${RESULT_VARIABLE}: found {type(found).__name__}, expected a JSON object")
    return found


def _compare(verifier: Verifier, ended: ExecResult, result: dict[str, Any] | None) -> Verdict:
    expected = verifier.expected
    if ended.killed is not None:
        return verdict(False, killed_for(ended, verifier), actual=excerpt(ended.output))
    if ended.exit_code != expected.exit_code:
        message = f"the verifier's command ended with exit code {ended.exit_code}, expected {expected.exit_code}"
        return verdict(False, message, actual=excerpt(ended.output))
    for text in expected.output_contains:
        if text not in ended.output:
            return verdict(False, "the verifier's command did not print the text", text, excerpt(ended.output))
    if expected.result is not None and (result is None or not includes(result, expected.result)):
        found = "nothing" if result is None else compact(result)
        return verdict(False, "the verifier's result is not as expected", compact(expected.result), found)
    return verdict(True, f"the verifier's command ended with exit code {ended.exit_code}")
