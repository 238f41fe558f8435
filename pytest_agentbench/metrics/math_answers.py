"""Read mathematical answers from texts: lists, tuples, intervals, ratios, numbers in a base, single expressions.

Texts are parsed here, in time linear in their length. Sympy compares the values of expressions, in the process of
`math_worker.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from pytest_agentbench.metrics.numbers import are_close
from pytest_agentbench.metrics.passages import FONT, answer_sentences, boxed, folded, normal

Equal = Callable[[str, str], bool]
"""Return whether two expressions have the same value."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a text, spelled as `text`. A `list` has no order, as a set has none; a `sequence` is a tuple or an
    interval in its `brackets`.
    """

    kind: Literal["expression", "text", "list", "sequence", "union", "ratio", "base"]
    text: str
    parts: tuple[Answer, ...] = ()
    brackets: str = ""


_DEEPEST = 12  # brackets within brackets
_MOST_PAIRS = 200_000  # elements of two lists that are compared with each other
_LONGEST_STATEMENT = 300  # characters of a line

_COMMANDS = (
    r"×\times ·\cdot π\pi ∞\infty ±\pm ∓\mp √\sqrt ≤\le ≥\ge ≠\ne ∪\cup ∈\in ∅\emptyset °^\circ "
    r"½\frac12 ⅓\frac13 ⅔\frac23 ¼\frac14 ¾\frac34"
)
_CHARACTERS = str.maketrans(
    {mark: command + " " for mark, command in re.findall(r"(\S)(\S+)", _COMMANDS)}
    | dict(zip("\u2010\u2011\u2012\u2013\u2212，；：（）、⁄÷", "-----,;:(),//", strict=True))
    | {"或": " or ", "和": " and ", "€": "", "£": "", "¥": "", "₹": ""}
)
_RAISED, _LOWERED = re.compile("[⁰¹²³⁴-⁹⁺⁻]+"), re.compile("[₀-₉]+")
_THOUSANDS_MARK = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\!|\\[,; ]|~)(?=\d{3}(?!\d))")
_NOISE = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|mathopen|mathclose)(?![a-zA-Z])"
    r"|</?answer>|\\?\$|(?<!\\)\\[()\[\]]|\\!|`|(?<![\w)\]}*])\*++(?!\s)|(?<![\s*])\*++(?![\w(\[{\\+-])"
)
_BLANK = re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad(?![a-zA-Z])")
_SYNONYMS = dict(
    re.findall(
        r"(\S+)=(\S+)",
        r"\dfrac=\frac \tfrac=\frac \cfrac=\frac \colon=: \leq=\le \geq=\ge \neq=\ne "
        r"\langle=( \rangle=) \lbrack=[ \rbrack=] \lbrace=\{ \rbrace=\}",
    )
)
_SYNONYM = re.compile(r"\\(?:[dtc]frac|[lr]angle|[lr]brac[ek]|colon|[lgn]eq)(?![a-zA-Z])")
_JOINED = re.compile(
    r"\\(?:text|mbox|textrm|mathrm)\s?\{[ ,]{0,2}(?:and|or)[ ,]{0,2}\}|(?<![\w\\{])(?:and|or)(?![\w}])", re.IGNORECASE
)
_UNION = re.compile(r"(?<=[)\]}])\s?U\s?(?=[(\[\\])")
_RATIO_IN_WORDS = re.compile(r"(\d{1,30}) to (\d{1,30})")

_FORMULA = re.compile(
    r"(?<!\\)\$\$((?:[^$\\]|\\.)+)\$\$|(?<!\\)\$(?!\s)((?:[^$\\]|\\.)+)(?<!\s)\$(?!\d)"
    r"|\\\(((?:[^\\]|\\[^()\[\]])+)\\\)|\\\[((?:[^\\]|\\[^()\[\]])+)\\\]",
    re.DOTALL,
)
_STATED = re.compile(r"\b(?:is|are|be)\b|[:=]", re.IGNORECASE)

_IN_WORDS = re.compile(r"\\(?:text[a-z]{0,6}|mathrm|mathbf|mbox)\s?\{[^{}\\]*\}")
_FUNCTION = re.compile("(?:arc)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp|sqrt|pi|min|max|gcd|lcm", re.IGNORECASE)
_SHORT_WORD = re.compile("no|is|it|so|we|to|of|if|an|in|at|as|be|by|do|he|me|my|up|us|go|am", re.IGNORECASE)
_WORD = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{2,}|[^\W\d_\x00-\u03ff]{2,}")
_TWO_WORDS = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{2,} [a-zA-Z]{2,}")
_UNIT = re.compile(
    r"(?<=[\d})]) (?!hundred|thousand|million|billion|trillion|percent|dozen|base|mod|and |or )"
    r"(?:[a-zA-Z]{3,20}|[cmk]m|[mk]g|m[il]|ft|in|oz|lb)\.?(?: [a-zA-Z]{2,20}\.?){0,3}(?=\s?(?:[,;]|$))"
)

_TOKEN = re.compile(r"\\begin|\\end|\\[{}]|\\[a-zA-Z]+|\\.|[()\[\]{},;:=|]")
_OPEN, _CLOSE = frozenset({"(", "[", "{", r"\{", r"\begin"}), frozenset({")", "]", "}", r"\}", r"\end"})
_SEPARATORS = frozenset({",", ";", ":", "=", "|", r"\mid", r"\cup", r"\in"})
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_NAMES = re.compile(r"(?:[a-zA-Z\\(),:{}' ]|_\d?){1,100}")
_VARIABLE = re.compile(r"(\\?[a-zA-Z]{1,8}(?:_\{?\w\}?)?) ?= ?(?=[^= ])")

_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_BASES |= {"eleven": 11, "twelve": 12, "sixteen": 16}
_IN_BASE = re.compile(
    r"(?P<sign>-?) ?\(?(?P<digits>[0-9A-Z]{1,999}(?:\.[0-9A-Z]{1,999})?)\)? ?"
    r"(?:_ ?\{? ?\(?(?P<base>[0-9]{1,2}|[a-z]{3,7})\)? ?\}?|\(?(?:in )?base[ -](?P<named>[0-9]{1,2}|[a-z]{3,7})\)?)"
)


def read_answer(text: str) -> Answer:
    r"""Return the answer of a text: its last \boxed{...}, or else the text after the last "####", or else all of it.

    In prose it is the text after "the answer is", or else the last formulas between dollars, or else the mathematics
    after "is" or "=" in the last line. Otherwise it is the words, an answer of the kind `text`.
    """
    text = _answering_text(text)
    for part in _answering_parts(text):
        if part and not _is_prose(part):
            return _read(part, 0)
    return Answer("text", _cleaned(next(answer_sentences(text), text)))


def _answering_text(text: str) -> str:
    if (box := boxed(text)) is not None:
        return box
    line, _, further = text.rpartition("####")[2].strip().partition("\n")
    is_heading = "####" not in text or (further and _is_prose(_cleaned(line)))
    if is_heading:
        return text
    return line


def _answering_parts(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be its answer, the likeliest first."""
    text = text.strip()
    lines = text.splitlines() or [""]
    if r"\begin" in text:  # an environment, such as a matrix, has several lines
        lines = [text]
    if not _is_prose(_cleaned(text)):
        yield _cleaned(lines[-1])
    for sentence in answer_sentences(text):
        yield _cleaned(sentence)
        if formulas := _formulas(sentence):
            # After "the answer is" a formula at the beginning is the answer, and any others explain it.
            is_first = sentence.startswith(("$", r"\(", r"\["))
            yield _cleaned(formulas[0] if is_first else formulas[-1])
        yield from _statements(sentence)
    if formulas := _formulas(text):
        yield _cleaned(formulas[-1])
    else:
        yield from _statements(lines[-1])


