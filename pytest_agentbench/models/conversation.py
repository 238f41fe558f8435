"""The script of one case, and the place in a conversation that it answers: the last user message and its answers so
far.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.script_files import (
    Reply,
    ScriptedJudgement,
    ScriptedSearchResult,
    ScriptedStages,
    ScriptedVerdict,
    ScriptedVerdicts,
    ScriptedVotes,
    Step,
)
from pytest_agentbench.store.fingerprints import fingerprint

T = TypeVar("T")


class NoScript(AgentbenchError):
    """No script, or more than one, answers a request; the text says where to add or change one."""

    def __init__(self, message: str, code: str = "no_script") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Script:
    """The script of one case: its replies in order, its judges, its web. `path` is the file that it comes from."""

    path: Path
    replies: tuple[Reply, ...]
    judge: ScriptedVerdicts | None = None
    votes: ScriptedVotes | None = None
    web_search: Mapping[str, tuple[ScriptedSearchResult, ...]] = field(default_factory=dict)
    web_fetch: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, ScriptedStages] = field(default_factory=dict)

    @cached_property
    def answers_digest(self) -> str:
        """Return the SHA-256 of what the script says to an agent: replies, searches and pages."""
        pages = [self.web_fetch] if self.web_fetch else []
        return fingerprint([self.replies, self.web_search, *pages])

    @cached_property
    def verdict_digest(self) -> str:
        """Return the SHA-256 of what its judges say."""
        stages = [stages for stages in self.staged.values() if stages]
        return fingerprint([self.judge, self.votes, *stages])

    def step(self, messages: Sequence[Mapping[str, Any]], *, offers_tools: bool) -> Step:
        """Return the answer to a conversation; its place in the reply is told by the assistant's messages so far.

        Without tools on offer, steps that call some are passed over, as no model could take them.

        :raises NoScript: the script has no reply to the message, or no further step.
        """
        reply, position = self._find_reply(messages)
        steps = reply.sequence
        if not offers_tools:
            texts = [step for step in steps if not step.tool_calls]
            return next((step for step in steps[position:] if not step.tool_calls), (texts or list(steps))[-1])
        if position >= len(steps):
            raise NoScript(
                f"the reply has {len(steps)} steps and this is request {position + 1}; add a step to {self.path}",
                "script_exhausted",
            )
        return steps[position]

    def verdict(self, iteration: int) -> ScriptedVerdict | None:
        """Return what a judge says of the case in this iteration (from 1); None where nothing is scripted.

        :raises NoScript: there is a list of verdicts, and it is shorter.
        """
        if not isinstance(self.judge, tuple):
            return self.judge
        return self._take_nth(self.judge, iteration, "the judge has {} verdicts and this is iteration {}")

    def vote(self, repetition: int) -> ScriptedJudgement | None:
        """Return what a judge says of the answer's correctness at this repetition (from 1); None where nothing is
        scripted.

        :raises NoScript: there is a list of votes, and it is shorter.
        """
        vote = self.votes
        if isinstance(vote, tuple):
            vote = self._take_nth(vote, repetition, "the judgement has {} votes and this is repetition {}")
        return ScriptedJudgement(correct=vote) if isinstance(vote, bool) else vote

    def stage(self, section: str, stage: str, request: int) -> str | None:
        """Return what a judge says at this request (from 1) of a stage of a section; None: nothing is scripted.

        :raises NoScript: there is a list of replies, and it is shorter.
        """
        said = self.staged.get(section, {}).get(stage)
        if isinstance(said, list):
            said = self._take_nth(tuple(said), request, f"{stage} has {{}} replies and this is request {{}}")
        return said if said is None or isinstance(said, str) else json.dumps(said, ensure_ascii=False)

    def _take_nth(self, given: tuple[T, ...], number: int, what: str) -> T:
        if number > len(given):
            raise NoScript(f"{what.format(len(given), number)}; add one to {self.path}", "script_exhausted")
        return given[number - 1]

    def _find_reply(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Reply, int]:
        """Return the reply, and how many assistant messages follow the user message that it is for.

        That is the last one, or, where no reply is for it, an earlier one: runners add messages of their own.
        """
        turns = list_user_turns(messages) or [("", 0)]
        for nth, (text, answers) in enumerate(turns):
            for reply in self.replies:
                if reply.is_specific and reply.answers(text):
                    return reply, answers
            if nth == 0:
                for reply in self.replies:
                    if not reply.is_specific:
                        return reply, answers
        raise NoScript(f"no reply is for the message {short(turns[0][0])}; add one with `when` to {self.path}")


def list_user_turns(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the user messages' texts, last first, each with the number of assistant messages after it."""
    turns, answers = [], 0
    for message in reversed(messages):
        if message.get("role") == "user":
            turns.append((message_text(message), answers))
        answers += message.get("role") == "assistant"
    return turns


def message_text(message: Mapping[str, Any]) -> str:
    """Return a message's text; of content parts, the text parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def short(text: str) -> str:
    """Return `text` quoted and cut to 80 characters, for error messages."""
    return repr(text if len(text) <= 80 else text[:79] + "…")
