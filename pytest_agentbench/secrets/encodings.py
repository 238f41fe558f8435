"""Encoded forms of a secret in a text, and texts without their escapes."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

Span = tuple[int, int]
"""Where something begins and ends in a text."""

LONG_RUN = 16
"""Characters of the shortest run that `find_long_runs` finds."""

_KEY_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~+/=:-")
_MARKS = bytes(ord("k" if each in _KEY_CHARACTERS else " ") for each in range(256))
"""Every key has a run of `k`; most sentences have none, so that they cost little: bytes are marked and searched at a
fifth of the cost of a regular expression."""
_SHORTEST_SECRET = 8
"""Minimum characters of a secret. Shorter values may be ordinary words."""
_WRAP = 40
"""Characters of the shortest line at which programs wrap encoded text."""
_MAX_NESTING = 3
"""Maximum levels of escapes within escapes."""
_ESCAPE = re.compile(  # each kind of escape has its own first character, so other text is skipped fast
    r"%(?:[0-7][0-9A-Fa-f]|[89A-Fa-f][0-9A-Fa-f](?:%[89A-Fa-f][0-9A-Fa-f])*)"
    r"|\\(?:\\{0,7}u[dD][89abAB][0-9A-Fa-f]{2}\\{1,8}u[dD][c-fC-F][0-9A-Fa-f]{2}|\\{0,7}(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|/))"
    r"|&(?:#(?:[0-9]{1,7}|[xX][0-9A-Fa-f]{1,6});?|[A-Za-z][A-Za-z0-9]{1,30};)"
)
_WRAPPING = re.compile(  # its first character before all else: few places have it, and most have 40 digits before them
    rf"[\r\n\\](?<=[A-Za-z0-9+/_-]{{{_WRAP}}}.)(?:(?<=\n)|(?<=\r)\n|(?<=\\)\\{{0,7}}(?:r\\{{1,8}})?n)(?=[A-Za-z0-9+/=_-])",
    re.DOTALL,
)
_BETWEEN = re.compile(r"(?:\\+[nrt]|[\s\"'])+")
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z]).{16,}|[A-Za-z+/=_-]{40,}")


def find_long_runs(text: str) -> list[Span]:
    """Return the spans of long runs: they may contain keys, or secrets in base64 or hex."""
    # One byte for each character, so that positions stay. Other characters than ASCII become "?", which is in no key.
    marks = text.encode("ascii", "replace").translate(_MARKS)
    spans: list[Span] = []
    start = marks.find(b"k" * LONG_RUN)
    while start >= 0:
        end = marks.find(b" ", start)
        if end < 0:
            end = len(marks)
        spans.append((start, end))
        start = marks.find(b"k" * LONG_RUN, end)
    return spans


def split_secret(secret: str) -> set[str]:
    """Return the lines, or words, of a secret of several that are long and random: each may be shown alone."""
    parts = _BETWEEN.split(secret)
    return {part for part in parts if part != secret and _RANDOM.fullmatch(part) and "://" not in part}


def list_plain_forms(secret: str) -> set[str]:
    """Return the secret unchanged, in a JSON string, in JSON in a JSON string, and with `+` for blanks.

    Also without the character sequences in it that look like escapes, because unescaping the surrounding text removes
    them.
    """
    forms = {layer.text for layer in unescape_layers(secret) if len(layer.text) >= _SHORTEST_SECRET}
    forms |= {secret, secret.replace(" ", "+")}
    for _ in range(2):
        forms |= {inside for form in forms for inside in _escape_for_json(form)}
    return forms


def encode_hex(secret: str) -> str:
    """Return the secret's bytes in lower-case hex."""
    return secret.encode("utf-8", "surrogateescape").hex()


