"""Read the number that a text answers with, in time linear in its length, and compare it: `numeric_match`."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DecimalException
from functools import cache
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from pytest_agentbench.metrics.passages import UNSPACED, answer_sentences, boxed, normal, without_run_on
from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.models.thoughts import drop_thoughts

if TYPE_CHECKING:
    import regex

_ARITHMETIC = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])  # nothing is raised, whatever the size


@dataclass(frozen=True, slots=True)
class Value:
    """A range of numbers, or one number if `low` equals `high`. "18.29 %" has the unit "%" and the scale -2."""

    low: Decimal
    high: Decimal
    unit: str = ""
    scale: int = 0

    def __str__(self) -> str:
        ends = dict.fromkeys((self.low, self.high))  # without the repetition of an equal end
        return " to ".join(f"{_ARITHMETIC.plus(end):.12g}" for end in ends) + self.unit


_SCALES = {
    "%": -2,
    "percent": -2,
    "pct": -2,
    "k": 3,
    "thousand": 3,
    "m": 6,
    "mn": 6,
    "million": 6,
    "b": 9,
    "bn": 9,
    "billion": 9,
    "trillion": 12,
    "lakh": 5,
    "crore": 7,
    "लाख": 5,
    "千": 3,
    "万": 4,
    "萬": 4,
    "百万": 6,
    "億": 8,
    "亿": 8,
    "兆": 12,
    "만": 4,
    "억": 8,
    "ألف": 3,
    "مليون": 6,
    "مليار": 9,
}
"""Power of ten of a word after a number."""

_SUPERSCRIPT = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_SAME = str.maketrans("\u2010\u2011\u2012\u2013\u2212\u2044\u066a\u066b\u066c", "-----/%.,")
_LATEX = re.compile(r"\\!|\{,\}|\\[,;: ()\[\]]|\\[%$]|\\(?:times|cdot|pm)(?![a-zA-Z])")
_READ_AS = {"\\!": "", "{,}": ",", "\\%": "%", "\\$": "$", "\\times": "×", "\\cdot": "×", "\\pm": "±"}
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s?\\[dtc]?frac"
    r"\s?(?:\{\s?(?P<top>[-+\d.,]++)\s?\}|(?P<top_digit>\d))\s?(?:\{\s?(?P<bottom>[-+\d.,]++)\s?\}|(?P<bottom_digit>\d))"
)
_MINUS = re.compile(r"(?:(?<!\d )\b(?i:minus|negative)\s|[负負]|マイナス)(?=[$¢-¥฿₠-₿]?\d)")
# A minus before a blank is a sign unless a minuend precedes it.
_BEFORE_DIGITS = r"(?=[$¢-¥฿₠-₿]? ?\.?\d)"
_SIGN = re.compile(
    rf"((?:[=(:≈是为]|(?<!\d)\$|\b(?:is|are|was|be|equals|about)\b) {{0,3}})- {_BEFORE_DIGITS}", re.IGNORECASE
)
_SIGN_AT_START = re.compile(rf"\A\s*+- {_BEFORE_DIGITS}")
_ASIDE = re.compile(r"(?<=[\w%°.,'”’] )(?<! is )(?<! are )[(\[][^()\[\]\n]*+[)\]]|\[\d{1,3}\](?=[\s.,\[]|$)")

_LETTER = rf"[^\W\d{UNSPACED}]"  # of a script whose words are set apart by blanks
_GLUED = re.compile(rf"(?:{_LETTER}|[\^±]|±\s)\Z")
# Thousands are separated by one kind of mark. A comma that cannot separate thousands is a decimal one, if the
# number has no other.
_DECIMAL = r"""(?:
    (?<!\d\.)(?!0)\d{1,3}(?:\.\d{3}(?!\d))++(?:,\d++|(?<=\.\d{3}\.\d{3}))(?![.,]\d)
    |(?!0)\d{1,3}(?:(?:[ ]\d{3}(?!\d))++|(?:['’]\d{3}(?!\d))++)(?:[.,]\d++)?+
    |(?:(?!0)\d{1,3}(?:,\d{3}(?!\d))++|(?<!\d,)\d{1,2}(?:,\d\d(?!\d))++,\d{3}(?!\d))(?:\.\d++)?+
    |(?<!\d,)\d++,\d++(?![.,]\d)
    |\d++(?:\.\d++)?+
    |(?<!\d)\.\d++)"""
# A time, a date, a version: no number whose thousands dots set apart.
_CHAIN = r"""(?<!\d[./:-])(?!\d{1,3}(?:\.\d{3}(?!\d))++(?!\.\d))
    \d++(?:(?::\d++)++|(?P<mark>[./-])\d++(?:(?P=mark)\d++)++)"""
_POWER = r"\s?(?:\^|\*\*)\s?[({]?\s?"
_NUMBER = rf"""
(?:(?<!{_LETTER})(?<![\d)\]}}%])(?P<sign>[-+]))?+
(?:[$¢-¥฿₠-₿]\s?(?P<inner_sign>[-+])?+)?+
(?:(?P<chain>{_CHAIN})
  |(?P<whole>\d++)\s(?P<part>\d++)/(?P<parts>\d++)(?![\d/.])
  |(?<!/)(?<!/[ ])(?P<over>{_DECIMAL})\s?/\s?(?P<under>-?{_DECIMAL})(?!\s?/\s?\d)
  |(?P<number>{_DECIMAL})
   (?:[eE](?P<exponent>[-+]?\d++)(?!\w)
     |\s?[×x*·]\s?10{_POWER}(?P<ten>[-+]?\d++)
     |{_POWER}(?P<power>[-+]?\w++))?+)
