"""Read texts: their words, the place of the answer, and the common parts of two texts."""

from __future__ import annotations

import difflib
import re
import string
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, pairwise, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex


UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Myanmar, Hangul Jamo, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"  # kana, Han, Hangul
)
"""Scripts whose words are not set apart by blanks, as ranges of a character class."""

FONT = re.compile(r"\\(?:text|math)[a-z]{0,6}\s?\{([^{}\\]*)\}")
"""A command of LaTeX that sets its argument in a font: \\text{...}, \\mathrm{...}."""

_ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Return Unicode's NFKC form: one spelling for wide and narrow, composed and decomposed characters.

    Of a run of combining marks the first 30 count (the stream-safe format of UAX #15): sorting longer ones takes a time
    that grows with their square.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _pattern(r"(\p{M}{30})\p{M}+").sub(r"\1", text))


def folded(text: str) -> str:
    """Return the normal form without the difference of upper and lower case."""
    if text.isascii():
        return text.lower()
    return normal(normal(text).casefold())


def answer_tokens(text: str) -> list[str]:
    """Tokens by SQuAD's rule: lower case, without punctuation and English articles, split at white space.

    Rajpurkar et al. 2016, arXiv:1606.05250. A text of nothing but articles or punctuation keeps them.
    """
    text = folded(text)
    if text.isascii():
        tokens = text.translate(_NO_PUNCTUATION).split()
    else:
        bare = _pattern(r"[\p{P}$+<=>^`|~]+").sub("", text)
        tokens = _pattern(rf"[{UNSPACED}]\p{{M}}*|[^\s{UNSPACED}]+").findall(bare)
    return [token for token in tokens if token not in _ARTICLES] or tokens or text.split()


def words(text: str) -> list[str]:
    """Return lower-case runs of letters and digits with their marks, and pictographs; rouge_score's tokens for
    ASCII.
    """
    text = folded(text)
    if text.isascii():
        return _pattern("[a-z0-9]+").findall(text)
    letter = rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]"
    return _pattern(rf"[{UNSPACED}]\p{{M}}*|{letter}+|\p{{So}}").findall(text)


def spaced(text: str) -> str:
    """Return the normal form with blanks around characters and punctuation of a script without blanks."""
    text = normal(text)
    if text.isascii():
        return text
    return _pattern(rf"([{UNSPACED}]\p{{M}}*|[\u3001-\u303f])").sub(r" \1 ", text)


@cache
def _pattern(pattern: str) -> regex.Pattern[str]:
    import regex

    return regex.compile(pattern, regex.VERSION1)  # noqa: TID251 - a tokenizer's own


_ANSWER = re.compile(
    r"\banswer\b(?!\s(?:choices|options|key))[^.\n:=]{0,40}?(?:\bis\b|[:=])"
    r"|<answer>|(?:答案|正解|答え)[^。\n:]{0,8}?(?:是|为|為|は|:)|정답(?:은|:)",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"[\s*_`:]*+")
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|[。！？]")


def boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}`, or None."""
    box = text.rfind("\\boxed")
    if box < 0:
        return None
    depth, start = 0, text.find("{", box)
    for brace in re.finditer(r"[{}]", text[box:]):
        depth += 1 if brace.group() == "{" else -1
        if depth <= 0:
            return text[start + 1 : box + brace.start()]
    if start >= 0:
        return text[start + 1 :]
    return text[box:]


def answer_sentences(text: str) -> Iterator[str]:
    """Yield the rest of each sentence after "the answer is", "Answer:", "答案是" and the like, the last one first."""
    end = len(text)
    for cue in reversed([match.span() for match in _ANSWER.finditer(text)]):
        start = min(end, _EMPHASIS.match(text, cue[1]).end())  # type: ignore[union-attr]  # it matches nothing too
        stop = _SENTENCE_END.search(text, start, end)
        yield text[start : stop.start() if stop else end]
        end = cue[0]


_FURTHER_QUESTION = re.compile(
    r"^[ \t>*#_]*(?:Question[ \t]*\d{0,3}|Q|Human|User|Instruction|Pregunta|Frage|Domanda|Pergunta|Pertanyaan|Soru"
    r"|Вопрос|问题|問題|问|問|질문)[ \t*_]*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_ANSWERED = re.compile(r"####|\\boxed|" + _ANSWER.pattern, re.IGNORECASE)
# A line of GSM8K's answers: a number, and a unit at most. "#### 1. Understand the task" is a heading.
_ANSWER_LINE = re.compile(
    r"^#{4}[ \t]*[-+]?[ \t]?[$€£]?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?[ \t]?%?(?:[ \t][a-z]{1,15}){0,2}\.?[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_LETTER = re.compile(r"\w")
_ASKING = re.compile(r"^[ \t]*(?:\S+[ \t]+){7}.*\?[ \t]*$", re.MULTILINE)
_OWN_DOUBT = re.compile(r"\b(?:I|we|me|my|our|us|let|wait|hmm|correct|right|check)\b|['’]s see", re.IGNORECASE)


def without_run_on(text: str) -> tuple[str, bool]:
    """Return a reply up to a further question that follows its answer, and whether there is one.

    A base model that has seen several questions with answers continues with the next question. It begins with
    "Question:", "Q:" or the like, or is between two lines "#### NUMBER" and does not doubt the first of them.
    """
    answers = [match.end() for match in _ANSWERED.finditer(text)]
    end = len(text)
    for question in _FURTHER_QUESTION.finditer(text):
        before = bisect_left(answers, question.start())
        # "To answer this, let me restate it:" has no answer yet
        if before and _LETTER.search(text, answers[before - 1], question.start()):
            end = question.start()
            break
    lines = [match.span() for match in _ANSWER_LINE.finditer(text, 0, end)]
    for (_, start), (stop, _) in pairwise(lines):
        asking = _ASKING.search(text, start, stop)
        if asking and not _OWN_DOUBT.search(asking.group()):
            return text[:start], True
    return text[:end], end < len(text)


# The longest common subsequence of two lists of tokens, by bit vectors instead of a table. `compat="v1"`
# needs it without extras. rapidfuzz's LCSseq, the same algorithm, takes twice as long for lists of 100,000
# tokens of a small vocabulary, four times of a large one, without a limit on time.


_MOST_TOKENS = 100_000
"""Past their common start, texts are compared up to here: one or two seconds, far above any real answer."""

_BLOCK = 16_384  # tokens in one bit vector: bounds the memory of the vectors at some 20 MB


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many tokens a longest common subsequence has; time grows with the product of the lengths / 64.

    Hyyrö 2004, "Bit-parallel LCS-length computation revisited": a bit of `row` per token of `one`, a step per token of
    `other`. Blocks of `one` hand their carries on.
    """
    start = _common(one, other)
    one, other = one[start:], other[start:]
    end = _common(one[::-1], other[::-1])
    one, other = one[: len(one) - end][:_MOST_TOKENS], other[: len(other) - end][:_MOST_TOKENS]
    carries = bytearray(len(other))
    blocks = (one[at : at + _BLOCK] for at in range(0, len(one), _BLOCK))
    return start + sum(_block_length(block, other, carries) for block in blocks) + end


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many tokens both begin with."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def _block_length(block: Sequence[str], other: Sequence[str], carries: bytearray) -> int:
    """Return the block's part of the length. `carries` contains the incoming bit at each token of `other`, then the
    outgoing one.
    """
    places: dict[str, int] = {}
    for at, token in enumerate(block):
        places[token] = places.get(token, 0) | 1 << at
    size = len(block)
    ones = (1 << size) - 1
    row = ones
    for at, token in enumerate(other):
        matches = row & places.get(token, 0)
        if matches or carries[at]:
            moved = row + matches + carries[at]
            carries[at] = moved >> size
            row = (moved | (row - matches)) & ones
    return size - row.bit_count()


_MOST_STEPS = 30_000_000
"""Comparisons of two characters: some seconds."""

_EACH = 5  # what a character costs whatever it is compared with


def similarity_ratio(one: str, other: str) -> float:
    """`SequenceMatcher(None, one, other).ratio()`; past _MOST_STEPS no further matching blocks are looked for."""
    if one == other:
        return 1.0
    return _BoundedMatcher(one, other).ratio()


class _BoundedMatcher(difflib.SequenceMatcher[str]):
    a: str
    b2j: dict[str, list[int]]  # where each character stands in the other text

    def __init__(self, one: str, other: str) -> None:
        super().__init__(None, one, other)
        self._left = _MOST_STEPS
        self._steps = list(accumulate((_EACH + len(self.b2j.get(character, ())) for character in one), initial=0))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self._left -= self._steps[len(self.a) if ahi is None else ahi] - self._steps[alo]
        if self._left < 0:
            return difflib.Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)