def _formulas(text: str) -> list[str]:
    """Return the formulas of a text; those that only a comma, "and" or "or" parts are one."""
    formulas: list[str] = []
    end = len(text)
    for match in _FORMULA.finditer(text):
        formula = next(filter(None, match.groups()))
        between = text[end : match.start()]
        if len(between) < 20 and formulas and not _JOINED.sub(",", between).strip(" ,;"):
            formulas[-1] += (" ; " if ";" in between else " , ") + formula
        else:
            formulas.append(formula)
        end = match.end()
    return formulas


def _statements(line: str) -> Iterator[str]:
    """Yield the text after each "is", ":" or "=" of a line, the longest first."""
    line = line[-_LONGEST_STATEMENT:]
    for match in _STATED.finditer(line):
        yield _cleaned(line[match.end() :])


def _cleaned(text: str) -> str:
    """Return the text with one spelling for equal notations, without formula marks."""
    text = _RAISED.sub(lambda match: f"^{{{normal(match.group())}}}", text)
    text = _LOWERED.sub(lambda match: f"_{{{normal(match.group())}}}", text).translate(_CHARACTERS)
    text = _NOISE.sub("", _THOUSANDS_MARK.sub("", text))
    text = _SYNONYM.sub(lambda match: _SYNONYMS[match.group()], _BLANK.sub(" ", text))
    text = " ".join(_UNION.sub(r" \\cup ", _JOINED.sub(" , ", text)).split())
    whole = FONT.fullmatch(text)
    return (whole[1] if whole else text).strip(" ,;").rstrip(".:?。 ")


