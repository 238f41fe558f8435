"""A run: one case on one model once, from the first request to the final output, as it is stored."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.records.base import HexId, Later, Record, RunStatus
from pytest_agentbench.records.case import Role


class Event(Record):
    """Base of trace events: `sequence` from 0, `at` in seconds since the run began.

    `turn` counts the turns of a conversation from 1. It is None in a run of one turn, and outside of the turns.
    """

    sequence: int
    at: float
    turn: int | None = Field(default=None, exclude_if=lambda value: value is None)


class MessageEvent(Event):
    """A message the agent was given or wrote."""

    type: Literal["message"] = "message"
    role: Role
    content: str
    name: str | None = None


class ToolCallEvent(Event):
    """A call of a tool. `arguments` is None if the model's text was no JSON object; `raw` then contains the text.

    `offered` is whether the run had a tool of that name, None if unknown. `schema_valid` is whether the arguments
    satisfy the tool's schema, None if they cannot be checked: no such tool, or a broken schema.

    A program that gets the run's tools by MCP: `agent_name` is its own name of the tool. `recorded_by` is `mcp` if the
    run's MCP endpoint got the call. `executed` False: the program did not make the call of its model, for the `reason`.
    `asked_by_model` False: the program made the call itself.
    """

    type: Literal["tool_call"] = "tool_call"
    call_id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str | None = None
    offered: bool | None = None
    schema_valid: bool | None = None
    agent_name: str | None = Field(default=None, exclude_if=lambda value: value is None)
    recorded_by: Literal["mcp"] | None = Field(default=None, exclude_if=lambda value: value is None)
    executed: bool = Field(default=True, exclude_if=lambda value: value)
    reason: str | None = Field(default=None, exclude_if=lambda value: value is None)
    asked_by_model: bool = Field(default=True, exclude_if=lambda value: value)


class ToolResultEvent(Event):
    """A tool's answer. `is_error` marks a call that failed; `duration_seconds` is the duration of the tool's execution.

    `broken` marks a failure of the tool's code, which does not count against the agent. `refused` marks a call that
    never reached the tool: there is no such tool, it does not accept the arguments, or a program did not make the call.
    `shown` is the text that a program showed its model instead of the result, None if they are equal.
    """

    type: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str
    content: str
    is_error: bool = False
    broken: bool = False
    refused: bool = Field(default=False, exclude_if=lambda value: not value)
    duration_seconds: float | None = None
    shown: str | None = Field(default=None, exclude_if=lambda value: value is None)


class RunnerEvent(Event):
    """Something the runner did: a request, a retry, a forced final answer."""

    type: Literal["runner"] = "runner"
    name: str
    data: dict[str, Any] = Field(default_factory=dict)


class FinalOutputEvent(Event):
    """The agent's answer."""

    type: Literal["final_output"] = "final_output"
    content: str


TraceEvent = Annotated[
    MessageEvent | ToolCallEvent | ToolResultEvent | RunnerEvent | FinalOutputEvent, Field(discriminator="type")
]


class Unsettled(Record):
    """The requests of a usage that may be billed and that returned no usage, and the part of the usage that is known.

    `estimated_cost_usd` (None if the model has no price) and `estimated_tokens` are assumed for these requests.
    The agent hung up on `given_up` of them.
    """

    requests: int
    given_up: int = 0
    estimated_cost_usd: float | None = None
    estimated_tokens: int = 0
    known_cost_usd: float | None = None
    known_input_tokens: int | None = None
    known_output_tokens: int | None = None


