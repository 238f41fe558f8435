"""Mechanical checks of drafts (seed 004, 4.2 and A.3): checks that need no model.

A fuzzy text must not contain names of servers and tools (seed 004, A.3).

Names are found as whole words, in any case. Two kinds of names are also ordinary words, which a person may well use:

- a server's name that its own tools' descriptions use in lower case ("time", "national parks"), or a single
  word that they do not use as a name either ("everything"), counts only if it is written as a name within a
  sentence, or precedes "server", "tool", "MCP" or "API";
- a tool's name of one word ("search", "median") counts only in backquotes, after its server's name, or before "tool".

Other tools' names count as written. If such a name begins with a verb and has three words or more
(`get_current_time`), it counts also as separate words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pytest_agentbench.packs.mcp_bench.synthesis.base import Catalogue, Generated, Kind, Reason
from pytest_agentbench.tools.mcp.servers import ServerTool

_BEFORE, _AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
_IN_SENTENCE = r"(?<=[a-z0-9,;\u4e00-\u9fff] )"
_WORD = re.compile("[A-Za-z][a-z]+")
_SUFFIX = re.compile(r"(?i)[\s_-]+(?:mcp|server)$")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VERBS = re.compile(
    "add|analyze|calculate|check|compare|compute|convert|count|create|delete|describe|download|edit|extract|fetch|find|"
    "generate|get|list|lookup|move|plot|query|read|remove|retrieve|run|search|set|show|summarize|update|write"
)
_FEWEST_WORDS = 3


def find_names(text: str, catalogues: Iterable[Catalogue]) -> Iterator[Reason]:
    """Yield a reason for each server and tool whose name is in `text`, the fuzzy one."""
    for catalogue in catalogues:
        if (match := _server_pattern(catalogue).search(text)) is not None:
            yield _make_name_reason(match[0], f"server {catalogue.server!r}")
        for tool in catalogue.tools:
            if (match := _tool_pattern(tool).search(text)) is not None:
                yield _make_name_reason(match[0], f"tool {tool.tool_id!r}")


def _make_name_reason(words: str, owner: str) -> Reason:
    return Reason(kind="name", text=f"found {words!r} in the fuzzy text, which names the {owner}; describe it")


def split_words(name: str) -> list[str]:
    """Return the words of a name in snake_case, kebab-case or camelCase, in lower case."""
    return [part.lower() for part in _PART.findall(name)]


def _server_pattern(catalogue: Catalogue) -> re.Pattern[str]:
    name = catalogue.server
    patterns = []
    for form in dict.fromkeys((name, _SUFFIX.sub("", name))):
        spaced = _spaced_pattern(form)
        if _is_ordinary(form, catalogue):
            patterns.append(_IN_SENTENCE + _whole_word(spaced) if form != form.lower() else r"(?!)")
            patterns.append(rf"(?i:{_whole_word(spaced)}[\s-](?:MCP|API|servers?|tools?)\b)")
        else:
            patterns.append(rf"(?i:{_whole_word(spaced)})")
    return re.compile("|".join(patterns))


def _is_ordinary(name: str, catalogue: Catalogue) -> bool:
    """Return whether the name may be a word of the language, by its use in descriptions of the server's own tools."""
    prose = " ".join(tool.description for tool in catalogue.tools)
    if re.search(_whole_word(_spaced_pattern(name.lower())), prose) is not None:
        return True
    return _WORD.fullmatch(name) is not None and re.search(_IN_SENTENCE + _whole_word(re.escape(name)), prose) is None


def _tool_pattern(tool: ServerTool) -> re.Pattern[str]:
    name, words = re.escape(tool.name), split_words(tool.name)
    patterns = [rf"{_spaced_pattern(tool.server)}\s?:\s?{name}{_AFTER}"]
    if len(words) < 2:
        patterns += [rf"`{name}`", rf"{_whole_word(name)}\s+tool\b"]
    else:
        patterns.append(_whole_word(name))
    if len(words) >= _FEWEST_WORDS and _VERBS.fullmatch(words[0]):
        patterns.append(_whole_word(r"[\s_-]".join(words)))
    return re.compile("|".join(patterns), re.IGNORECASE)


def _spaced_pattern(name: str) -> str:
    """Return a pattern for the name whose words may have a blank, a hyphen, an underscore, or nothing between them."""
    return r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", name)))


def _whole_word(pattern: str) -> str:
    return f"{_BEFORE}{pattern}{_AFTER}"