def _is_prose(text: str) -> bool:
    """Return whether a cleaned text has words, other than functions, units behind a number and and/or."""
    bare = _UNIT.sub(" ", _IN_WORDS.sub(" ", text))
    words = {word for word in _WORD.findall(bare) if not _FUNCTION.fullmatch(word)}
    if any(len(word) > 2 or _SHORT_WORD.fullmatch(word) or not word.isascii() for word in words):
        return not (_IN_BASE.fullmatch(text) or _RATIO_IN_WORDS.fullmatch(text))
    return _TWO_WORDS.search(bare) is not None or not bare.strip(" .,;")


def _read(text: str, depth: int) -> Answer:
    """Parse a cleaned piece of mathematics."""
    text = text.strip()
    if (based := _read_base(text)) is not None:
        return based
    if depth > _DEEPEST:
        return Answer("expression", text)
    if (scanned := _scan(text)) is None:
        return _read_open_interval(text, depth) or Answer("expression", text)
    separators, end_of_first = scanned
    elements = _elements(text, within=False)
    if depth == 0:
        elements = [value for element in elements for value in _with_signs(element)]
    if len(elements) > 1:
        return Answer("list", text, _read_all(elements, depth))
    if r"\cup" in separators:
        return Answer("union", text, _read_all(text.split(r"\cup"), depth))
    return (
        _read_named(text, separators, depth)
        or _read_ratio(text, separators, depth)
        or _read_brackets(text, end_of_first, depth)
        or Answer("expression", _UNIT.sub("", text))
    )


def _read_all(texts: Sequence[str], depth: int) -> tuple[Answer, ...]:
    return tuple(_read(text, depth + 1) for text in texts)


def _scan(text: str) -> tuple[dict[str, list[int]], int] | None:
    """Return the positions of separators outside of brackets, and the end of the first bracket (0 without one).

    None if brackets do not close.
    """
    separators: dict[str, list[int]] = {}
    depth = end_of_first = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
            if depth < 0:
                return None
            if depth == 0 and end_of_first == 0:
                end_of_first = match.end()
        elif depth == 0 and token in _SEPARATORS:
            separators.setdefault(token, []).append(match.start())
    if depth:
        return None
    return (separators, end_of_first)


def _elements(text: str, *, within: bool) -> list[str]:
    """Return the parts separated by semicolons, or else by commas. `within` brackets (100,200) are two numbers;
    100,200 is one.
    """
    scanned = _scan(text)
    separators = scanned[0] if scanned else {}
    places = separators.get(";", [])
    if not places:
        places = separators.get(",", [])
        if not within or any(text[at + 1 : at + 2] == " " for at in places):
            grouping = {
                match.start() + at for match in _GROUPED.finditer(text) for at, c in enumerate(match[0]) if c == ","
            }
            places = [at for at in places if at not in grouping]
    cuts = [-1, *places, len(text)]
    return [part for start, end in pairwise(cuts) if (part := text[start + 1 : end].strip())]


def _with_signs(text: str) -> list[str]:
    r"""Return both values of an expression with \pm."""
    if not re.search(r"\\pm(?![a-zA-Z])", text):
        return [text]
    # \mp has the other sign than \pm, in both values.
    upper = re.sub(r"\\([pm])([mp])(?![a-zA-Z])", lambda match: "+" if match[1] == "p" else "-", text)
    lower = re.sub(r"\\([pm])([mp])(?![a-zA-Z])", lambda match: "-" if match[1] == "p" else "+", text)
    return [upper, lower]


