"""Messages of a case's input, and the turns of a conversation with their checks and expectations."""

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from pytest_agentbench.config.base import LocalFile, complain, suggest, validate_together
from pytest_agentbench.config.check_list import TurnChecks, find_expectation_turns, place_problems
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.short_forms import ExpectationsField
from pytest_agentbench.records.base import Later, Record, Seconds, Text
from pytest_agentbench.records.case import Expectations, GivenCall, Message, Role


class MessageSource(Record):
    """A file that holds the text, one message, or a list of messages."""

    path: LocalFile
    """Relative to test.yaml."""
    format: Literal["yaml", "json", "text"] | None = None
    """Default: by the file's extension; anything but .yaml, .yml and .json is text."""


class MessageSpec(Record):
    """One chat message, inline or from a file."""

    role: Role
    """The author of the message."""
    content: str | None = None
    """The text."""
    source: Later[MessageSource] | None = None
    """The place of the text, if it is not here."""
    name: str | None = None
    """Name of the speaker."""
    tool_calls: tuple[Later[GivenCall], ...] = ()
    """Tools that an assistant message calls; messages of role tool give their results."""
    tool_call_id: Text | None = None
    """The call of which a message of role tool is the result."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.content is not None and self.source is not None:
            raise ValueError("a message cannot define both 'content' and 'source'")
        if self.content is None and self.source is None and not self.tool_calls:
            raise ValueError("a message requires either inline 'content' or a 'source'")
        return self


def find_call_problems(messages: Sequence[MessageSpec | Message]) -> list[tuple[Loc, str]]:
    """Return the problems that every endpoint refuses: results without a call, calls without a result, repeated ids."""
    found: list[tuple[Loc, str]] = []
    calls: dict[str, Loc] = {}
    answered: set[str] = set()
    for index, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            text = f"found in a message of role {message.role!r}, expected role 'assistant', which calls tools"
            found.append(((index, "tool_calls"), text))
        for nth, call in enumerate(message.tool_calls):
            place: Loc = (index, "tool_calls", nth, "id")
            if call.id in calls:
                found.append((place, f"Duplicate id {call.id!r}; each must be unique in the conversation"))
            calls.setdefault(call.id, place)
        found += (((index, *at), text) for at, text in _find_result_problems(message, calls, answered))
    unanswered = (
        (place, f"found no result of the call {name!r}; add a message with role 'tool' and tool_call_id {name!r}")
        for name, place in calls.items()
        if name not in answered
    )
    return [*found, *unanswered]


def _find_result_problems(
    message: MessageSpec | Message, calls: Collection[str], answered: set[str]
) -> Iterator[tuple[Loc, str]]:
    """Yield the problems of a message as the result of a call. Add its call to `answered`."""
    call_id = message.tool_call_id
    if message.role != "tool":
        if call_id is not None:
            yield ("tool_call_id",), f"found in a message of role {message.role!r}, expected role 'tool'"
        return
    if call_id is None:
        yield (
            (),
            "a message of role 'tool' needs a 'tool_call_id': the id in 'tool_calls' of an assistant message before",
        )
    elif call_id not in calls:
        yield ("tool_call_id",), f"no message before calls a tool with the id {call_id!r}{suggest(call_id, calls)}"
    elif call_id in answered:
        yield ("tool_call_id",), f"Duplicate result of the call {call_id!r}; remove one of them"
    answered.add(call_id or "")


def find_inline_call_problems(messages: tuple[MessageSpec, ...], _: ValidationInfo) -> list[tuple[Loc, str]]:
    """Return the problems of `find_call_problems`, or [] if files hold messages, which are read later."""
    if any(message.source is not None for message in messages):
        return []
    return find_call_problems(messages)


def _refuse_expectation_turns(written: Any, read: ValidatorFunctionWrapHandler) -> Expectations:
    expectations: Expectations = read(written)
    message = "found in an expectation of a turn, which is about this turn; leave it out"
    complain((place, message) for place, _ in place_problems(written, find_expectation_turns(expectations, 0)))
    return expectations


class TurnSpec(MessageSpec):
    """One user message of a conversation, for runners that hold one."""

    role: Literal["user"]
    """Always user."""
    max_seconds: Seconds | None = None
    """Time for the agent's answer to this turn; default: the conversation's turn_timeout_seconds."""
    checks: TurnChecks = ()
    """Checks of this turn: of its answer and its tool calls."""
    expectations: Annotated[ExpectationsField, WrapValidator(_refuse_expectation_turns)] = Field(
        default_factory=Expectations
    )
    """Statements about this turn that the judge weighs; or a list of hard ones."""


def _turn_list_problems(turns: tuple[TurnSpec, ...], _: ValidationInfo) -> list[tuple[Loc, str]]:
    """Return a problem for each check_id that an earlier turn has. The ids within a turn are compared there."""
    problems: list[tuple[Loc, str]] = []
    seen = set[str]()
    for index, turn in enumerate(turns):
        problems += (
            (
                (index, "checks", at, "check_id"),
                f"Duplicate check_id {check.check_id!r}; each must be unique",
            )
            for at, check in enumerate(turn.checks)
            if check.check_id in seen
        )
        seen.update(check.check_id for check in turn.checks)
    return problems


Turns = Annotated[tuple[Later[TurnSpec], ...], validate_together(_turn_list_problems)]
"""The turns of a conversation, in order."""
