"""Numbers that a fuzzy text must keep (seed 004, 4.2): without them a calculation cannot be repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_.])(?<!\*\*)(?<!\^)(?:"
    r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?!\d)"
    r"|(?P<number>\d{1,3}(?:[,\u00a0\u202f '’]\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE](?P<exponent>[-+]?\d{1,3})(?!\w))?"
    r"(?P<scale>[ -]?(?:thousand|million|billion)(?!\w)|[kKM](?!\w)|\s?[千万亿])?"
    r")"
)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "k": 3, "K": 3, "M": 6, "千": 3, "万": 4, "亿": 8}
_SEPARATORS = re.compile(r"[,\u00a0\u202f '’]")

_STEPS = re.compile(
    r"(?:\b(?i:steps?|phases?|stages?|parts?|sections?|tasks?)|步骤|第)\s*#?\d+(?:\s*(?:[-–—,/&]|and|to|or|至|和)\s*#?\d+)*"
)
_MARKER = re.compile(r"(?P<line>^[ \t>*•-]*)?\(?(?P<number>\d{1,2})(?P<dot>[.)、:](?=\s)|\)(?!\w))", re.MULTILINE)
_PERCENT = re.compile(r"(?i:\b(?:multipl\w+|times|by))\s+100\b")

_TO_TWENTY = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_TENS = ("ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred")
_WORDS = {word: at for at, word in enumerate(_TO_TWENTY)}
_WORDS |= {word: at * 10 for at, word in enumerate(_TENS, start=1)}
_WORDS |= {"once": 1, "first": 1, "twice": 2, "double": 2, "second": 2, "couple": 2, "third": 3, "dozen": 12}
_ENGLISH = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_CHINESE = re.compile("[零一二两三四五六七八九十百]+")
_DIGITS = {character: at for at, character in enumerate("零一二三四五六七八九")} | {"两": 2}


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written. Any of its `readings` (sets of values) may stand for it."""

    text: str
    readings: tuple[frozenset[Decimal], ...]


def lost_numbers(detailed: str, fuzzy: str) -> list[str]:
    """The numbers of the detailed text, as it writes them, that the fuzzy text does not have, each once.

    Signs do not count, nor do the numbers of steps, exponents, parts of names, and the 100 that makes a percentage.
    """
    kept = {value for number in _numbers(fuzzy) for reading in number.readings for value in reading}
    kept |= set(_spelled(fuzzy))
    wanted = _numbers(_PERCENT.sub(" ", _without_steps(detailed)))
    lost = (number.text for number in wanted if not any(reading <= kept for reading in number.readings))
    return list(dict.fromkeys(lost))


def _numbers(text: str) -> Iterator[_Number]:
    for match in _TOKEN.finditer(text):
        if match["hour"] is not None:
            yield _time(match)
            continue
        written, scale = match["number"], (match["scale"] or "").strip(" -")
        power = int(match["exponent"] or 0)
        plain = Decimal(_SEPARATORS.sub("", written)).scaleb(power)
        readings = [frozenset({plain})]
        if scale:
            readings.append(frozenset({plain.scaleb(_SCALES[scale])}))
        parts = _SEPARATORS.split(written)
        if len(parts) > 1 and not any(part.startswith("0") for part in parts):  # several numbers: "120,150", "120 150"
            readings.append(frozenset(map(Decimal, parts)))
        yield _Number(match.group().strip(), tuple(readings))


def _time(match: re.Match[str]) -> _Number:
    """17:00 may be kept as "5 pm"."""
    hour, minute = int(match["hour"]), int(match["minute"])
    past = {Decimal(minute)} if minute else set()
    return _Number(match.group(), tuple(frozenset({Decimal(each)} | past) for each in (hour, hour % 12 or 12)))


def _spelled(text: str) -> Iterator[Decimal]:
    yield from (Decimal(_WORDS[match.group().lower()]) for match in _ENGLISH.finditer(text))
    for match in _CHINESE.finditer(text):
        yield from _chinese(match.group())


def _chinese(numeral: str) -> Iterator[Decimal]:
    """What a numeral below a thousand says: 十二, 三十, 一百零五."""
    total, digit = 0, 0
    for character in numeral:
        if character in _DIGITS:
            digit = _DIGITS[character]
        else:
            total += (digit or 1) * (10 if character == "十" else 100)
            digit = 0
    yield Decimal(total + digit)


def _without_steps(text: str) -> str:
    """The text without what numbers its steps, and without mentions of steps by number."""
    kept, at, last = [], 0, 0
    for marker in _MARKER.finditer(text):
        number = int(marker["number"])
        begins_line = marker["line"] is not None
        if begins_line or number in (1, last + 1):
            kept.append(text[at : marker.start("number")])
            at, last = marker.end(), number
    return _STEPS.sub(" ", "".join([*kept, text[at:]]))
