"""Whether two texts say the same, and whether a text stands in an article, as far as their words can tell."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

_CJK = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"(?P<number>\d+(?:[.,]\d+)*)|[{_CJK}]|[^\W\d_{_CJK}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_SENTENCES = 3
"""Of a passage: a unit of knowledge has one or two."""
_LONGEST = 100
"""Words of a sentence: a text without any end, such as a list of words, is no passage that states everything."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a text consists of: its words (Chinese by character), pairs of neighbours, and its numbers."""

    words: frozenset[str]
    pairs: frozenset[tuple[str, ...]]
    numbers: frozenset[str]

    def likeness(self, other: Words) -> float:
        """The share of their pairs that both have (Jaccard), 0-1; 0 where their numbers differ."""
        if self.numbers != other.numbers:
            return 0.0
        either = len(self.pairs | other.pairs)
        return len(self.pairs & other.pairs) / either if either else 0.0

    def stands_in(self, passage: Words) -> float:
        """The share of its words that the passage has, 0-1; 0 where that lacks one of its numbers."""
        if not self.words or not self.numbers <= passage.numbers:
            return 0.0
        return len(self.words & passage.words) / len(self.words)


def words_of(text: str) -> Words:
    """Case and width do not count, nor do the commas of thousands."""
    words, numbers = [], set()
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match[0]
        if match["number"]:
            word = word.replace(",", "")
            numbers.add(word)
        words.append(word)
    pairs: set[tuple[str, ...]] = set(pairwise(words)) or {(word,) for word in words}
    return Words(frozenset(words), frozenset(pairs), frozenset(numbers))


class Passages:
    """An article, in which short texts are looked for in any three sentences that follow each other."""

    def __init__(self, article: str) -> None:
        sentences = [part for each in _SENTENCE_END.split(article) for part in _parts(each)]
        starts = range(max(1, len(sentences) - _SENTENCES + 1))
        self._whole = words_of(article)
        self._passages = [words_of(" ".join(sentences[at : at + _SENTENCES])) for at in starts]

    def share_of(self, text: Words) -> float:
        """The largest share of the text's words that one passage has, 0-1."""
        return max(text.stands_in(passage) for passage in self._passages)

    def have(self, text: Words, share: float) -> bool:
        """Whether a passage has that share of the text's words, and all of its numbers."""
        return text.stands_in(self._whole) >= share and self.share_of(text) >= share


def _parts(sentence: str) -> list[str]:
    """The sentence, in parts of at most _LONGEST words; none where it has no word."""
    starts = [match.start() for match in _WORD.finditer(sentence)][::_LONGEST]
    return [sentence[start:end] for start, end in pairwise([*starts, None])]
