"""Doubts about the rows of a dataset: rows that run, but whose score may mean nothing."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.bounded.json_files import BadItem, parse_value
from pytest_agentbench.sources.dataset import Dataset, Row
from pytest_agentbench.sources.items import answer_text_of, metadata_of
from pytest_agentbench.terminal_text import shorten_text

_UNDEFINED = b"\x81\x8d\x8f\x90\x9d"
_CP1252 = {ord(bytes([byte]).decode("cp1252")): byte for byte in range(0x80, 0xA0) if byte not in _UNDEFINED}
_FOLLOWING = rf"[\x80-\xbf{''.join(map(chr, _CP1252))}]"
# First characters of common letters in UTF-8 that was read as Windows-1252. "Spaß“" would be a letter of N'Ko.
_MISREAD = re.compile(rf"(?:[\xc2-\xc5\xce-\xd1\xd7-\xd9]|[\xe0-\xef]{_FOLLOWING}|\xf0{_FOLLOWING * 2}){_FOLLOWING}")
_SURELY_MISREAD = re.compile(rf"\xe2\u20ac{_FOLLOWING}|\xc3[\xa0-\xbf]")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_SIGNS = re.compile(
    r"(?P<lost>\ufffd|锟斤拷)|(?P<bom>\ufeff)|(?P<control>[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f])"
    r"|(?P<escape>(?<=[^\W\d_])\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}(?=[^\W\d_]|\\u[0-9a-fA-F]{4}))"
    r"|(?P<entity>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});)"
)
# Texts about markup or code contain entities on purpose.
_MARKUP = re.compile(r"</?[a-z][^<>]*>|`|\b(?:x?html|xml|entity|entities)\b|^(?:&[^&;\s]+;\s*)+$", re.IGNORECASE)
_ADVICE = {
    "lost": "in which a character was lost; convert the source again as UTF-8",
    "bom": "with a byte order mark inside; remove U+FEFF",
    "control": "with a control character; remove it",
    "escape": "with an escape that was escaped twice; decode the text once more",
    "entity": "with an HTML entity; unescape the text",
}


def encoding_damage(text: str) -> tuple[int, str] | None:
    r"""Return the position of a sign of damage, a description and a remedy; None for a text without such signs.

    Signs are U+FFFD, UTF-8 read as Windows-1252, Latin-1 or GBK, byte order marks and control characters inside,
    `\u00e9` in letters, and HTML entities in texts that are not about markup.
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
        match = sign.search(text)
        if match is None:
            continue
        # Windows-1252 is Latin-1 with other characters for 27 bytes. Python's codec refuses its five undefined bytes.
        meant = _recoded(text.translate(_CP1252) if encoding == "latin-1" else text, encoding)
        if meant is None:
            continue
        at = match.start()
        excerpt = meant[max(0, at - 10) : at + 10].strip()
        return at, f"which is {excerpt!r} in UTF-8, read as {read_as}; read it as UTF-8"
    match = _SURELY_MISREAD.search(text)
    if match is None:
        return None
    return match.start(), "which is UTF-8 that was read as Windows-1252; read it as UTF-8"


def _recoded(text: str, encoding: str) -> str | None:
    """Return the text of the same bytes in UTF-8. Return None if it is not shorter, or the bytes are not UTF-8."""
    try:
        meant = text.encode(encoding).decode()
    except UnicodeError:
        return None
    if len(meant) < len(text):
        return meant
    return None


# Doubts about the rows of a dataset: each row runs, but its score may mean nothing.
#
# One pass over the rows, which keeps a hash of each question and no text.


_MOST_OF_A_KIND = 20
"""Maximum doubts of a kind that are listed for each file. The rest are counted."""

