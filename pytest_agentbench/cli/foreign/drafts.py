"""What the readers of other tools' files hand to the writer of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 50
"""How deep metadata may nest: our YAML reader ends at 100 levels."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a foreign file; `line` and `column` count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Draft:
    """A case before it has an id and a file.

    `messages` are `{role, content}`. `metric` is what compares the answer with `reference`; None leaves the choice to
    the writer, unless not `compared`: then the reference is for people and judges. `checks` are
    `{description, declarative}`, `expectations` hard ones. `files` go into the workspace. `answers` were given when the
    case ran elsewhere. `unfinished` says that something a person has to add is missing.
    """

    place: Place
    name: str
    messages: tuple[Mapping[str, str], ...]
    title: str | None = None
    reference: str | None = None
    metric: Mapping[str, Any] | None = None
    compared: bool = True
    choices: tuple[str, ...] = ()
    checks: tuple[Mapping[str, Any], ...] = ()
    expectations: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    dockerfile: bytes | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    answers: tuple[str, ...] = ()
    unfinished: bool = False

    @property
    def decided(self) -> bool:
        """Whether something can fail it."""
        return bool(self.reference is not None or self.checks or self.expectations)


@dataclass
class Gathered:
    """What a file holds: `drafts`, rows that become no case (`lost`), and what cases come without (`notes`)."""

    drafts: list[Draft] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lose(self, place: object, reason: str) -> None:
        """A row that becomes no case, and why."""
        self.lost.append(f"{place}: not imported: {reason}")

    def note(self, place: object, text: str) -> None:
        """Something that a case comes without."""
        self.notes.append(f"{place}: {text}")