(?:\s?(?P<sign_after>%|百?万|[千萬億亿兆만억])
  |\s?(?P<word>(?i:per\s?cent|pct|thousand|million|billion|trillion|lakh|crore)|लाख|ألف|مليون|مليار)(?!\w)
  |(?P<letter>[kKMB]|[bm]n)(?!\w))?+
"""
_TO = re.compile(r"\s?(?:-|—|~|to|through|至|到)\s?")


def answered_number(text: str) -> Value | str | None:
    r"""Return the number or range that the text answers with, or None if it has no readable one.

    It is the last one in the last \boxed{...}; without a box, the first one after the last "####" (GSM8K); else the
    last one of the last sentence with "the answer is"; else the last of the text. A number in brackets after a word (5
    [1]), or directly after a letter (CO2), counts only if there is no other. The minus of "- 31" is a sign. A time, a
    date or a version is a text.
    """
    text = drop_thoughts(text)
    if (box := boxed(text)) is not None:
        return _value(_SIGN_AT_START.sub("-", _plain(box)), last=True)
    _, mark, after = text.rpartition("####")
    text = _plain(after)
    if mark or "\n" not in text.strip():  # lines that begin with "- " are a list
        text = _SIGN_AT_START.sub("-", text)
    if mark:
        return _value(text, last=False)
    for sentence in answer_sentences(text):
        if (stated := _value(sentence, last=True)) is not None:
            return stated
    return _value(text, last=True)


def are_close(one: Decimal, other: Decimal, rel_tol: float | None, abs_tol: float) -> bool:
    """Return whether the difference is within `rel_tol` of the larger, or within `abs_tol`.

    By default (None) `rel_tol` is 0 between whole numbers, else 1e-6.
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


def _plain(text: str) -> str:
    """Return the text with one spelling for equal notations: widths, minus signs, fractions, blanks of LaTeX."""
    text = _SUPERSCRIPT.sub(r"^\g<0>", _VULGAR.sub(" ", text))
    text = normal(text).translate(_SAME).replace("+/-", "±")
    if "\\" in text or "{" in text:
        text = _LATEX.sub(lambda match: _READ_AS.get(match.group(), " "), text)
        text = _FRACTION.sub(_quotient, text)
    return _SIGN.sub(r"\1-", _MINUS.sub("-", text))


def _quotient(match: re.Match[str]) -> str:
    top, bottom = match["top"] or match["top_digit"], match["bottom"] or match["bottom_digit"]
    return f" {match['sign']}{top}/{bottom}"


def _value(text: str, *, last: bool) -> Value | str | None:
    """Return the last or the first number. Two numbers are a range if they are joined, and no third is joined to them.

    Numbers in parentheses, and then numbers that are glued to a word, count only if there are no others.
    """
    for among, glued in ((_ASIDE.sub(" ", text), False), (text, False), (text, True)):
        if few := _few(among, last=last, glued=glued):
            return _chosen(among, few, last=last)
    return None


def _chosen(text: str, few: Sequence[regex.Match[str]], *, last: bool) -> Value | str | None:
    pair, beyond, answer = few[:2], few[1:3], few[0]
    if last:
        pair, beyond, answer = few[-2:], few[-3:-1], few[-1]
    if _are_joined(text, pair) and not _are_joined(text, beyond):
        low, high = map(_number, pair)
        if low is not None and high is not None and low < high:
            return _scaled(low, high, _unit(pair[1]) or _unit(pair[0]))
    if answer["chain"] is not None:
        return re.sub("[./]", "-", re.sub(r"(?<!\d)0+(?=\d)", "", answer["chain"]))
    number = _number(answer)
    if number is None:
        return None
    return _scaled(number, number, _unit(answer))


def _few(text: str, *, last: bool, glued: bool) -> Sequence[regex.Match[str]]:
    """Return up to three matches at the end or the start of the text."""
    matches = _matches(text, glued)
    if last:
        return list(deque(matches, 3))
    return list(islice(matches, 3))