def list_base64_forms(secret: str) -> set[str]:
    """Return the base64 digits that depend on the secret alone, for each of the three alignments."""
    content = secret.encode("utf-8", "surrogateescape")
    forms = set()
    # Base64 maps 3 bytes to 4 digits, so a secret has three forms by its offset; digits it shares with neighbours are
    # cut off.
    for before in range(3):
        digits = b64encode(bytes(before) + content).decode()
        forms.add(digits[-(-8 * before // 6) : 8 * (before + len(content)) // 6])
    return forms


def _escape_for_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass(slots=True)
class Layer:
    """A text, or the same text without its escapes. `runs` are the long runs that the layer below does not have."""

    text: str
    runs: list[Span]
    is_unwrapped: bool = False
    """Line breaks are removed, so unrelated words may be adjacent."""
    _below: Layer | None = None
    _escapes: list[tuple[int, int, Span]] = field(default_factory=list)
    """Start and end of each replacement, and the span of the escape in the layer below."""

    def show_runs(self) -> str:
        """Return the runs, each with the preceding character, or a line break at the start of the text."""
        text = self.text
        return "\n" + "\n".join([text[max(start - 1, 0) : end] for start, end in self.runs])

    def origin(self, span: Span) -> Span:
        """Return the position in the original text of a position in this layer."""
        if self._below is None:
            return span
        start, end = span
        return self._below.origin((self._map_below(start, 0), self._map_below(end - 1, 1)))

    def _map_below(self, at: int, after: int) -> int:
        """Return the position in the layer below of the character `at`, or of the next one."""
        number = bisect_right(self._escapes, at, key=_start_of) - 1
        if number < 0:
            return at + after
        _, end, origin = self._escapes[number]
        if at < end:
            return origin[after]
        return origin[1] + at - end + after

    def without(self, escapes: re.Pattern[str]) -> Layer | None:
        """Return the layer without such escapes, or None if it has none."""
        pieces: list[str] = []
        found = []
        done = length = 0
        for escape in escapes.finditer(self.text):
            start, end = escape.span()
            meant = _decode_escape(escape[0])
            pieces += (self.text[done:start], meant)
            length += start - done
            found.append((length, length + len(meant), (start, end)))
            done, length = end, length + len(meant)
        if not found:
            return None
        text = "".join((*pieces, self.text[done:]))
        new = [
            run
            for run in find_long_runs(text)
            if bisect_left(found, run[0], key=_start_of) < bisect_left(found, run[1], key=_start_of)
        ]
        return Layer(text, new, escapes is _WRAPPING, self, found)


def unescape_layers(text: str) -> Iterator[Layer]:
    """Yield the text, then the text without its escapes, without the escapes that this reveals, and without the line
    breaks in encoded data.
    """
    layer: Layer | None = Layer(text, find_long_runs(text))
    for _ in range(_MAX_NESTING + 1):
        assert layer is not None
        yield layer
        if layer.runs and _is_wrapped(layer) and (unwrapped := layer.without(_WRAPPING)) is not None:
            yield unwrapped
        if not _may_hold_escapes(layer.text) or (layer := layer.without(_ESCAPE)) is None:
            return


def _may_hold_escapes(text: str) -> bool:
    # A search for one character costs a fiftieth of one for two.
    return "%" in text or "&" in text or ("\\" in text and any(map(text.__contains__, ("\\u", "\\x", "\\/"))))


def _start_of(escape: tuple[int, int, Span]) -> int:
    return escape[0]


def _is_wrapped(layer: Layer) -> bool:
    """Return whether a line of something encoded ends here: only then is a line break none."""
    text = layer.text
    return any(end - start >= _WRAP and text[end : end + 1] in ("\n", "\r", "\\") for start, end in layer.runs)


@lru_cache(1024)
def _decode_escape(escape: str) -> str:
    if escape[0] == "%":
        # Bytes that are no UTF-8 become lone surrogates and not U+FFFD: a secret of such bytes is still found.
        return unquote(escape, errors="surrogateescape")
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] in "\r\n" or escape[-1] == "n":
        return ""
    if escape[-1] == "/":
        return "/"
    # JSON writes a character beyond U+FFFF as two `\u` escapes; only both together are a character.
    units = "".join(chr(int(code, 16)) for code in re.findall(r"[ux]([0-9A-Fa-f]+)", escape))
    if len(units) == 1:
        return units
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
