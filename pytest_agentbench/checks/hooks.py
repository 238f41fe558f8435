"""Python hooks: the case author's own callables, each in a child process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import CheckContext, Verdict, excerpt, verdict
from pytest_agentbench.config import SecurityPolicy
from pytest_agentbench.records import PythonHook
from pytest_agentbench.workspaces import ExecResult, Workspace
from pytest_agentbench.workspaces.sandboxes.local import LocalSandbox

HOOK_SECONDS = 30.0
"""How long one hook may run."""

_DRIVER = str(Path(__file__).with_name("hook_driver.py"))
_REQUEST, _RESULT = "request.json", "result.json"


async def run_hook(hook: PythonHook, context: CheckContext, policy: SecurityPolicy) -> Verdict:
    """The hook's verdict; `skipped` where the policy forbids hooks, `error` where it gives none."""
    if not policy.allow_local_python_hooks:
        return Verdict(
            "skipped",
            "Python hooks are off; to run this one, set security_policy.allow_local_python_hooks: true in the "
            "evaluation profile",
        )
    with tempfile.TemporaryDirectory(prefix="agentbench-hook-", ignore_cleanup_errors=True) as folder:
        own = Workspace(Path(folder))
        (own.path / _REQUEST).write_text(_request(hook, context), encoding="ascii")
        command = [sys.executable, "-I", "-B", _DRIVER, str(own.path / _REQUEST), str(own.path / _RESULT)]
        ended = await LocalSandbox(own).exec(command, seconds=HOOK_SECONDS)
        reply = json.loads(own.read_bytes(_RESULT)) if own.kind(_RESULT) == "file" else None
    return _verdict(reply, ended)


def _request(hook: PythonHook, context: CheckContext) -> str:
    described = hook.model_dump()
    if hook.path is not None:
        described["path"] = str((context.case.path.parent / hook.path).resolve())
    return json.dumps(
        {
            "hook": described,
            "case": context.case.model_dump(mode="json", by_alias=True),
            "artifact": context.artifact.model_dump(mode="json"),
            "workspace": None if context.workspace is None else str(context.workspace.path),
        }
    )


def _verdict(reply: dict[str, Any] | None, ended: ExecResult) -> Verdict:
    printed = {"printed": excerpt(ended.output)} if ended.output.strip() else {}
    if reply is None:
        end = (
            f"was stopped after {HOOK_SECONDS:g} s"
            if ended.killed == "time-out"
            else f"ended with exit code {ended.exit_code}"
        )
        return Verdict("error", f"the hook {end} and gave no verdict", outputs=printed)
    if "error" in reply:
        return Verdict("error", reply["error"], outputs=printed)
    metadata = {"metadata": reply["metadata"]} if reply.get("metadata") else {}
    found = verdict(reply["passed"], reply.get("message") or f"the hook {'passed' if reply['passed'] else 'failed'}")
    return Verdict(found.outcome, found.message, outputs={**reply.get("outputs", {}), **metadata, **printed})