def _read_base(text: str) -> Answer | None:
    """Return a number with its base: 4210_7, 1A_{16}, 101 base 2. Base 10 and names such as x_1 do not match."""
    match = _IN_BASE.fullmatch(FONT.sub(r"\1", text))
    if match is None:
        return None
    name, digits = match["base"] or match["named"], match["digits"]
    base = _BASES.get(name, 0)
    if name.isdecimal():
        base = int(name)
    if not (2 <= base <= 36 and all(digit == "." or int(digit, 36) < base for digit in digits)):
        return None
    if base == 10:
        return Answer("expression", match["sign"] + digits)
    return Answer("base", f"{match['sign']}{digits.lstrip('0') or '0'}_{base}")


def _read_open_interval(text: str, depth: int) -> Answer | None:
    """Return an interval whose open ends are brackets that look away from it: ]1, 2[."""
    if not (text[0] in "([]" and text[-1] in ")[]" and (text[0] == "]" or text[-1] == "[")):
        return None
    parts = _read_all(_elements(text[1:-1], within=True), depth)
    if len(parts) != 2:
        return None
    brackets = text[0].replace("]", "(") + text[-1].replace("[", ")")
    return Answer("sequence", text, parts, brackets)


def _read_named(text: str, separators: dict[str, list[int]], depth: int) -> Answer | None:
    r"""Return the right side of an equation that names several values: (x, y) = (1, 2), x \in [1, 2)."""
    for sign in ("=", r"\in"):
        places = separators.get(sign, [])
        if places:
            start = places[-1]
            value = _read(text[start + len(sign) :], depth + 1)
            if len(places) > 1 or (value.kind != "expression" and _NAMES.fullmatch(text[:start])):
                return value
    return None


def _read_ratio(text: str, separators: dict[str, list[int]], depth: int) -> Answer | None:
    if words := _RATIO_IN_WORDS.fullmatch(text):
        return Answer("ratio", text, _read_all(words.groups(), depth))
    places = separators.get(":", [])
    if not places or "|" in separators:
        return None
    cuts = [-1, *places, len(text)]
    parts = _read_all([text[start + 1 : end] for start, end in pairwise(cuts)], depth)
    if all(part.kind == "expression" and part.text for part in parts):
        return Answer("ratio", text, parts)
    return None


def _read_brackets(text: str, end: int, depth: int) -> Answer | None:
    """Return the content of brackets around the whole text."""
    if not text or end != len(text) or not text.startswith(("(", "[", "{", r"\{")):
        return None
    width = 2 if text.startswith("\\") else 1
    inner = text[width : -2 if text.endswith(r"\}") else -1].strip()
    is_set = text.startswith((r"\{", "{"))
    scanned = _scan(inner)
    if not inner or (is_set and scanned and any(mark in scanned[0] for mark in ("|", r"\mid", ":"))):  # {x | x > 2}
        return None
    elements = _elements(inner, within=True)
    if len(elements) > 1 or (is_set and width == 2):
        parts = _read_all(elements, depth)
        if is_set:
            return Answer("list", text, parts)
        return Answer("sequence", text, parts, text[0] + text[-1])
    return _read(inner, depth + 1)


def agree(expected: Answer, actual: Answer, equal: Equal) -> bool:
    """Return whether two answers are equal: lists in any order, sequences in order, intervals with their brackets,
    ratios in proportion, numbers in the same base. `equal` decides for anything but plain numbers.
    """
    if "text" in (expected.kind, actual.kind):
        return plain_text(expected.text) == plain_text(actual.text)
    if "list" in (expected.kind, actual.kind):
        return _are_same_set(_as_list(expected, actual), _as_list(actual, expected), equal)
    if "union" in (expected.kind, actual.kind):
        parts = expected.kind == actual.kind and _are_same_set(expected.parts, actual.parts, equal)
        return parts or equal(expected.text, actual.text)
    if expected.kind != actual.kind:
        return False
    if expected.kind == "expression":
        return _are_equal(expected.text, actual.text, equal)
    if expected.kind == "base":
        return expected.text == actual.text
    if len(expected.parts) != len(actual.parts):
        return False
    if expected.kind == "ratio" and (proportional := _are_proportional(expected.parts, actual.parts)) is not None:
        return proportional
    if len(expected.parts) == 2 and expected.brackets != actual.brackets:
        return False
    return all(agree(one, other, equal) for one, other in zip(expected.parts, actual.parts, strict=True))


