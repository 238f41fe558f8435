"""Patterns of a server's schema, which may be hostile: bounded in the time they take and in the memory they need."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_PATTERN = 10_000
"""Characters of a pattern: to compile it cannot be interrupted."""
MAX_PARTS = 20_000
"""Parts of a pattern with its repetitions written out: `(a?){999}` is compiled to 999 copies, of about 1 kB each."""

_TOKEN = re.compile(
    r"(?P<none>\(\?\#[^)]*\))"
    r"|(?P<least>\{\s*(\d+)\s*(?:,[\s\d]*)?\})"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<part>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)
_OTHER_SYNTAX = re.compile(r"\(\?[A-Za-z0-9-]*[xV]")
"""Flags that change what is part of a pattern: verbose, and the library's own version 1."""


def found(pattern: str, text: str, seconds: float) -> bool:
    """Whether the text has a place that the pattern matches.

    Raises TimeoutError after `seconds`, and ValueError or the library's error for a pattern that cannot be used.
    """
    import regex

    if (problem := _problem(pattern)) is not None:
        raise ValueError(problem)
    return regex.search(pattern, text, timeout=seconds) is not None


@lru_cache(maxsize=1024)
def _problem(pattern: str) -> str | None:
    """Why a pattern is not compiled; None: it can be."""
    if len(pattern) > MAX_PATTERN:
        return f"a pattern has {len(pattern):,} characters, more than {MAX_PATTERN:,}"
    if _OTHER_SYNTAX.search(pattern):
        return f"a pattern has the flag x or V, which are not supported: {pattern[:60]}"
    if _parts(pattern) > MAX_PARTS:
        return f"a pattern has more than {MAX_PARTS:,} parts with its repetitions written out: {pattern[:60]}"
    return None


def _parts(pattern: str) -> int:
    """How many parts a pattern has with every repetition written out as often as it has to match at least."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        match token.lastgroup:
            case "open":
                groups.append(1)
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
    return sum(groups)
