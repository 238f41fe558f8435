"""Python hooks: the case author's callables, each in a process with few readable folders and without network."""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pytest_agentbench.checks.base import CheckContext, Verdict, excerpt, verdict
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import PythonHook
from pytest_agentbench.workspaces.sandboxes.base import Killed, ResourceLimits
from pytest_agentbench.workspaces.sandboxes.isolated import IsolatedResult, Isolation, isolation_problem, run_isolated
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.template import copy_tree
from pytest_agentbench.workspaces.workspace import TreeError, Workspace, walk_tree

HOOK_SECONDS = 30.0
"""How long one hook may run."""

HOOK_LIMITS = ResourceLimits(cpu_seconds=60, processes=64)
"""Limits of a hook's process and its children together."""

_DRIVER = Path(__file__).with_name("hook_driver.py")
_PACKAGE = _DRIVER.parents[1]
_OUTPUT_BYTES = 64_000


_OFF = (
    "Python hooks are off; to run this one, set security_policy.allow_local_python_hooks: true in the evaluation "
    "profile"
)


def require_hooks(case: Case, policy: SecurityPolicy, *, strict: bool = False) -> None:
    """Raise UnavailableError with a remedy if the case has allowed Python hooks that cannot run here.

    With `strict`, also raise it for hooks that the policy forbids.
    """
    if all(check.python_hook is None for check in case.checks):
        return
    if strict and not policy.allow_local_python_hooks:
        raise UnavailableError(_OFF)
    if policy.allow_local_python_hooks and (problem := _network_problem(policy)) is not None:
        raise UnavailableError(problem)


async def run_hook(hook: PythonHook, context: CheckContext, policy: SecurityPolicy) -> Verdict:
    """Return the hook's verdict: `skipped` if the policy forbids hooks or cannot be enforced here, `error` if the hook
    gave none.

    Raises SandboxError if its process cannot be started.
    """
    if not policy.allow_local_python_hooks:
        return Verdict("skipped", _OFF)
    if (problem := _network_problem(policy)) is not None:
        return Verdict("skipped", problem)
    try:
        async with _without_links_out(context) as seen:
            return await _run(hook, seen, policy)
    except TreeError as error:
        return Verdict("failed", f"the run's files cannot be copied for a hook: {error}")


@asynccontextmanager
async def _without_links_out(context: CheckContext) -> AsyncIterator[CheckContext]:
    """Yield the context with a workspace without links to the outside: a hook would take the case's files for the
    agent's.

    If the workspace has such links, or may have, it is a copy without them. Raises TreeError if there is too much to
    copy.
    """
    unseen: list[str] = []
    if context.workspace is None or not (
        await context.in_thread(partial(_links_out, context.workspace, unseen)) or unseen
    ):
        yield context
        return
    workspaces = Workspaces()
    try:
        copy = workspaces.create("hook")
        await context.in_thread(partial(_copy_without, context.workspace, copy))
        yield context._replace(workspace=copy)
    finally:
        await asyncio.to_thread(workspaces.close)


def _links_out(workspace: Workspace, unseen: list[str]) -> list[str]:
    """Return the links in it that lead elsewhere; folders that this user may not list are added to `unseen`."""
    root = os.path.realpath(workspace.path)
    links = [f"{root}/{entry.path}" for entry in walk_tree(root, unseen) if entry.kind == "link"]
    return [link for link in links if not f"{os.path.realpath(link)}/".startswith(f"{root}/")]


def _copy_without(workspace: Workspace, copy: Workspace) -> None:
    # Links are copied as links, relative ones may lead elsewhere from here: they are looked at once more in the copy.
    copy_tree(workspace.path, copy)
    for link in _links_out(workspace, []):
        copy.remove(os.path.relpath(link, os.path.realpath(workspace.path)))


async def _run(hook: PythonHook, context: CheckContext, policy: SecurityPolicy) -> Verdict:
    isolation = Isolation(
        readable=tuple(path for path in dict.fromkeys(_readable_paths(hook, context)) if path.exists()),
        network=policy.network_access == "allow",
        is_contained=isolation_problem() is None,
        limits=HOOK_LIMITS,
    )
    # Only the driver knows the key: otherwise a hook, or its child, could write a verdict and exit with
    # status 0.
    key = secrets.token_hex(32)
    done = await run_isolated(
        [sys.executable, "-I", "-B", str(_DRIVER)],
        isolation,
        seconds=HOOK_SECONDS,
        stdin=_request(hook, context, key),
        output_limit=_OUTPUT_BYTES,
    )
    return _verdict(done, key)


