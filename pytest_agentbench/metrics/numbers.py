"""Reading the number that a text answers with, in time linear in its length."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException
from itertools import islice

from pytest_agentbench.metrics.tokens import UNSPACED, normal

_ARITHMETIC = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])  # nothing is raised, whatever the size


@dataclass(frozen=True, slots=True)
class Value:
    """A range of numbers, or one where `low` is `high`. Of 18.29 % it has 18.29 and that it is `percent`."""

    low: Decimal
    high: Decimal
    percent: bool = False

    def __str__(self) -> str:
        ends = [self.low] if self.low == self.high else [self.low, self.high]
        return " to ".join(f"{_ARITHMETIC.plus(end):.12g}" for end in ends) + "%" * self.percent


_SUPERSCRIPT = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_HYPHENS = str.maketrans("\u2010\u2011\u2012\u2013\u2212\u2044", "-----/")
_LATEX = re.compile(r"\\!|\{,\}|\\[,;: ]|\\[%$]|\\(?:times|cdot|pm)(?![a-zA-Z])")
_READ_AS = {"\\!": "", "{,}": ",", "\\%": "%", "\\$": "$", "\\times": "×", "\\cdot": "×", "\\pm": "±"}
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s?\\[dtc]?frac"
    r"\s?(?:\{\s?(?P<top>[-+\d.,]++)\s?\}|(?P<top_digit>\d))\s?(?:\{\s?(?P<bottom>[-+\d.,]++)\s?\}|(?P<bottom_digit>\d))"
)

_LETTER = rf"[^\W\d{UNSPACED}]"  # of a script whose words are set apart by blanks
_GLUED = re.compile(rf"(?:{_LETTER}|[\^±]|±\s)\Z")
_DIGITS = r"(?:\d{1,3}(?:,\d{3}(?!\d))++|\d{1,3}(?:[ ]\d{3}(?!\d))++|\d{1,3}(?:['’]\d{3}(?!\d))++|\d++)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.\d++)?+|(?<!\d)\.\d++)"
_POWER = r"\s?(?:\^|\*\*)\s?[({]?\s?"
_NUMBER = re.compile(
    rf"""
    (?:(?<!{_LETTER})(?<![\d)\]}}%])(?P<sign>[-+]))?+
    (?:[$¢-¥฿₠-₿]\s?(?P<inner_sign>[-+])?+)?+
    (?:(?P<whole>\d++)\s(?P<part>\d++)/(?P<parts>\d++)(?![\d/.])
      |(?<!/)(?<!/[ ])(?P<over>{_DECIMAL})\s?/\s?(?P<under>-?{_DECIMAL})(?!\s?/\s?\d)
      |(?P<number>{_DECIMAL})
       (?:[eE](?P<exponent>[-+]?\d++)(?!\w)
         |\s?[×x*·]\s?10{_POWER}(?P<ten>[-+]?\d++)
         |{_POWER}(?P<power>[-+]?\w++))?+)
    (?P<percent>\s?(?:%|(?i:per\s?cent|pct)(?!\w)))?+
    """,
    re.VERBOSE,
)
_TO = re.compile(r"\s?(?:-|—|~|to|through|至|到)\s?")


def answered_number(text: str) -> Value | None:
    r"""The number or range that the text answers with, None where it has none that can be read.

    That is the last one in the last \boxed{...}; without a box, the first one after the last "####" (GSM8K); else the
    last of the text. A number that is glued to a letter before it (CO2) counts only where there is no other.
    """
    box = text.rfind("\\boxed")
    if box >= 0:
        return _value(_plain(_in_braces(text[box:])), last=True)
    _, mark, after = text.rpartition("####")
    return _value(_plain(after), last=not mark)


def are_close(one: Decimal, other: Decimal, rel_tol: float | None, abs_tol: float) -> bool:
    """Whether the difference is within `rel_tol` of the larger, or within `abs_tol`.

    `rel_tol` None is 1e-6, and no tolerance between whole numbers.
    """
    if one == other:
        return True
    if rel_tol is None:
        rel_tol = 0.0 if _is_whole(one) and _is_whole(other) else 1e-6
    larger = max(one.copy_abs(), other.copy_abs())
    allowed = max(_ARITHMETIC.multiply(Decimal(str(rel_tol)), larger), Decimal(str(abs_tol)))
    return _ARITHMETIC.subtract(one, other).copy_abs() <= allowed


def _is_whole(number: Decimal) -> bool:
    return number == number.to_integral_value()


def _in_braces(text: str) -> str:
    """What stands between the first brace and its partner, or the end."""
    depth, start = 0, text.find("{")
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace.group() == "{" else -1
        if depth <= 0:
            return text[start + 1 : brace.start()]
    return text[start + 1 :]


def _plain(text: str) -> str:
    """The text with one spelling for what stands for the same: widths, minus signs, fractions, blanks of LaTeX."""
    text = _SUPERSCRIPT.sub(r"^\g<0>", _VULGAR.sub(" ", text))
    text = normal(text).translate(_HYPHENS).replace("+/-", "±")
    if "\\" in text or "{" in text:
        text = _LATEX.sub(lambda match: _READ_AS.get(match.group(), " "), text)
        text = _FRACTION.sub(_quotient, text)
    return text


def _quotient(match: re.Match[str]) -> str:
    top, bottom = match["top"] or match["top_digit"], match["bottom"] or match["bottom_digit"]
    return f" {match['sign']}{top}/{bottom}"


def _value(text: str, *, last: bool) -> Value | None:
    """The last or the first number; of two that are joined as a range, and no third to them, the range."""
    few = _few(text, last=last, glued=False) or _few(text, last=last, glued=True)
    if not few:
        return None
    pair, beyond, answer = (few[-2:], few[-3:-1], few[-1]) if last else (few[:2], few[1:3], few[0])
    if _are_joined(text, pair) and not _are_joined(text, beyond):
        low, high = map(_number, pair)
        if low is not None and high is not None and low < high:
            return Value(low, high, percent=any(each["percent"] for each in pair))
    number = _number(answer)
    return None if number is None else Value(number, number, percent=bool(answer["percent"]))


def _few(text: str, *, last: bool, glued: bool) -> Sequence[re.Match[str]]:
    """Up to three matches at the end or the start of the text."""
    matches = _matches(text, glued)
    return list(deque(matches, 3) if last else islice(matches, 3))


def _matches(text: str, glued: bool) -> Iterator[re.Match[str]]:
    for match in _NUMBER.finditer(text):
        before = text[max(0, match.start() - 2) : match.start()]
        is_power = match["power"] is not None and match["number"] != "10"
        if not is_power and bool(_GLUED.search(before)) == glued:
            yield match


def _are_joined(text: str, pair: Sequence[re.Match[str]]) -> bool:
    return len(pair) == 2 and _TO.fullmatch(text, pair[0].end(), pair[1].start()) is not None


def _number(match: re.Match[str]) -> Decimal | None:
    """The signed number, None where it is none (over 0) or out of all bounds."""
    try:
        if match["whole"] is not None:
            number = _ARITHMETIC.add(Decimal(match["whole"]), _ratio(match["part"], match["parts"]))
        elif match["over"] is not None:
            number = _ratio(match["over"], match["under"])
        else:
            mantissa = "1" if match["power"] else _digits(match["number"])
            number = Decimal(f"{mantissa}e{match['exponent'] or match['ten'] or match['power'] or 0}")
    except DecimalException:
        return None
    if not number.is_finite():
        return None
    return -number if "-" in (match["sign"], match["inner_sign"]) else number


def _ratio(over: str, under: str) -> Decimal:
    return _ARITHMETIC.divide(Decimal(_digits(over)), Decimal(_digits(under)))


def _digits(text: str) -> str:
    return re.sub("[, '’]", "", text)