# Neither exponents (after ** and ^) nor digits within names (utf8, v2.1) are numbers of the task.
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
# "1." and "(2)": the number of a step, if it begins a line or continues the count.
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
    """A number as written. It may have any of its `readings` (sets of values)."""

    text: str
    readings: tuple[frozenset[Decimal], ...]


def find_lost_numbers(detailed: str, fuzzy: str) -> list[str]:
    """Return the numbers of the detailed text that the fuzzy text does not have, as texts, each once.

    Signs, numbers of steps, exponents, parts of names, and the 100 of a percentage are ignored.
    """
    # Generous: the fuzzy text has all readings of its numbers, and one reading of each detailed number is enough.
    values = {value for number in _find_numbers(fuzzy) for reading in number.readings for value in reading}
    values |= set(_find_spelled_numbers(fuzzy))
    numbers = _find_numbers(_PERCENT.sub(" ", _remove_steps(detailed)))
    lost = (number.text for number in numbers if not any(reading <= values for reading in number.readings))
    return list(dict.fromkeys(lost))


def _find_numbers(text: str) -> Iterator[_Number]:
    for match in _TOKEN.finditer(text):
        if match["hour"] is not None:
            yield _read_time(match)
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


def _read_time(match: re.Match[str]) -> _Number:
    """Return a time of day, with both readings of its hour: the fuzzy text may have 17:00 as "5 pm"."""
    hour, minute = int(match["hour"]), int(match["minute"])
    past = {Decimal(minute)} if minute else set()
    return _Number(match.group(), tuple(frozenset({Decimal(h)} | past) for h in (hour, hour % 12 or 12)))


def _find_spelled_numbers(text: str) -> Iterator[Decimal]:
    yield from (Decimal(_WORDS[match.group().lower()]) for match in _ENGLISH.finditer(text))
    for match in _CHINESE.finditer(text):
        yield from _read_chinese_number(match.group())


def _read_chinese_number(numeral: str) -> Iterator[Decimal]:
    """Yield the values of a numeral below a thousand: 十二, 三十, 一百零五."""
    total, digit = 0, 0
    for character in numeral:
        if character in _DIGITS:
            digit = _DIGITS[character]
        else:
            total += (digit or 1) * (10 if character == "十" else 100)
            digit = 0
    yield Decimal(total + digit)


def _remove_steps(text: str) -> str:
    """Remove the numbers of steps from a text, and mentions of steps by number."""
    pieces, at, last = [], 0, 0
    for marker in _MARKER.finditer(text):
        number = int(marker["number"])
        begins_line = marker["line"] is not None
        if begins_line or number in (1, last + 1):
            pieces.append(text[at : marker.start("number")])
            at, last = marker.end(), number
    return _STEPS.sub(" ", "".join([*pieces, text[at:]]))


_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_NO_WORD_BEFORE, _NO_WORD_AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"'`)\]}]+|\bwww\.[A-Za-z0-9-]+\.[^\s<>\"'`)\]}]+")

_FOLDERS = r"(?:home|Users|tmp|etc|var|usr|opt|mnt|root|srv|media|Volumes|private)"
_FILE_TYPES = (
    r"(?:csv|tsv|json|jsonl|ya?ml|xml|txt|md|rst|xlsx?|docx?|pptx?|pdf|db|sqlite3?|log|ini|toml|cfg|conf|env|zip|gz|"
    r"tar|parquet|pkl|ipynb|py|sh|sql|html?|png|jpe?g|gif|svg|webp|mp[34]|wav)"
)
# The last alternative is a file's name alone; before a bracket it is a method, such as `data.json()`.
_LOCAL_PATH = re.compile(
    rf"(?<![\w/.:])/{_FOLDERS}/[^\s\"'`,;)]+"
    r"|(?<![\w/])(?:~|\.\.?)/[\w.-][^\s\"'`,;)]*"
    r"|\b[A-Za-z]:\\[^\s\"'`,;)]+"
    rf"|{_NO_WORD_BEFORE}[\w-]{{1,80}}\.{_FILE_TYPES}{_NO_WORD_AFTER}(?!\()"
)

_STREET = r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Highway|Hwy)"
# Not before "station" and "sensor": these are places that a tool may know by their street.
_ADDRESS = re.compile(
    rf"\b\d{{1,5}}[A-Za-z]?\s+(?:(?:[NSEW]|North|South|East|West)\.?\s+)?(?:(?:[A-Z][\w'’.-]*|\d+(?:st|nd|rd|th))\s+)"
    rf"{{1,3}}{_STREET}\b\.?(?!\s+[a-z]*\s*(?:station|sensors?)\b)"
    r"|[\u4e00-\u9fff]{1,8}(?:路|街|大道|巷|弄)\s?\d{1,5}\s?号"
)

