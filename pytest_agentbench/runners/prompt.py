"""A case's messages as a model gets them (seed 002, "Attachments")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pytest_agentbench.bounded import read_file
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Attachment, Case, Message

_MAX_ATTACHMENT = 16 * 2**20


def render_messages(case: Case) -> list[dict[str, Any]]:
    """Chat messages in order, each attachment as a user message just before the first user message.

    Raises ConfigError for a case without messages, and for an attachment that is not UTF-8 text or is no longer the
    file that was loaded.
    """
    if not case.messages:
        raise ConfigError(_problem(case, "messages", "found none, expected at least one; add a user message"))
    return with_attachments(case, case.messages)


def with_attachments(case: Case, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """These messages of the case with its attachments, as `render_messages` has them. Raises ConfigError as it does."""
    attached = [{"role": "user", "content": _attachment(case, attachment)} for attachment in case.attachments]
    shown = [
        {"role": message.role, "content": message.content, **({"name": message.name} if message.name else {})}
        for message in messages
    ]
    first = next((place for place, message in enumerate(messages) if message.role == "user"), len(messages))
    return shown[:first] + attached + shown[first:]


def _attachment(case: Case, attachment: Attachment) -> str:
    name = attachment.name
    content = _content(case, attachment)
    return f"Attached context file: {name}\n--- BEGIN ATTACHMENT {name} ---\n{content}\n--- END ATTACHMENT {name} ---"


def _content(case: Case, attachment: Attachment) -> str:
    name = attachment.name
    if attachment.size > _MAX_ATTACHMENT:
        found = f"found {name!r} with {attachment.size:,} bytes, expected at most {_MAX_ATTACHMENT:,}"
        raise ConfigError(_problem(case, "attachments", found))
    try:
        content = read_file(attachment.path, _MAX_ATTACHMENT)
    except OSError as error:
        raise ConfigError(_problem(case, "attachments", f"cannot read {name!r}: {error.strerror}")) from error
    if hashlib.sha256(content).hexdigest() != attachment.sha256:
        found = f"{name!r} changed after the case was loaded; start the session again"
        raise ConfigError(_problem(case, "attachments", found))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"found {name!r}, which is not UTF-8 text (byte {error.start}), expected text; convert or remove it"
        raise ConfigError(_problem(case, "attachments", found)) from error


def _problem(case: Case, field: str, text: str) -> str:
    return f"{case.path}:{case.line}:1: input.{field}: {text}"
