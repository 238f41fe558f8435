"""Findings of `validate` and `doctor`: one type, one printer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pytest_agentbench.cli.output import printable

FILES = "files"
"""The area of findings at a place of a file."""
MARKS = {True: "ok", False: "no", None: "-"}
"""The printed marks of a part that works, of one that does not, and of one that was not tried."""
_PROBLEM = re.compile(r"(.*?:\d+:\d+): (?:warning: )?(.*)", re.DOTALL)
_MISSING = "MISSING"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem at a place of a file, or the state of a part of this machine.

    `name` is the place `file:line:column` or the part's name. `works` is None for a part that was not tried. `text`
    describes the problem with its remedy. `needed`: cases cannot run without it. `untried`: only --live tries it.
    """

    area: str
    name: str
    works: bool | None
    text: str
    needed: bool = False
    untried: bool = False

    @property
    def is_error(self) -> bool:
        """Return whether cases need something that does not work."""
        return self.needed and self.works is False

    @property
    def line(self) -> str:
        """Return the finding as one line, as commands print it."""
        if self.area != FILES:
            mark = _MISSING if self.is_error else MARKS[self.works]
            return printable(f"  {mark:<{len(_MISSING)}}  {self.name}: {self.text}")
        text = self.text if self.is_error else f"warning: {self.text}"
        if self.name:
            return f"{self.name}: {text}"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the object of `doctor --json`."""
        return {
            "area": self.area,
            "name": self.name,
            "works": self.works,
            "said": self.text,
            "needed": self.needed,
            "untried": self.untried,
        }


def find_problems(text: str, *, is_error: bool = True) -> Iterator[Finding]:
    """Yield a finding for each line `file:line:column: [warning: ]problem` of a text, such as a ConfigError's."""
    for line in text.splitlines():
        # The shortest path that fits: a problem may name places of other files too.
        match = _PROBLEM.fullmatch(line)
        place, problem = match.groups() if match else ("", line)
        yield Finding(FILES, place, False, problem, needed=is_error)


def sort_problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings once each, errors first, then by file, line and column."""
    return sorted(set(findings), key=_sorting_key)


def _sorting_key(finding: Finding) -> tuple[bool, str, int, int, str]:
    path, _, place = finding.name.rpartition(":")
    path, _, line = path.rpartition(":")
    if not line.isdigit():
        return not finding.is_error, finding.text, 0, 0, ""
    return not finding.is_error, path, int(line), int(place), finding.text


def write_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines of the findings. Areas other than files get a heading, and an empty line at their end."""
    for area, group in groupby(findings, key=lambda finding: finding.area):
        if area == FILES:
            yield from (finding.line for finding in group)
        else:
            yield area
            yield from (finding.line for finding in group)
            yield ""
