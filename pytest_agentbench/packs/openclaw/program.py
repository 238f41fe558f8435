"""Read the output of the program `openclaw`: its replies to turns, its version, and its checks of configurations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.documents import make_located_error
from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.openclaw.container import (
    CONFIG_NAME,
    ENVIRONMENT,
    PROMPT_KEY,
    OpenClawAgent,
    make_mount,
    make_openclaw_config,
)
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.agents.places import control_folder, write_readable
from pytest_agentbench.runners.base import clean
from pytest_agentbench.runners.gateway.bounds import is_plain
from pytest_agentbench.terminal_text import last_lines
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox, SandboxSpec

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

_MOST_OBJECTS = 100_000
"""Maximum number of objects examined: an agent may print many after its reply."""

_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class Reply:
    """OpenClaw's report of a turn. `text` are its payloads, joined by blank lines.

    `error` is why the turn failed, or None; `timed_out` is set if OpenClaw's own time limit ended it.
    `account` has its counts: usage, tools, ids.
    """

    text: str
    error: str | None = None
    timed_out: bool = False
    account: Mapping[str, Any] = field(default_factory=dict)


def find_reply(output: str) -> Reply | None:
    """Return the last reply that begins a line of the output, or None.

    A reply is a JSON object with `payloads` and `meta`, or one with `ok: false` and `error`.
    """
    for document in find_json_objects(output):
        if (reply := _read(clean(document))) is not None:
            return reply
    return None


def find_json_objects(output: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that begin at a line's first character, the last one first.

    No later line of such an object begins with a brace, as `JSON.stringify` indents them.
    """
    # With a line end in front, so that the first line is found like the others.
    decoder, text = json.JSONDecoder(), f"\n{output}"
    end = len(text)
    for _ in range(_MOST_OBJECTS):
        # From the end: the agent's own programs may have printed objects before the reply.
        begin = text.rfind("\n{", 0, end)
        if begin < 0:
            return
        piece, end = text[begin + 1 : end], begin + 1
        if not is_plain(piece.encode("utf-8", "replace")):
            continue
        try:
            document, _ = decoder.raw_decode(piece)
        except (ValueError, RecursionError):
            continue
        yield document


def select_last_lines(output: str) -> str:
    """Return the end of a log for an error."""
    return str(clean(last_lines(output)))


def _read(document: Mapping[str, Any]) -> Reply | None:
    payloads, meta, error = document.get("payloads"), document.get("meta"), document.get("error")
    if isinstance(payloads, list) and isinstance(meta, Mapping):
        return _read_turn([payload for payload in payloads if isinstance(payload, Mapping)], meta)
    if document.get("ok") is False and error is not None:
        return Reply("", error=_read_message(error) or "OpenClaw gave no reason")
    return None


def _read_turn(payloads: list[Mapping[str, Any]], meta: Mapping[str, Any]) -> Reply:
    """Return a turn by OpenClaw's own rules (`agent exec`) for failures and time-outs."""
    timed_out = meta.get("stopReason") == "timeout" or meta.get("timeoutPhase") is not None
    failed = meta.get("error") is not None or meta.get("stopReason") == "error" or meta.get("aborted") is True
    errors = [payload for payload in payloads if payload.get("isError") is True]
    reason = None
    if timed_out or failed or errors:
        reason = _read_message(meta.get("error")) or _join_texts(errors) or _explain_end(meta)
    return Reply(
        text=_join_texts([payload for payload in payloads if payload not in errors]),
        error=reason,
        timed_out=timed_out,
        account=_select_account(meta),
    )


def _select_account(meta: Mapping[str, Any]) -> dict[str, Any]:
    agent = as_object(meta.get("agentMeta"))
    account = {
        "session_id": agent.get("sessionId"),
        "usage": agent.get("usage"),
        "successful_tools": as_object(agent.get("terminalReceipt")).get("successfulToolNames"),
        "tool_summary": meta.get("toolSummary"),
        "duration_ms": meta.get("durationMs"),
        "stop_reason": meta.get("stopReason"),
        "timeout_phase": meta.get("timeoutPhase"),
        "aborted": meta.get("aborted"),
    }
    return {name: value for name, value in account.items() if value is not None and len(json.dumps(value)) <= _SHOWN}


def _join_texts(payloads: list[Mapping[str, Any]]) -> str:
    texts = (payload.get("text") for payload in payloads)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _explain_end(meta: Mapping[str, Any]) -> str:
    if meta.get("timeoutPhase") is not None:
        return f"its own time limit ended the turn (phase {meta['timeoutPhase']})"
    if meta.get("aborted") is True:
        return "the turn was aborted"
    return f"stop reason {meta.get('stopReason')}"


def _read_message(error: object) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(message, str):
        return message
    return ""


_SECONDS = 120.0
# Exit statuses of engines and shells for a program that is missing or not executable.
_MISSING = (126, 127)
_AGENT, _DEFAULTS, _MODEL = ("openclaw", "agent"), ("openclaw", "agents_defaults"), ("openclaw", "model_defaults")


Issues = tuple[Mapping[str, Any], ...]
"""Problems that `openclaw config validate` finds in a configuration, each with `path` and `message`."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Findings about an image's OpenClaw: its `version`, and the `config` (openclaw.json) that it accepts.

    `prompt_file` is set if it refuses a prompt in the configuration: the prompt is written to AGENTS.md instead.
    """

    version: str
    config: bytes
    prompt_file: bool