_CHOICES = frozenset({"choices", "options", "candidates"})
_PLACEHOLDERS = frozenset({"n/a", "#n/a", "todo", "tbd", "tba", "fixme", "null", "nan"})
_NO_WORD = frozenset("-–—_.…?？。\"'`“”‘’")
_LABELS = frozenset(
    {
        *("id", "uid", "uuid", "guid", "qid", "idx", "ind", "index", "key", "hash", "number", "no", "row"),
        *("questionid", "taskid", "itemid", "instanceid", "exampleid", "uniqueid", "split", "subset", "fold"),
        *("difficulty", "level", "grade", "category", "subcategory", "subject", "topic", "domain", "type", "tasktype"),
        *("questiontype", "answertype", "source", "src", "origin", "dataset", "author", "year", "date", "language"),
        *("lang", "tag", "tags", "keywords", "explanation", "rationale", "solution", "reasoning", "comment", "notes"),
    }
)
"""Fields, without case and separators, that label a question and do not describe its subject."""

_TELLS = r"(?:\b(?:answer|solution|result)(?:\s+is\b|\s*[:=])|答案\s*(?:是|为|為|[:：]))"
_SHORTEST_COPY = 3
_LONGEST_QUESTION = 300
_LETTER = r"[^\W\u0e00-\uffff]"
_PLAIN = frozenset({"yes", "no", "true", "false"})
_OFFERS = re.compile(r"\bor\b|\w\s*/\s*\w|还是|或|^\s*[(\[]?[a-e][.):\]]\s", re.MULTILINE)
_SHOWN = 40


class Doubt(NamedTuple):
    """A row's place (`file:line:column`) and a sentence: field, value, remedy."""

    place: str
    text: str


class _Item(NamedTuple):
    row: Row
    question: str
    answer: str
    metadata: dict[str, Any]


def find_doubts(dataset: Dataset, rows: Iterable[Row]) -> Iterator[Doubt]:
    """Yield doubts about rows of the dataset, in their order; at most 20 of a kind for each file, then how many more.

    Raises ConfigError if few-shot examples cannot be read.
    """
    kinds: dict[str, Callable[[_Item], Iterable[str]]] = {"near-empty answers": _near_empty_answer}
    # A question with choices contains its answer.
    if all(metric.name != "multiple_choice" for metric in dataset.metrics):
        kinds["answers that are in their question"] = _answer_in_question
    kinds["repeated questions"] = _Repeated(dataset)
    if dataset.shots is not None:
        kinds["questions that a few-shot example solves"] = _Solved(dataset.shots.questions)
    kinds["damaged texts"] = _damaged_texts
    counts: Counter[tuple[Path, str]] = Counter()
    left_out: dict[tuple[Path, str], int] = {}
    for row in rows:
        value = parse_value(row.raw)
        item = _Item(row, value["question"], answer_text_of(value), metadata_of(value))
        for kind, doubts_of in kinds.items():
            for text in doubts_of(item):
                key = item.row.path, kind
                counts[key] += 1
                if counts[key] <= _MOST_OF_A_KIND:
                    yield Doubt(_place(dataset, item.row.path, item.row.line), text)
                else:
                    left_out.setdefault(key, item.row.line)
    for (path, kind), line in left_out.items():
        more = counts[path, kind] - _MOST_OF_A_KIND
        yield Doubt(_place(dataset, path, line), f"{more:,} more {kind} from here on")


def _place(dataset: Dataset, path: Path, line: int) -> str:
    if dataset.recipe is not None:
        return dataset.recipe.where(path, BadItem(line, 1, ""))
    return f"{path}:{line}:1"


def _near_empty_answer(item: _Item) -> Iterator[str]:
    """Yield a doubt for white space, dashes, dots, quotes or a placeholder as the answer.

    Other symbols may be answers.
    """
    answer = item.answer
    if not answer:
        return
    if answer.strip().casefold() in _PLACEHOLDERS or all(map(_says_nothing, answer)):
        yield f"answer: found {_excerpt(answer)}, which looks like no answer; write the right one or remove the row"


def _says_nothing(sign: str) -> bool:
    return sign in _NO_WORD or unicodedata.category(sign)[0] in "ZC"