def _network_problem(policy: SecurityPolicy) -> str | None:
    """Return why hooks cannot be kept from the network here, with a remedy; None if they can, or need not be."""
    if policy.network_access == "allow" or (problem := isolation_problem()) is None:
        return None
    return (
        f"Python hooks may not use the network, which only bubblewrap can prevent, and {problem}; or set "
        "security_policy.network_access: allow in the evaluation profile if you trust them"
    )


def _readable_paths(hook: PythonHook, context: CheckContext) -> Iterator[Path]:
    """Yield a hook's readable folders besides the system's and Python's: case, hook code, workspace, package."""
    yield _PACKAGE
    yield context.case.path.parent
    if hook.path is not None:
        yield _file(hook, context).parent
    elif hook.import_path is not None:
        yield from _package_folder(hook.import_path)
    if context.workspace is not None:
        yield context.workspace.path


def _package_folder(import_path: str) -> Iterator[Path]:
    """Yield the folder of an import path's top-level package or module, as this process finds it."""
    try:
        spec = importlib.util.find_spec(import_path.partition(".")[0])
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        yield from (Path(folder) for folder in spec.submodule_search_locations)
    elif spec.has_location and spec.origin is not None:
        yield Path(spec.origin)


def _file(hook: PythonHook, context: CheckContext) -> Path:
    return (context.case.path.parent / (hook.path or "")).resolve()


def _request(hook: PythonHook, context: CheckContext, key: str) -> bytes:
    described = hook.model_dump()
    if hook.path is not None:
        described["path"] = str(_file(hook, context))
    folders: list[str] = []
    if hook.import_path is not None:
        folders += (str(path.parent) for path in _package_folder(hook.import_path))
    request = {
        "key": key,
        "hook": described,
        "folders": folders,
        "case": context.case.model_dump(mode="json", by_alias=True),
        "artifact": context.artifact.model_dump(mode="json"),
        "workspace": None if context.workspace is None else str(context.workspace.path),
    }
    return json.dumps(request).encode("ascii")


def _verdict(done: IsolatedResult, key: str) -> Verdict:
    printed = {"printed": excerpt(done.ended.output)} if done.ended.output.strip() else {}
    reply, problem = _read_reply(done, key)
    if reply is None:
        return Verdict("error", f"the hook {problem}", outputs=printed)
    if "error" in reply:
        return Verdict("error", reply["error"], outputs=printed)
    outputs = reply.get("outputs", {})
    if reply.get("metadata"):
        outputs = {**outputs, "metadata": reply["metadata"]}
    outcome = verdict(reply["passed"], "").outcome
    # The printed text comes last, so that no output of the hook replaces it.
    return Verdict(outcome, reply.get("message") or f"the hook {outcome}", outputs={**outputs, **printed})


def _read_reply(done: IsolatedResult, key: str) -> tuple[dict[str, Any] | None, str]:
    """Return the driver's reply, or why it is refused: it must have the key, and the driver must exit with 0."""
    if done.ended.killed is not None:
        return None, f"was stopped {_why(done.ended.killed)} and gave no verdict"
    if done.ended.exit_code != 0 or done.result == b"":
        return None, f"ended with exit code {done.ended.exit_code} and gave no verdict"
    if done.result is None:
        return None, "gave a verdict that is too long"
    try:
        # Two documents one after the other are no JSON: both sides of a fork have written.
        reply = json.loads(done.result)
    except ValueError:
        return None, "gave more than one verdict: it was copied by a fork, or it wrote where the verdict is reported"
    if not isinstance(reply, dict) or not _is_key(reply.pop("key", None), key):
        return None, "was ended by code that it ran, which wrote a verdict in its place"
    return reply, ""


def _is_key(value: object, key: str) -> bool:
    return isinstance(value, str) and hmac.compare_digest(value.encode("utf-8", "replace"), key.encode())


def _why(killed: Killed) -> str:
    return {
        "time-out": f"after {HOOK_SECONDS:g} s",
        "output": "because it printed without end",
        "memory": f"because it took more than {HOOK_LIMITS.memory_bytes:,} bytes of memory",
        "disk": f"because it wrote more than {HOOK_LIMITS.workspace_bytes:,} bytes",
        "processes": f"because it had more than {HOOK_LIMITS.processes} processes and threads",
    }[killed]
