"""An image's OpenClaw, looked at once a session: its version, and whether it takes the agent's configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_agentbench.config import located
from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.records import Model
from pytest_agentbench.runners.openclaw.agent import OpenClawAgent
from pytest_agentbench.runners.openclaw.configuration import PROMPT_KEY, openclaw_config
from pytest_agentbench.runners.openclaw.control import CONFIG_NAME, ENVIRONMENT, control_folder, furnish, mount_of
from pytest_agentbench.runners.openclaw.replies import json_objects, last_lines
from pytest_agentbench.workspaces import ExecResult, Sandbox, Sandboxes, SandboxSpec

_SECONDS = 120.0
_MISSING = (126, 127)
_AGENT, _DEFAULTS, _MODEL = ("openclaw", "agent"), ("openclaw", "agents_defaults"), ("openclaw", "model_defaults")


Issues = tuple[Mapping[str, Any], ...]
"""What `openclaw config validate` has against a configuration, each with `path` and `message`."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What an image's OpenClaw is: its `version` as it says it, and the `config` (openclaw.json) that it takes.

    `prompt_file` says that it takes no prompt there: the agent's prompt is to be the head of its AGENTS.md.
    """

    version: str
    config: bytes
    prompt_file: bool


class Examiner:
    """Examines each pair of image and configuration once, in a container of its own, however many runs need it."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._examined: dict[tuple[SandboxSpec, bytes], asyncio.Task[Examined]] = {}

    async def examined(
        self, spec: SandboxSpec, agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any]
    ) -> Examined:
        """What runs of this agent on this model are to know. `parameters` are those of `model_parameters`.

        Raises UnavailableError for an image without OpenClaw, ConfigError where OpenClaw refuses the configuration,
        SandboxError.
        """
        key = (spec, _encoded(openclaw_config(agent, model, parameters, prompt_override=True)))
        known = self._examined.get(key)
        if known is None or (known.done() and _may_work_now(known)):
            known = asyncio.ensure_future(self._examine(spec, agent, model, parameters))
            self._examined[key] = known
        return await asyncio.shield(known)

    async def close(self) -> None:
        """Ends what is still being examined."""
        tasks = [task for task in self._examined.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _examine(
        self, spec: SandboxSpec, agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any]
    ) -> Examined:
        workspace = self._sandboxes.workspace(None, "openclaw")
        with control_folder(self._sandboxes) as folder:
            mounted = replace(spec, mounts=(*spec.mounts, mount_of(folder)))
            sandbox = await self._sandboxes.start(mounted, workspace)
            try:
                version = await _version(sandbox, spec)
                config, issues = b"", Issues()
                for prompt_override in (True, False):
                    config = _encoded(openclaw_config(agent, model, parameters, prompt_override=prompt_override))
                    furnish(folder, CONFIG_NAME, config)
                    issues = await _issues(sandbox)
                    if not any(PROMPT_KEY in str(issue.get("message")) for issue in issues):
                        break
            finally:
                await sandbox.stop()
                self._sandboxes.workspaces.remove(workspace)
        if issues:
            raise located(agent.path, (_problem(issue, version) for issue in issues))
        return Examined(version, config, prompt_file=not prompt_override and agent.prompt is not None)


def _encoded(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def _may_work_now(task: asyncio.Task[Examined]) -> bool:
    """Whether what failed may succeed at the next try: a configuration and an image stay as they are."""
    return task.cancelled() or not isinstance(task.exception(), ConfigError | UnavailableError | None)


async def _version(sandbox: Sandbox, spec: SandboxSpec) -> str:
    for program in ("node", "openclaw"):
        done = await _run(sandbox, [program, "--version"])
        if done.exit_code in _MISSING:
            raise UnavailableError(
                f"the image {spec.image} has no `{program}`, which the runner openclaw needs: {done.output.strip()}; "
                "name another in the run profile's `openclaw.image`, or build one with `agentbench openclaw image`"
            )
        if done.exit_code != 0:
            raise SandboxError(f"`{program} --version` failed in {spec.image}: {_ending(done)}")
    return done.output.strip().splitlines()[-1] if done.output.strip() else "unknown"


async def _issues(sandbox: Sandbox) -> Issues:
    """What OpenClaw has against the configuration in the control folder, empty where it takes it."""
    done = await _run(sandbox, ["openclaw", "config", "validate", "--json"])
    if done.exit_code == 0:
        return ()
    found = next((found["issues"] for found in json_objects(done.output) if found.get("valid") is False), None)
    if not isinstance(found, list) or not found:
        raise SandboxError(f"`openclaw config validate` failed: {_ending(done)}")
    return tuple(each for each in found if isinstance(each, Mapping))


async def _run(sandbox: Sandbox, argv: Sequence[str]) -> ExecResult:
    return await sandbox.exec(argv, seconds=_SECONDS, environment=ENVIRONMENT)


def _ending(done: ExecResult) -> str:
    how = f"killed ({done.killed})" if done.killed is not None else f"exit code {done.exit_code}"
    return f"{how}\n{last_lines(done.output)}"


def _problem(issue: Mapping[str, Any], version: str) -> tuple[tuple[str, ...], str]:
    """The field of agent.yaml that an issue comes from, and what to say there."""
    path, message = str(issue.get("path")), str(issue.get("message"))
    loc: tuple[str, ...] = ("openclaw",)
    if path.startswith("agents.defaults.models"):
        loc = _MODEL
    elif path.startswith("agents.defaults"):
        loc = (*_DEFAULTS, *path.split(".")[2:])
    elif path.startswith(("agents.list", "agents.entries")):
        loc = (*_AGENT, *path.split(".")[3:])
    return loc, f"{version} refuses the configuration that comes of it: {path}: {message}; change it or leave it out"