def _answer_in_question(item: _Item) -> Iterator[str]:
    """Yield a doubt for a question that states the answer ("answer: X") or contains it as whole words.

    Questions with choices or solved examples contain many answers; long ones include a text.
    """
    question, answer = item.question.casefold(), " ".join(item.answer.casefold().split())
    if len(question) > _LONGEST_QUESTION or not _CHOICES.isdisjoint(item.metadata):
        return
    if not answer or answer not in " ".join(question.split()):
        return  # before the patterns: to compile one for each row takes most of the time
    cues = len(re.findall(_TELLS, question))
    match = re.search(rf"{_TELLS}\s*[\"'“‘(\[]?{re.escape(answer)}(?!\w|\s*[,/|]|\s+or\b)", question)
    # Several cues may belong to solved examples.
    if match is not None and cues == 1:
        excerpt = _excerpt(item.question[match.start() : match.end()])
        yield f"question: found {excerpt}, which gives away the answer; take it out of the question"
    elif not cues and not _OFFERS.search(question) and _contains(" ".join(question.split()), answer):
        yield f"answer: found {_excerpt(item.answer)}, which is also in the question; it can be copied from there"


def _contains(question: str, answer: str) -> bool:
    """Return whether the question contains the answer as whole words. False for short and common words."""
    shortest = _SHORTEST_COPY if answer.isascii() else 2  # two Chinese characters are a word
    if answer in _PLAIN or len(answer) < shortest:
        return False
    return re.search(rf"(?<!{_LETTER}){re.escape(answer)}(?!{_LETTER})", question) is not None


class _Repeated:
    """Finds repeated questions: with equal context, image, choices and other fields that are no labels."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._first: dict[int, tuple[Path, int, int]] = {}  # hashes only: a dataset may have millions of rows

    def __call__(self, item: _Item) -> Iterator[str]:
        material = [(key, str(value)) for key, value in item.metadata.items() if not _is_label(key)]
        question = hash((" ".join(item.question.split()), *material))
        answer = hash(" ".join(item.answer.split()))
        here = (item.row.path, item.row.line, answer)
        path, line, first_answer = first = self._first.setdefault(question, here)
        if first is here:
            return
        where = f"line {line}" if path == item.row.path else _place(self._dataset, path, line)
        if answer == first_answer:
            yield f"question: found {_excerpt(item.question)} again, first on {where}; it counts twice, remove one"
        else:
            yield (
                f"question: found {_excerpt(item.question)} again, but the answer on {where} is not "
                f"{_excerpt(item.answer)}; keep the right one"
            )


@lru_cache(maxsize=1024)
def _is_label(key: str) -> bool:
    return "".join(filter(str.isalnum, key.casefold())) in _LABELS


class _Solved:
    """Questions that an example solves in the prompt of every other row."""

    def __init__(self, examples: Iterable[str]) -> None:
        self._examples = frozenset(map(_loosely, examples))

    def __call__(self, item: _Item) -> Iterator[str]:
        if self._examples and _loosely(item.question) in self._examples:
            yield (
                f"question: found {_excerpt(item.question)}, which few_shot shows with its answer to the other rows; "
                "take the examples from another split, or remove the row"
            )


def _damaged_texts(item: _Item) -> Iterator[str]:
    for field, text in _texts([("question", item.question), ("answer", item.answer), *item.metadata.items()]):
        damage = encoding_damage(text)
        if damage is not None:
            at, problem = damage
            yield f"{field}: found {_excerpt(text[max(0, at - 10) :])}, {problem}"


def _texts(fields: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a row with their fields' names, also those in lists."""
    for field, value in fields:
        if isinstance(value, str):
            yield field, value
        elif isinstance(value, list):
            yield from ((field, element) for element in value if isinstance(element, str))


def _loosely(text: str) -> str:
    """Return a question without case, width, white space and final punctuation."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(" .?!。")


def _excerpt(text: str) -> str:
    words = " ".join(text[: 4 * _SHOWN].split())
    return repr(shorten_text(words, _SHOWN))
