"""What OpenClaw is told in each turn of a case (seed 002, "OpenClaw multiturn input")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case
from pytest_agentbench.runners.prompt import render_messages, with_attachments

_HINT = "Expected artifact in the workspace: {}"


def turn_texts(case: Case) -> list[str]:
    """The text of each turn, at least one.

    A case without `turns` is one turn of all its messages. With them its messages, its attachments and the hint at the
    expected artifact come with the first turn only. Raises ConfigError as `render_messages` does, and for empty turns.
    """
    first = with_attachments(case, (*case.messages, case.turns[0])) if case.turns else render_messages(case)
    texts = [_with_hint(_one_text(first), case), *(turn.content for turn in case.turns[1:])]
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            found = f"turn {number} is empty, and OpenClaw takes no empty message; write one"
            raise ConfigError(f"{case.path}:{case.line}:1: input: {found}")
    return texts


def _one_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """A user message alone is its text; several messages have their roles above them."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        return str(messages[0]["content"])
    return "\n\n".join(f"[{_speaker(message)}]\n{message['content']}" for message in messages)


def _speaker(message: Mapping[str, Any]) -> str:
    return f"{message['role']} {message['name']}" if "name" in message else str(message["role"])


def _with_hint(text: str, case: Case) -> str:
    artifact = case.expected_artifact
    return text if artifact is None else f"{text}\n\n{_HINT.format(artifact)}"
