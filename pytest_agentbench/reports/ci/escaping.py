"""Text of others in GitHub flavoured Markdown."""

from __future__ import annotations

import re

from pytest_agentbench.reports.text import visible

NAME = 120
SENTENCE = 300
"""Characters that are shown of a name, and of a message."""

_MEANT = re.compile(r"[\\`*_{}\[\]<>#!|~&@:$^]|(?<=www)\.", re.IGNORECASE)


def code(text: str, limit: int = NAME) -> str:
    """The text in `<code>`, on one line, also in a table's cell.

    What Markdown could read as markup becomes character references, which never are. GitHub and GitLab look for
    mentions, issues and emoji in the finished page, but not in `<code>`; for mail addresses even there, in texts that
    no element or comment divides.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"<code>{_MEANT.sub(_reference, visible(cut))}</code>"


def _reference(match: re.Match[str]) -> str:
    return "&#64;<!-- -->" if match[0] == "@" else f"&#{ord(match[0])};"
