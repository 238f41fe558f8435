"""Material in a prompt: delimited, so that what an agent or a tool wrote cannot pose as instructions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_agentbench.terminal_text import wholly_visible

_MARKS = re.compile(r"<<<(?=\s*(?:DATA|END)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """Text that is data. `label` is ours, never the agent's."""

    label: str
    text: str


def boundary_of(parts: Sequence[str | Block]) -> str:
    """A code that no block can hold, as it is the hash of all of them; the same parts have the same."""
    blocks = [[part.label, part.text] for part in parts if isinstance(part, Block)]
    return hashlib.sha256(json.dumps(blocks).encode()).hexdigest()[:32]


def rendered(parts: Iterable[str | Block], boundary: str) -> str:
    """The parts as one text, each on lines of its own."""
    return "\n".join(_rendered(part, boundary) for part in parts)


def _rendered(part: str | Block, boundary: str) -> str:
    if isinstance(part, str):
        return escaped(part)  # rubrics and names of checks: whoever wrote them may hide words too
    return f"<<<DATA {boundary} {part.label}>>>\n{escaped(part.text)}\n<<<END {boundary}>>>"


def escaped(text: str) -> str:
    """`text` with nothing in it that looks like a delimiter, and nothing that a reader would not see."""
    return _MARKS.sub(r"\\<<<", wholly_visible(text.replace("\r\n", "\n")))


def clipped(text: str, limit: int) -> str:
    """`text`, or its beginning and end with a note of how much is left out between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"
