"""Output of commands: text on one line, summaries on standard output, and differences between JSON values."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from pytest_agentbench.terminal_text import shorten_text, visible_line


def printable(text: str) -> str:
    """Return the text on one line, with escapes for all that does not print: a file must not steer the terminal."""
    line = visible_line(text)
    if line.isprintable():
        return line
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def refuse_usage(command: str, message: str) -> int:
    """Print why a command cannot be run as it was called. Return its exit status."""
    print(f"agentbench {command}: {message}", file=sys.stderr)
    return 2


def list_first(texts: Sequence[str], most: int) -> str:
    """Return the first texts, separated by commas, and the number of the others."""
    shown = printable(", ".join(texts[:most]))
    if len(texts) > most:
        return f"{shown} and {len(texts) - most:,} more"
    return shown


_CODES = {"bold": 1, "light": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


class Standard:
    """`reports.Terminal` on stdout. Marks show on a terminal unless NO_COLOR is set."""

    verbosity = 0
    no_summary = False

    def __init__(self) -> None:
        self.hasmarkup = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, content: str, *, flush: bool = False, **markup: bool) -> None:
        """Write text without ending the line. Characters that the output cannot encode are escaped."""
        encoding = sys.stdout.encoding or "ascii"
        text = content.encode(encoding, "backslashreplace").decode(encoding)
        if self.hasmarkup and (codes := [str(_CODES[mark]) for mark, on in markup.items() if on]):
            text = f"\x1b[{';'.join(codes)}m{text}\x1b[0m"
        print(text, end="", flush=flush)

    def line(self, msg: str = "", **markup: bool) -> None:
        """End a line."""
        self.write(msg, **markup)
        print()

    def write_line(self, line: str, **markup: bool) -> None:
        """Write a line."""
        self.line(line, **markup)

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        """Write a line of `sep` around a title."""
        heading = f" {title} " if title is not None else ""
        self.line(heading.center(shutil.get_terminal_size().columns, sep), **markup)


ABSENT: Any = object()
"""The value of a field that one of two documents has not."""

_HASH = re.compile(r"[0-9a-f]{64}")
_HASH_SHOWN = 12
_SHORT = 60
_WIDEST = 160
_BEFORE = 40
_LINES = 40
_COMPARED = 400
"""Lines that are aligned with each other: the time it takes grows with their square."""


class Difference(NamedTuple):
    """A field by its path (`messages[0].content`) with its values in both documents."""

    path: str
    a: Any
    b: Any


def find_differences(a: Any, b: Any) -> Iterator[Difference]:
    """Yield the differing parts in order of their names. Common beginnings and ends of lists are skipped."""
    # A stack and no recursion: stored documents nest as deep as an agent likes.
    waiting = [] if _are_same(a, b) else [Difference("", a, b)]
    while waiting:
        path, a, b = waiting.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            inner = [
                Difference(f"{path}.{name}" if path else name, a.get(name, ABSENT), b.get(name, ABSENT))
                for name in sorted(a.keys() | b.keys())
            ]
        elif isinstance(a, list) and isinstance(b, list):
            inner = list(_compare_elements(path, a, b))
        else:
            yield Difference(path, a, b)
            continue
        waiting += reversed([each for each in inner if not _are_same(each.a, each.b)])


def _are_same(a: Any, b: Any) -> bool:
    """Return whether JSON has them alike: for Python `1` is `true`."""
    return a is b or (a == b and repr(a) == repr(b))


def _compare_elements(path: str, a: list[Any], b: list[Any]) -> Iterator[Difference]:
    # An element that was put in front must not make all others look changed.
    start, end_a, end_b = _find_unequal(a, b)
    pairs = zip_longest(a[start:end_a], b[start:end_b], fillvalue=ABSENT)
    for at, (in_a, in_b) in enumerate(pairs, start):
        yield Difference(f"{path}[{at}]", in_a, in_b)


def _find_unequal(a: Sequence[Any], b: Sequence[Any]) -> tuple[int, int, int]:
    """Return the index of the first difference of two sequences, and the ends of the differing parts in a and in b."""
    shortest = min(len(a), len(b))
    start = next((at for at in range(shortest) if not _are_same(a[at], b[at])), shortest)
    same = next((n for n in range(shortest - start) if not _are_same(a[-1 - n], b[-1 - n])), shortest - start)
    return start, len(a) - same, len(b) - same


def format_difference(difference: Difference) -> Iterator[str]:
    """Yield the lines that describe a difference."""
    path, a, b = difference
    if b is ABSENT:
        yield f"{printable(path)}: only in A: {_format_value(a)}"
    elif a is ABSENT:
        yield f"{printable(path)}: only in B: {_format_value(b)}"
    elif isinstance(a, str) and isinstance(b, str) and max(len(a), len(b)) > _SHORT and not _HASH.fullmatch(a):
        yield f"{printable(path)}:"
        lines = [*_diff_texts(a, b)]
        yield from (f"  {printable(line)}" for line in lines[:_LINES])
        if len(lines) > _LINES:
            yield f"  ... and {len(lines) - _LINES} lines more"
    else:
        yield f"{printable(path)}: {_format_value(a)} -> {_format_value(b)}"


def _format_value(value: Any) -> str:
    """Return JSON on one line, with hashes and long texts cut."""
    if isinstance(value, str) and _HASH.fullmatch(value):
        return f"{value[:_HASH_SHOWN]}..."
    text = json.dumps(value, ensure_ascii=False)
    return printable(shorten_text(text, _WIDEST, "..."))


def _diff_texts(a: str, b: str) -> Iterator[str]:
    """Yield the lines of two texts that differ, as diffs have them, with the number of the first one of each group."""
    old, new = a.splitlines(), b.splitlines()
    start, end_old, end_new = _find_unequal(old, new)
    if start == end_old == end_new:  # they differ in how lines end
        old, new, start, end_old, end_new = [repr(a)], [repr(b)], 0, 1, 1
    old, new = old[start:end_old], new[start:end_new]
    if len(old) > _COMPARED or len(new) > _COMPARED:
        groups = [("replace", 0, len(old), 0, len(new))]
    else:
        groups = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    for tag, old_from, old_to, new_from, new_to in groups:
        if tag != "equal":
            yield f"@ line {start + old_from + 1}"
            yield from _format_group(old[old_from:old_to], new[new_from:new_to])


def _format_group(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield lines of A and the lines that B has instead. Long ones are shown from shortly before they differ."""
    cut, dots = 0, ""
    # A pair of long lines differs somewhere in the middle; in groups of lines no pairs are known.
    if len(old) == len(new) == 1 and max(len(old[0]), len(new[0])) > _WIDEST:
        cut = max(0, _find_unequal(old[0], new[0])[0] - _BEFORE)
    if cut:
        dots = "..."
    for sign, lines in (("-", old), ("+", new)):
        yield from (f"{sign} {dots}{shorten_text(line[cut:], _WIDEST + 3, '...')}" for line in lines)