def _matches(text: str, glued: bool) -> Iterator[regex.Match[str]]:
    for match in _number_pattern().finditer(text):
        before = text[max(0, match.start() - 2) : match.start()]
        is_power = match["power"] is not None and match["number"] != "10"
        if not is_power and bool(_GLUED.search(before)) == glued:
            yield match


@cache
def _number_pattern() -> regex.Pattern[str]:
    # Not `re`: before Python 3.11.5 (Debian 12 has 3.11.2) possessive groups that hold others go wrong there, gh-106052
    import regex

    return regex.compile(_NUMBER, regex.VERBOSE)  # noqa: TID251 - our own


def _are_joined(text: str, pair: Sequence[regex.Match[str]]) -> bool:
    if len(pair) < 2 or any(match["chain"] is not None for match in pair):
        return False
    (begin, start), end = pair[0].span(), pair[1].start()
    between = text[start:end] == " and " and text[max(0, begin - 8) : begin].lower() == "between "
    return between or _TO.fullmatch(text, start, end) is not None


def _unit(match: regex.Match[str]) -> str:
    """Return the key of the number's scale, "" without one."""
    unit = match["sign_after"] or match["word"] or match["letter"] or ""
    # Case-insensitive patterns accept the Turkish capital I with a dot, which becomes two characters.
    return "".join(unit.lower().replace("i\u0307", "i").split())


def _scaled(low: Decimal, high: Decimal, unit: str) -> Value:
    scale = _SCALES[unit] if unit else 0
    if unit:
        unit = "%" if scale < 0 else f" {unit}"
    return Value(low, high, unit, scale)


def _number(match: regex.Match[str]) -> Decimal | None:
    """Return the signed number, or None if it has none (division by 0) or is out of bounds."""
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
    if "-" in (match["sign"], match["inner_sign"]):
        return -number
    return number


def _ratio(over: str, under: str) -> Decimal:
    return _ARITHMETIC.divide(Decimal(_digits(over)), Decimal(_digits(under)))


def _digits(text: str) -> str:
    """Return a number in the notation of Decimal: without separators of thousands, and with a decimal point."""
    head, comma, tail = text.rpartition(",")
    if comma and not (re.fullmatch(r"(?!0)\d{1,3}(?:,\d{2,3})*", head) and len(tail.partition(".")[0]) == 3):
        return re.sub("[. '’]", "", head) + "." + tail
    if text.count(".") > 1:
        text = text.replace(".", "")
    return re.sub("[, '’]", "", text)


Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@metric("numeric_match")
def numeric_match(
    ground_truth: str, prediction: str, *, rel_tol: Tolerance | None = None, abs_tol: Tolerance = 0.0
) -> Measured:
    """Return 1 if both texts answer with the same number (`answered_number`), else 0, also if one has none.

    A percentage equals its number and the number over 100, "3 million" equals 3 and 3000000. A number equals
    a range of the ground truth that contains it, a range only itself; a time, a date or a version itself.
    A reply that continues with a further question is read up to there (`without_run_on`). `rel_tol` and `abs_tol` as in
    `are_close`. Details: `expected`, `found`, and `run_on` for a reply that continues.
    """
    require_tolerance("numeric_match", "rel_tol", rel_tol or 0.0)
    require_tolerance("numeric_match", "abs_tol", abs_tol)
    reply, run_on = without_run_on(drop_thoughts(prediction))
    expected, actual = answered_number(ground_truth), answered_number(reply)
    if run_on and actual is None:
        actual, run_on = answered_number(prediction), False
    details: dict[str, Any] = {"expected": expected and str(expected), "found": actual and str(actual)}
    if run_on:
        details["run_on"] = True
    if isinstance(expected, Value) and isinstance(actual, Value):
        agree = any(
            _agree(one, other, rel_tol, abs_tol)
            for one in _readings(expected, actual)
            for other in _readings(actual, expected)
        )
    else:
        agree = expected is not None and expected == actual
    return Measured(float(agree), details)


def require_tolerance(metric_name: str, option: str, value: object) -> None:
    """Raise ValueError unless the value is a number from 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isfinite(value) and value >= 0):
        raise ValueError(f"{metric_name}: {option} is {value!r}, expected a number from 0")


def _readings(value: Value, other: Value) -> list[Value]:
    """Return the value as it is written, as it counts (3 million, 18 %), or both: a plain number may mean either."""
    if value.scale == 0 or value.scale == other.scale:
        return [value]
    counted = Value(value.low.scaleb(value.scale), value.high.scaleb(value.scale))
    if other.scale:
        return [counted]
    return [value, counted]


def _agree(expected: Value, actual: Value, rel_tol: float | None, abs_tol: float) -> bool:
    def close(one: Decimal, other: Decimal) -> bool:
        return are_close(one, other, rel_tol, abs_tol)

    if close(expected.low, actual.low) and close(expected.high, actual.high):
        return True
    if actual.low != actual.high:
        return False
    return (
        expected.low < actual.low < expected.high or close(expected.low, actual.low) or close(expected.high, actual.low)
    )
