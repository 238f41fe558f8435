"""Patterns of case files, of schemas and of servers: bounded in the time they take and in the memory they need.

They are read by the library `regex`, whose search can be given a time limit: one of `re` runs as long as it likes, and
nobody else gets the interpreter meanwhile.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

MAX_PATTERN = 10_000
"""Characters of a pattern: to compile it cannot be interrupted."""
MAX_PARTS = 20_000
"""Parts of a pattern with its repetitions written out: `(a?){999}` is compiled to 999 copies, of about 1 kB each."""
MAX_NESTING = 50
"""Groups inside of one another: each takes five frames of Python's stack to compile, of which there are a thousand."""

_TOKEN = re.compile(
    r"(?P<none>\(\?\#[^)]*\))"
    r"|(?P<least>\{\s*(\d+)\s*(?:,[\s\d]*)?\})"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<part>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)
_LEAST = re.compile(r"\{\s*(\d+)")
_VERBOSE = re.compile(r"\(\?[A-Za-z0-9-]*x")
"""In the verbose form `#` begins a comment, which may hold brackets that mean nothing."""
_VERSION_1 = re.compile(r"\(\?[A-Za-z0-9-]*V")
"""The library's own syntax, in which sets nest."""


def compile_pattern(pattern: str, *, ignore_case: bool = False) -> regex.Pattern[str]:
    """Compile a pattern, as Python has them. Raises ValueError, with a reason for people, where it cannot be used."""
    import regex

    if (problem := _problem(pattern)) is not None:
        raise ValueError(problem)
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    except RecursionError as error:
        raise ValueError("not a regular expression that can be used: it nests too deep") from error


def search_pattern(pattern: str, text: str, seconds: float, *, ignore_case: bool = False) -> regex.Match[str] | None:
    """Find the first place that a pattern matches. Raises TimeoutError after `seconds`, ValueError as above."""
    return compile_pattern(pattern, ignore_case=ignore_case).search(text, timeout=seconds)


@lru_cache(maxsize=1024)
def _problem(pattern: str) -> str | None:
    """Say why a pattern is not compiled; None where it can be."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has {len(pattern):,} characters, more than {MAX_PATTERN:,}"
    if _VERSION_1.search(pattern):
        return f"a pattern has the flag V, which is not supported: {pattern[:60]}"
    parts, nesting = _at_most(pattern) if _VERBOSE.search(pattern) else _size(pattern)
    if parts > MAX_PARTS:
        return f"a pattern has more than {MAX_PARTS:,} parts with its repetitions written out: {pattern[:60]}"
    if nesting > MAX_NESTING:
        return f"a pattern has more than {MAX_NESTING} groups inside of one another: {pattern[:60]}"
    return None


def _at_most(pattern: str) -> tuple[int, int]:
    """Parts and nesting of a pattern in which nobody tells what is a comment: what they could be at worst."""
    return len(pattern) * prod(max(int(least[:9]), 1) for least in _LEAST.findall(pattern)), pattern.count("(")


def _size(pattern: str) -> tuple[int, int]:
    """Parts, each repetition written out as often as it has to match at least, and how deep groups nest."""
    groups, last, nesting = [0], 0, 0
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                groups.append(1)
                nesting = max(nesting, len(groups) - 1)
                last = 0
            case "close" if len(groups) > 1:
                last = groups.pop()
                groups[-1] += last
            case "least":
                more = last * (min(int(token[3][:9]), MAX_PARTS + 1) - 1)
                groups[-1] += max(0, more)
                last += max(0, more)
            case "part" | "close":
                last = 1
                groups[-1] += 1
    return sum(groups), nesting
