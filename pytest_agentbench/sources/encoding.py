"""Texts that went through a wrong encoding on their way here."""

from __future__ import annotations

import html
import re

_UNDEFINED = b"\x81\x8d\x8f\x90\x9d"
_CP1252 = {ord(bytes([byte]).decode("cp1252")): byte for byte in range(0x80, 0xA0) if byte not in _UNDEFINED}
_FOLLOWING = rf"[\x80-\xbf{''.join(map(chr, _CP1252))}]"
# What begins letters that people write, in UTF-8 and read as Windows-1252. "Spaß“" would be a letter of N'Ko.
_MISREAD = re.compile(rf"(?:[\xc2-\xc5\xce-\xd1\xd7-\xd9]|[\xe0-\xef]{_FOLLOWING}|\xf0{_FOLLOWING * 2}){_FOLLOWING}")
_SURELY_MISREAD = re.compile(rf"\xe2\u20ac{_FOLLOWING}|\xc3[\xa0-\xbf]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_SIGNS = re.compile(
    r"(?P<lost>\ufffd|锟斤拷)|(?P<bom>\ufeff)|(?P<control>[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f])"
    r"|(?P<escape>(?<=[^\W\d_])\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}(?=[^\W\d_]|\\u[0-9a-fA-F]{4}))"
    r"|(?P<entity>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});)"
)
# Where markup or code is talked of, entities are meant.
_MARKUP = re.compile(r"</?[a-z][^<>]*>|`|\b(?:x?html|xml|entity|entities)\b|^(?:&[^&;\s]+;\s*)+$", re.IGNORECASE)
_ADVICE = {
    "lost": "where a character was lost; convert the source again as UTF-8",
    "bom": "with a byte order mark inside; remove U+FEFF",
    "control": "with a control character; remove it",
    "escape": "with an escape that was escaped twice; decode the text once more",
    "entity": "with an HTML entity; unescape the text",
}


def encoding_damage(text: str) -> tuple[int, str] | None:
    """Where a sign of damage stands, and what it is and what to do; None for a text that seems sound.

    Signs are U+FFFD, UTF-8 read as Windows-1252, Latin-1 or GBK, byte order marks and control characters inside,
    `\\u00e9` in letters, and HTML entities where no markup is talked of.
    """
    if not text.isascii() and (misread := _misread(text)) is not None:
        return misread
    for match in _SIGNS.finditer(text):
        kind = match.lastgroup or ""
        if kind != "entity" or (html.unescape(match[0]) != match[0] and not _MARKUP.search(text)):
            return match.start(), _ADVICE[kind]
    return None


def _misread(text: str) -> tuple[int, str] | None:
    for sign, encoding, read_as in ((_MISREAD, "latin-1", "Windows-1252"), (_HAN, "gb18030", "GBK")):
        found = sign.search(text)
        if found is None:
            continue
        meant = _recoded(text.translate(_CP1252) if encoding == "latin-1" else text, encoding)
        if meant is not None:
            return (
                found.start(),
                f"which is {_excerpt(meant, found.start())} in UTF-8, read as {read_as}; read it as UTF-8",
            )
    sure = _SURELY_MISREAD.search(text)
    return None if sure is None else (sure.start(), "which is UTF-8 that was read as Windows-1252; read it as UTF-8")


def _recoded(text: str, encoding: str) -> str | None:
    """The shorter text that the same bytes are in UTF-8, None where they are none."""
    try:
        meant = text.encode(encoding).decode()
    except UnicodeError:
        return None
    return meant if len(meant) < len(text) else None


def _excerpt(meant: str, at: int) -> str:
    return repr(meant[max(0, at - 10) : at + 10].strip())
