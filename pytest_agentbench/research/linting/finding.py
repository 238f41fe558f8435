"""One thing that is wrong with a file, or that somebody should look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "review"]
"""`error`: a row cannot be scored, or would be scored wrongly. `warning`: probably wrong. `review`: have a look."""

_PLACE = re.compile(r":(\d+):\d+: (?:([\w.\[\]]+): )?(.*)", re.DOTALL)
_FOUND = re.compile(r"found (.*), expected (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1. `field` is the way to a value of the row, "" for the row or the file itself."""

    path: Path
    line: int
    severity: Severity
    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.path}:{self.line}: {self.severity}: {field}found {self.found}, expected {self.expected}"


def findings_of(message: str, path: Path) -> Iterator[Finding]:
    """The lines of an error, `file:line:column: field: found ..., expected ...`, as findings."""
    for text in message.splitlines():
        place = _PLACE.match(text.removeprefix(str(path)))
        line, field, said = (int(place[1]), place[2] or "", place[3]) if place else (1, "", text)
        parts = _FOUND.fullmatch(said)
        found, expected = (parts[1], parts[2]) if parts else (said, "a row that can be read")
        yield Finding(path, line, "error", field, found, expected)


def quoted(text: str, length: int = 60) -> str:
    """A text as findings show it: on one line, its beginning."""
    line = " ".join(text.split())
    return repr(line if len(line) <= length else f"{line[: length - 1]}…")
