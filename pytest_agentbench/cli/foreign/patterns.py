"""Regular expressions of JavaScript, as promptfoo has them, in the words of Python's `regex`."""

from __future__ import annotations

import re

_ESCAPE = r"\\(?:x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}|k<[A-Za-z_]\w*>|[bBdDfnrsStvwW]|[^A-Za-z])"
_GROUP = r"\(\?(?:[:=!]|<[=!]|<[A-Za-z_]\w*>|-?i:)"
_QUANTIFIER = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?])"
_OUTSIDE = re.compile(
    rf"(?P<same>{_ESCAPE}|{_GROUP}|{_QUANTIFIER}|\((?!\?)|[^\\(*+?{{$\[])|(?P<open>\[\^?)|(?P<brace>\{{(?!\d+(?:,\d*)?\}}))|(?P<end>\$)"
)
_INSIDE = re.compile(rf"(?P<same>{_ESCAPE}|[^\\\[\]])|(?P<bracket>\[)|(?P<close>\])")
_OF_ASCII = re.compile(r"\\[bBdDwW]")
_SPACES = r"\s\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def python_pattern(pattern: str) -> tuple[str, str]:
    r"""The flags (a text to put in front) and the pattern that find in Python what this one finds in JavaScript.

    There `$` is the very end, `\d`, `\w` and `\b` know ASCII alone, and braces that count nothing stand for themselves.

    :raises ValueError: it means nothing to JavaScript, or has no counterpart.
    """
    pieces: list[str] = []
    within, at = False, 0
    while at < len(pattern):
        match = (_INSIDE if within else _OUTSIDE).match(pattern, at)
        if match is None:
            raise ValueError(f"{pattern[at : at + 12]!r} is not the same in Python, or nothing in JavaScript")
        at = match.end()
        if match.lastgroup == "open" and pattern.startswith("]", at):
            pieces.append("(?!)" if match[0] == "[" else r"[\s\S]")  # [] is nothing, [^] everything
            at += 1
        else:
            within = match.lastgroup == "open" or (within and match.lastgroup != "close")
            pieces.append(_AS.get(match.lastgroup or "", match[0]))
    if within:
        raise ValueError("a [ has no ]")
    if not any(map(_OF_ASCII.fullmatch, pieces)):
        return "", "".join(pieces)
    return "(?a)", "".join(_with_spaces(pieces))


_AS = {"brace": r"\{", "end": r"\Z", "bracket": r"\["}


def _with_spaces(pieces: list[str]) -> list[str]:
    """The pieces with the white space of Unicode named, which ASCII leaves out and JavaScript does not."""
    within, named = False, []
    for piece in pieces:
        within = (within and piece != "]") or piece in ("[", "[^")
        spaces = _SPACES if within else f"[{_SPACES}]"
        named.append(spaces if piece == r"\s" else f"[^{_SPACES}]" if piece == r"\S" and not within else piece)
    return named