# A month needs a day or a year next to it: "may" and "march" are words.
_DATE = re.compile(
    rf"{_NO_WORD_BEFORE}(?:"
    rf"{_YEAR}[-/.](?:0?[1-9]|1[0-2])(?:[-/.](?:3[01]|[12]\d|0?[1-9]))?(?!\d|[-/.]\d)"
    rf"|(?:3[01]|[12]\d|0?[1-9])[-/.](?:3[01]|[12]\d|0?[1-9])[-/.]{_YEAR}"
    rf"|{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?"
    rf"|{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?(?![\d%.:/])"
    rf"|{_MONTH},?\s+(?:of\s+)?{_YEAR}"
    rf"){_NO_WORD_AFTER}"
    rf"|{_YEAR}\s?年\s?\d{{1,2}}\s?月(?:\s?\d{{1,2}}\s?[日号])?|(?<!\d)\d{{1,2}}\s?月\s?\d{{1,2}}\s?[日号]"
)

FORBIDDEN: Mapping[Kind, re.Pattern[str]] = {
    "url": _URL,
    "local path": _LOCAL_PATH,
    "street address": _ADDRESS,
    "absolute date": _DATE,
}
"""Patterns of forbidden references by their names in rejections. A year alone is allowed: it may be part of a name."""

_ADVICE: Mapping[Kind, str] = {
    "url": "the agent must find everything with the tools, or in the text",
    "local path": "put the content into the text, or leave the file out",
    "street address": "name a city, a landmark or an area",
    "absolute date": "say it relative to today, such as 'the past 3 months'",
}


def find_forbidden_references(text: str, where: str) -> Iterator[Reason]:
    """Yield a reason for each kind of reference in `text`; `where` is the text's name in the reason."""
    for kind, pattern in FORBIDDEN.items():
        if (match := pattern.search(text)) is not None:
            yield Reason(kind=kind, text=f"found {match[0]!r} in {where}; {_ADVICE[kind]}")


def find_detailed_problems(
    generated: Generated, catalogues: Sequence[Catalogue], existing: Iterable[str]
) -> Iterator[Reason]:
    """Yield the problems of a detailed task. `existing` are the detailed texts of other tasks."""
    text = generated.task_description
    yield from find_forbidden_references(text, "the detailed task")
    graph = generated.dependencies
    tools = {*graph, *(tool for prerequisites in graph.values() for tool in prerequisites)}
    for server in _find_unused_servers((text, generated.dependency_analysis), tools, catalogues):
        yield Reason(kind="unused server", text=f"neither {server!r} nor one of its tools is named; use every server")
    yield from _find_repetitions(text, existing)


def find_fuzzy_problems(
    detailed: str, fuzzy: str, catalogues: Sequence[Catalogue], existing: Iterable[str], *, exact: bool
) -> Iterator[Reason]:
    """Yield the problems of the fuzzy text of a detailed task. With `exact` it must keep all numbers."""
    yield from find_forbidden_references(fuzzy, "the fuzzy text")
    yield from find_names(fuzzy, catalogues)
    if exact and (lost := find_lost_numbers(detailed, fuzzy)):
        yield Reason(kind="lost number", text=f"the fuzzy text lacks {', '.join(lost)}; keep every number")
    yield from _find_repetitions(fuzzy, existing)


def _find_unused_servers(texts: Iterable[str], tools: Iterable[str], catalogues: Sequence[Catalogue]) -> list[str]:
    """Return the servers without a name or a tool in the texts, and without a tool in `tools` (ids).

    A tool's name in the texts does not count if several of the servers have it.
    """
    text, used_ids = "\n".join(texts), set(tools)
    owners: dict[str, set[str]] = {}
    for catalogue in catalogues:
        for tool in catalogue.tools:
            owners.setdefault(tool.name, set()).add(catalogue.server)

    def is_used(catalogue: Catalogue) -> bool:
        if _has_name(text, catalogue.server) or any(tool.tool_id in used_ids for tool in catalogue.tools):
            return True
        return any(len(owners[tool.name]) == 1 and _has_name(text, tool.name) for tool in catalogue.tools)

    return [catalogue.server for catalogue in catalogues if not is_used(catalogue)]


def _has_name(text: str, name: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", text) is not None


def _find_repetitions(text: str, existing: Iterable[str]) -> Iterator[Reason]:
    plain = _plain_text(text)
    if any(_plain_text(other) == plain for other in existing):
        yield Reason(kind="repetition", text="another task has the same text; make a different one")


def _plain_text(text: str) -> str:
    return " ".join(text.casefold().split())