class Usage(Record):
    """Tokens and money of a run. Unknown is None, never 0.

    `input_tokens` include those read from the provider's cache (`cached_tokens`) and those written to it
    (`cache_write_tokens`, of which `cache_write_1h_tokens` for an hour). `uncached_cost_usd` is the cost without it.
    `unsettled` is None if every request returned its usage.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    cost_usd: float | None = None
    uncached_cost_usd: float | None = None
    raw: tuple[dict[str, Any], ...] = ()
    unsettled: Unsettled | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def known(self) -> tuple[float | None, int | None, int | None]:
        """Return USD, input tokens and output tokens that were certainly used, None if none are known."""
        part = self.unsettled
        if part is None:
            return self.cost_usd, self.input_tokens, self.output_tokens
        return part.known_cost_usd, part.known_input_tokens, part.known_output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Return both together. Unknown plus known is unknown: a sum that leaves something out would mislead."""

        def plus(a: float | None, b: float | None) -> Any:
            if a is None or b is None:
                return None
            return a + b

        return Usage(
            input_tokens=plus(self.input_tokens, other.input_tokens),
            output_tokens=plus(self.output_tokens, other.output_tokens),
            total_tokens=plus(self.total_tokens, other.total_tokens),
            reasoning_tokens=plus(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=plus(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=plus(self.cache_write_tokens, other.cache_write_tokens),
            cache_write_1h_tokens=plus(self.cache_write_1h_tokens, other.cache_write_1h_tokens),
            cost_usd=plus(self.cost_usd, other.cost_usd),
            uncached_cost_usd=plus(self.uncached_cost_usd, other.uncached_cost_usd),
            raw=self.raw + other.raw,
            unsettled=_add_unsettled(self, other),
        )


def _add_unsettled(one: Usage, other: Usage) -> Unsettled | None:
    parts = [usage.unsettled for usage in (one, other) if usage.unsettled is not None]
    if not parts:
        return None

    def known_sum(values: Iterable[Any]) -> Any:
        known = [value for value in values if value is not None]
        if known:
            return sum(known)
        return None

    cost, input_tokens, output_tokens = map(known_sum, zip(one.known, other.known, strict=True))
    return Unsettled(
        requests=sum(part.requests for part in parts),
        given_up=sum(part.given_up for part in parts),
        estimated_cost_usd=known_sum(part.estimated_cost_usd for part in parts),
        estimated_tokens=sum(part.estimated_tokens for part in parts),
        known_cost_usd=cost,
        known_input_tokens=input_tokens,
        known_output_tokens=output_tokens,
    )


class OutputArtifact(Record):
    """A file or value the run left behind. `uri` is relative to the store; `size` in bytes, `sha256` hex."""

    artifact_id: str
    artifact_type: str
    uri: str
    media_type: str | None = None
    size: int | None = None
    sha256: HexId | None = None


class FileFacts(Record):
    """Facts of a path in a workspace. `mode` are the permission bits, `size` is in bytes, for files only.

    `sha256` (hex) is None for other kinds than files, for unreadable files, and for files beyond the limits. `target`
    is the text of a link, which is never followed.
    """

    kind: Literal["file", "folder", "link", "other"]
    mode: int
    size: int | None = None
    sha256: HexId | None = None
    target: str | None = None

    def __str__(self) -> str:
        if self.kind == "link":
            return f"link to {self.target}"
        if self.size is None:
            return self.kind
        return f"{self.kind}, {self.size:,} bytes"


class FileChange(Record):
    """A change of one path of a run's workspace. `before` and `after` are the facts, None if the path did not exist.

    A file of the same content at another path is `renamed`, from `renamed_from`; `mode` changed only the permissions.
    `diff` is a unified diff of text, without a header; `note` is the reason if it is missing or was cut.
    """

    path: str
    change: Literal["added", "removed", "modified", "renamed", "mode"]
    before: FileFacts | None = None
    after: FileFacts | None = None
    renamed_from: str | None = None
    diff: str | None = None
    note: str | None = None

    @property
    def sentence(self) -> str:
        """Return the change in a line, without its diff. Names are as the agent wrote them: they may hold anything."""
        if self.change == "renamed":
            return f"renamed {self.renamed_from} to {self.path}"
        facts = [fact for fact in (self.before, self.after) if fact is not None]
        texts: Iterable[str] = map(str, facts)
        if self.change == "mode":
            texts = (f"{fact.mode:03o}" for fact in facts)
        details = " -> ".join(dict.fromkeys(texts))  # once if equal, such as two files of one size
        if self.note:
            details += f"; {self.note}"
        return f"{self.change} {self.path} ({details})"


class SandboxUsed(Record):
    """The sandbox of a run's commands. `image` and `image_id` are the name and the id of a container's image.

    `kind` may be of a plugin that no longer is here.
    """

    kind: str
    image: str | None = None
    image_id: str | None = None


WORKSPACE_NOTE = "agentbench.workspace"
"""Key in a run's metadata, set if its workspace is not kept entirely: `not_kept` is the reason, `left_out` are paths.

`not_compared` is the reason why there are no changes, `more_changes` the number of changes that are not listed.
"""

SERVERS_NOTE = "agentbench.servers"
"""In a run's metadata, if its case has servers that it can do without.

`optional` is their number, `left_out` maps the names of those that were not offered to the reasons.
"""

MCP_PROTOCOL = "agentbench.mcp_protocol"
"""In a run's metadata: the versions of MCP that its servers were asked in, by their names."""

LIVE_GRADES = "agentbench.live_grades"
"""In a run's metadata: the grades that were made in its sandbox, by the names of their graders."""


TURN_GRADES = "agentbench.turn_grades"
"""In a run's metadata: the grades that were made of its turns, by the names of their graders."""


TURN_FILES = "agentbench.turn_files"
"""In a run's metadata: the verdicts of checks of files after each turn that succeeded, by number and check."""


class RunError(Record):
    """The reason why a run's status is not success."""

    code: str
    message: str
    retryable: bool = False


EndReason = Literal[
    "answered",
    "refused",
    "length",
    "empty",
    "max_turns",
    "context_exceeded",
    "filtered",
    "malformed_reply",
    "no_text",
    "timed_out",
    "unsupported",
    "provider_error",
    "aborted",
    "rejected",
    "request_refused",
    "authentication",
    "quota",
    "interrupted",
    "agent_failed",
    "invalid_output",
]
"""How a run ended, with the same words for all providers. A user's agent sets the last two: it reported a failure,
or returned a value that runners may not return.
"""
CALL_AS_TEXT = "tool_call_as_text"
"""Name of the runner event of a reply whose text calls a tool that was offered."""
STEADY_ENDS: frozenset[EndReason] = frozenset({"filtered", "context_exceeded", "length", "max_turns"})
"""Ends of failed runs that would be the same again: their runs count as results and are reused."""


class EndDetail(Record):
    """Details of a run's end, in addition to its reason.

    `side` is the side that a filter withheld, `categories` are its findings. `at` is whether the first request
    or a later one ended the run, `request` is that request's number. `raw` is the endpoint's word. `truncated`: the
    endpoint cut a prompt silently. `turn` is the turn of the conversation that ended the run, None without turns.
    """

    side: Literal["input", "output"] | None = None
    at: Literal["first_request", "loop"] | None = None
    categories: tuple[str, ...] = ()
    raw: str | None = None
    request: int | None = None
    truncated: bool = False
    turn: int | None = Field(default=None, exclude_if=lambda value: value is None)


def describe_end(
    reason: str,
    detail: EndDetail | None = None,
    *,
    has_text: bool = False,
    limit: int | None = None,
    thoughts: int | None = None,
    turns: int | None = None,
) -> str:
    """Return the end of a run in a few words, for people.

    `limit` is the maximum of tokens of a reply, `thoughts` is how many of them were reasoning, `turns` is the maximum
    number of requests of the run.
    """
    detail = detail or EndDetail()
    if reason == "filtered":
        text = f"the provider's filter withheld the {'prompt' if detail.side == 'input' else 'answer'}"
        if detail.categories:
            text += f" ({', '.join(detail.categories)})"
        return text
    if reason == "context_exceeded":
        if detail.at == "loop":
            return f"the conversation ({detail.request} turns) no longer fits the model's window"
        return "the case's own input does not fit the model's window"
    # Before the plain cut: a larger limit helps only if it leaves room after the reasoning
    if reason == "length" and thoughts and not has_text:
        return f"reasoning took {thoughts} of {limit or thoughts} output tokens"
    if reason == "length":
        text = "cut at the token limit"
        if limit:
            text += f" ({limit})"
        if not has_text:
            text += ", before any text"
        return text
    if reason == "max_turns":
        if turns and turns > 1:
            return f"used all {turns} turns"
        return "used its turns"
    if reason == "malformed_reply":
        return f"no readable tool call: {detail.raw or 'no text and no tool call'}"
    if reason == "no_text":
        return f"the answer has no text, only {detail.raw or 'other media'}"
    if reason == "aborted":
        return "the server stopped generating"
    return {"refused": "refused", "empty": "blank answer"}.get(reason, reason.replace("_", " "))


class RoleUse(Record):
    """The use of a further model of a run: the model that played the role, and the usage of its requests."""

    model_id: str
    usage: Later[Usage] = Field(default_factory=Usage)


class RunArtifact(Record):
    """The stored record of one run. `error` is set exactly if `status` is not success.

    `model` contains the identity only: model_id, requested_model, label, scripted. Times are UTC, durations in seconds.
    `workspace` is the archive of the run's folder, relative to the store, None without a folder. `changes` are the
    changes to that folder, sorted by path; None without a folder, or if they are unknown. `sandbox` is the kind of
    sandbox of its commands, None if it had none. `cassette` is set if model replies were recorded, or if the run was
    replayed from a record without asking a model. `roles` are the further models that the run has asked, by role;
    `usage` does not include theirs.
    """

    schema_version: Literal[2] = 2
    run_id: HexId
    case_id: str
    suite_id: str | None = None
    run_profile_id: str | None = None
    runner_type: str
    model: dict[str, Any]
    repetition: int
    fingerprint: HexId | None = None
    status: RunStatus
    started_at: datetime
    duration_seconds: float
    request: dict[str, Any] = Field(default_factory=dict)
    provider: dict[str, Any] = Field(default_factory=dict)
    usage: Later[Usage] = Field(default_factory=Usage)
    roles: dict[str, Later[RoleUse]] = Field(default_factory=dict, exclude_if=lambda value: not value)
    trace: tuple[TraceEvent, ...] = ()
    output_artifacts: tuple[Later[OutputArtifact], ...] = ()
    workspace: str | None = None
    changes: tuple[Later[FileChange], ...] | None = None
    sandbox: Later[SandboxUsed] | None = None
    cassette: Literal["recorded", "replayed"] | None = None
    error: Later[RunError] | None = None
    end_reason: EndReason | None = None
    end_detail: Later[EndDetail] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def final_output(self) -> str | None:
        """Return the last final output, or None."""
        return next((e.content for e in reversed(self.trace) if isinstance(e, FinalOutputEvent)), None)

    @property
    def has_turns(self) -> bool:
        """Return whether its events belong to the turns of a conversation."""
        return any(event.turn is not None for event in self.trace)

    @property
    def ending(self) -> str | None:
        """Return the end of the run in a few words; None for a plain answer or an unknown end."""
        # The number of the request of the last runner event of each kind
        last = {event.name: event.data.get("number") for event in self.trace if isinstance(event, RunnerEvent)}
        # First: a call that came as text looks like an answer, and its end reason is `answered`
        if CALL_AS_TEXT in last:
            return "a tool call came as text: the endpoint seems to have no tool parser"
        if self.end_reason in (None, "answered"):
            return None
        if self.end_reason == "empty" and "reasoning" in last and last["reasoning"] == last.get("reply"):
            return "blank answer: all text came as reasoning, so the endpoint's reasoning parser may have misfiled it"
        parameters = self.request.get("parameters") or {}
        return describe_end(
            self.end_reason or "",
            self.end_detail,
            has_text=bool((self.final_output or "").strip()),
            limit=parameters.get("max_tokens") or parameters.get("max_completion_tokens"),
            thoughts=self.usage.reasoning_tokens,
            turns=self.request.get("max_turns"),
        )

    @property
    def changes_untold(self) -> str | None:
        """Return the reason why nothing was compared, or how many changes `changes` omits; None if it is complete."""
        note = self.metadata.get(WORKSPACE_NOTE) or {}
        if (reason := note.get("not_compared")) is not None:
            return f"not compared: {reason}"
        more = note.get("more_changes")
        if more:
            return f"{more:,} more changes that are not listed"
        return None

    @property
    def changed_files(self) -> tuple[str, ...]:
        """Return the paths of the regular files that the run created or changed in its workspace, renamed ones too."""
        made = (change for change in self.changes or () if change.after is not None and change.after.kind == "file")
        return tuple(change.path for change in made if change.change != "mode")

    @property
    def round_event(self) -> str:
        """Return the name of the runner events that begin a round: the planner's `round`, else `request`."""
        if any(isinstance(e, RunnerEvent) and e.name == "round" for e in self.trace):
            return "round"
        return "request"

    @property
    def rounds(self) -> int | None:
        """Return the number of rounds in which tools were called, None if its runner records no rounds.

        A round of Algorithm 1 (seed 004, 3.1) plans and executes. A round that only ends the planning, or is the
        answer, does not count, so that native function calling and the planner are comparable.
        """
        # Numbers of rounds, because several calls of one round count once
        name, begun, with_calls = self.round_event, 0, set[int]()
        for event in self.trace:
            if isinstance(event, RunnerEvent) and event.name == name:
                begun += 1
            elif isinstance(event, ToolCallEvent):
                with_calls.add(begun)
        if begun:
            return len(with_calls)
        return None

    @property
    def broken_tools(self) -> tuple[tuple[str, str], ...]:
        """Return the tools whose code failed, each with the first line of the error."""
        results = (event for event in self.trace if isinstance(event, ToolResultEvent) and event.broken)
        return tuple((event.name, event.content.partition("\n")[0]) for event in results)

    @property
    def tool_calls(self) -> tuple[ToolCallEvent, ...]:
        """Return all tool calls, in order."""
        return tuple(event for event in self.trace if isinstance(event, ToolCallEvent))


def answers_with_files(runner_type: str) -> bool:
    """Return whether files may be the answer of a run of this runner."""
    return bool(getattr(find_extension("runner", runner_type), "answers_with_files", False))