class Examiner:
    """Examine images with configurations: each pair once, in a separate container, for all runs that need it."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._examined: dict[tuple[SandboxSpec, bytes], asyncio.Task[Examined]] = {}

    async def examined(
        self, spec: SandboxSpec, agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any]
    ) -> Examined:
        """Return the findings for runs of this agent on this model. `parameters` are those of `merge_model_parameters`.

        Raises UnavailableError for an image without OpenClaw, ConfigError if OpenClaw refuses the configuration,
        SandboxError.
        """
        key = (spec, _encode(make_openclaw_config(agent, model, parameters, prompt_override=True)))
        task = self._examined.get(key)
        if task is None or (task.done() and _may_work_now(task)):
            task = asyncio.ensure_future(self._examine(spec, agent, model, parameters))
            self._examined[key] = task
        # Many runs wait for one examination: a cancelled run must not end it for the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel unfinished examinations."""
        tasks = [task for task in self._examined.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _examine(
        self, spec: SandboxSpec, agent: OpenClawAgent, model: Model, parameters: Mapping[str, Any]
    ) -> Examined:
        workspace = self._sandboxes.workspace(None, "openclaw")
        with control_folder(self._sandboxes) as folder:
            mounted = replace(spec, mounts=(*spec.mounts, make_mount(folder)))
            sandbox = await self._sandboxes.start(mounted, workspace)
            try:
                version = await _find_version(sandbox, spec)
                config, issues = b"", Issues()
                # Versions since 2026.9 refuse an agent's `systemPromptOverride`: examine again without it.
                for prompt_override in (True, False):
                    config = _encode(make_openclaw_config(agent, model, parameters, prompt_override=prompt_override))
                    write_readable(folder, CONFIG_NAME, config)
                    issues = await _find_issues(sandbox)
                    if not any(PROMPT_KEY in str(issue.get("message")) for issue in issues):
                        break
            finally:
                await sandbox.stop()
                self._sandboxes.workspaces.remove(workspace)
        if issues:
            raise make_located_error(agent.path, (_locate_issue(issue, version) for issue in issues))
        # `prompt_override` has the loop's last value: False if the version does not know the field.
        return Examined(version, config, prompt_file=not prompt_override and agent.prompt is not None)


def _encode(config: Mapping[str, Any]) -> bytes:
    return json.dumps(config, ensure_ascii=False, indent=2).encode("utf-8", "replace")


def _may_work_now(task: asyncio.Task[Examined]) -> bool:
    """Return whether a failed examination may succeed at the next try; a bad configuration or image stays bad."""
    return task.cancelled() or not isinstance(task.exception(), ConfigError | UnavailableError | None)


async def _find_version(sandbox: Sandbox, spec: SandboxSpec) -> str:
    for program in ("node", "openclaw"):
        done = await _run(sandbox, [program, "--version"])
        if done.exit_code in _MISSING:
            raise UnavailableError(
                f"the image {spec.image} has no `{program}`, which the runner openclaw needs: {done.output.strip()}; "
                "name another in the run profile's `openclaw.image`, or build one with `agentbench openclaw image`"
            )
        if done.exit_code != 0:
            raise SandboxError(f"`{program} --version` failed in {spec.image}: {_describe_end(done)}")
    # Node's warnings precede the JSON.
    if done.output.strip():
        return done.output.strip().splitlines()[-1]
    return "unknown"


async def _find_issues(sandbox: Sandbox) -> Issues:
    """Return OpenClaw's problems with the configuration in the control folder, () if it is accepted."""
    done = await _run(sandbox, ["openclaw", "config", "validate", "--json"])
    if done.exit_code == 0:
        return ()
    report = next((report for report in find_json_objects(done.output) if report.get("valid") is False), {})
    issues = report.get("issues")
    if not isinstance(issues, list) or not issues:
        raise SandboxError(f"`openclaw config validate` failed: {_describe_end(done)}")
    return tuple(issue for issue in issues if isinstance(issue, Mapping))


async def _run(sandbox: Sandbox, argv: Sequence[str]) -> ExecResult:
    return await sandbox.exec(argv, seconds=_SECONDS, environment=ENVIRONMENT)


def _describe_end(done: ExecResult) -> str:
    ending = f"killed ({done.killed})" if done.killed is not None else f"exit code {done.exit_code}"
    return f"{ending}\n{select_last_lines(done.output)}"


def _locate_issue(issue: Mapping[str, Any], version: str) -> tuple[tuple[str, ...], str]:
    """Return the path of the field of agent.yaml that causes an issue, and the message."""
    path, message = str(issue.get("path")), str(issue.get("message"))
    loc: tuple[str, ...] = ("openclaw",)
    if path.startswith("agents.defaults.models"):
        loc = _MODEL
    elif path.startswith("agents.defaults"):
        loc = (*_DEFAULTS, *path.split(".")[2:])
    # Agents by position or by id: `agents.list.0.name`, `agents.entries.ID.name`.
    elif path.startswith(("agents.list", "agents.entries")):
        loc = (*_AGENT, *path.split(".")[3:])
    return loc, f"{version} refuses the resulting configuration: {path}: {message}; change it or leave it out"