def _as_list(answer: Answer, other: Answer) -> tuple[Answer, ...]:
    """Return the elements of a list; 100,200 is a list of two numbers if the other side is a list of two."""
    if answer.kind == "list":
        return answer.parts
    if answer.kind == "expression" and len(other.parts) > 1 and _GROUPED.fullmatch(answer.text):
        return _read_all(answer.text.split(","), 0)
    return (answer,)


def _are_same_set(one: Sequence[Answer], other: Sequence[Answer], equal: Equal) -> bool:
    if len(one) * len(other) > _MOST_PAIRS:
        return {part.text for part in one} == {part.text for part in other}
    return all(any(agree(member, actual, equal) for actual in other) for member in one) and all(
        any(agree(member, actual, equal) for member in one) for actual in other
    )


def _are_proportional(one: Sequence[Answer], other: Sequence[Answer]) -> bool | None:
    """Return whether two ratios of numbers are equal, None if not all parts are numbers above 0."""
    numbers = [[_number(part.text) for part in parts] for parts in (one, other)]
    if any(number is None or number <= 0 for row in numbers for number in row):
        return None
    first, second = ([_CONTEXT.divide(number, row[0]) for number in row] for row in numbers)  # type: ignore[arg-type]
    return all(are_close(a, b, None, 0.0) for a, b in zip(first, second, strict=True))


def _are_equal(expected: str, actual: str, equal: Equal) -> bool:
    """Return whether two expressions are equal. Only those that are no plain numbers are passed to `equal`.

    "x = 5" equals 5 and "x = 5", but not "y = 5".
    """
    name, other = _VARIABLE.match(expected), _VARIABLE.match(actual)
    if name is None or other is None or name[1] == other[1]:
        expected, actual = expected[name.end() if name else 0 :], actual[other.end() if other else 0 :]
    if _LOOSE_BLANK.sub("", expected) == _LOOSE_BLANK.sub("", actual):
        return True
    one, two = _number(expected), _number(actual)
    if one is not None and two is not None:
        return are_close(one, two, None, 0.0)
    return bool(expected and actual) and equal(expected, actual)


_LOOSE_BLANK = re.compile(r"(?<![\w}]) | (?![\w\\{])")
_CONTEXT = Context(prec=60, traps=[])
_GROUPED_NUMBER = re.compile(r"[-+]? ?\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d+)?")
_NUMBER = re.compile(
    r"(?P<sign>[-+]?) ?(?:(?P<whole>\d{1,99}) ?(?=\\frac|(?<= )\d))?"
    r"(?:\\frac ?(?:\{ ?(?P<top>[-+]?\d{1,99}) ?\} ?\{ ?(?P<bottom>\d{1,99}) ?\}|(?P<pair>\d\d)(?!\d))"
    r"|(?P<over>\d{1,99}) ?/ ?(?P<under>\d{1,99})"
    r"|(?P<decimal>\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<exponent>[-+]?\d{1,3}))?)"
)


@lru_cache(10_000)
def _number(text: str) -> Decimal | None:
    """Return the value of a plain number or fraction, None for all else."""
    if _GROUPED_NUMBER.fullmatch(text):
        text = text.replace(",", "").replace(" ", "")
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match["decimal"] is not None:
        if match["whole"] is not None:
            return None
        value = Decimal(f"{match['decimal']}e{match['exponent'] or 0}")
    else:
        pair = match["pair"] or "  "
        over, under = match["top"] or match["over"] or pair[0], match["bottom"] or match["under"] or pair[1]
        value = _CONTEXT.add(Decimal(match["whole"] or 0), _CONTEXT.divide(Decimal(over), Decimal(under)))
    if not value.is_finite():
        return None
    if match["sign"] == "-":
        return value.copy_negate()
    return value


def have_same_words(expected: str, actual: str) -> bool:
    """Return whether the expected answer is prose, as in "the $x$-axis", and the other one has the same words."""
    expected, actual = _answering_text(expected), _answering_text(actual)
    return _is_prose(_cleaned(expected)) and plain_text(expected) == plain_text(actual)


def plain_text(text: str) -> str:
    """Return a text to compare with another one: without marks of formulas and fonts, brackets around it, case."""
    text = folded(re.sub(r"[\\${}*_`]+", " ", FONT.sub(r"\1", _cleaned(text))))
    return " ".join(text.split()).strip("()[] .,;:!?\"'")
