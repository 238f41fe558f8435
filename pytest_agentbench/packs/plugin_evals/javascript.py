"""Translate regular expressions of JavaScript to Python."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\\k<(?P<reference>\w+)>|\\u\{(?P<point>[0-9A-Fa-f]{1,6})\}|\\c[A-Za-z]|\\.|\(\?<(?P<group>[A-Za-z_$]\w*)>|\[\^\]",
    re.DOTALL,
)


def translate_pattern(pattern: str) -> str:
    """Return the pattern in Python's syntax. Parts with the same spelling in both stay as they are.

    Raises ValueError for a code point that does not exist.
    """
    return _TOKEN.sub(_translate, pattern)


def _translate(token: re.Match[str]) -> str:
    if (name := token["group"]) is not None:
        return f"(?P<{name}>"
    if (name := token["reference"]) is not None:
        return f"(?P={name})"
    if (point := token["point"]) is not None:
        if int(point, 16) > 0x10FFFF:
            raise ValueError(f"found the code point {point}, which does not exist")
        return re.escape(chr(int(point, 16)))
    if token[0] == "[^]":
        return r"[\s\S]"
    return token[0]
