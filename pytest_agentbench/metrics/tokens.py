"""What the metrics take for the words of a text. Scripts that are written without blanks count by character."""

from __future__ import annotations

import string
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Myanmar, Hangul Jamo, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"  # kana, Han, Hangul
)
"""Scripts whose words are not set apart by blanks, as ranges of a character class."""

_ARTICLES = frozenset({"a", "an", "the"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Unicode's NFKC form: one spelling for what is written wide or narrow, composed or decomposed.

    Of a run of combining marks the first 30 count (the stream-safe format of UAX #15): sorting longer ones takes a time
    that grows with their square.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _pattern(r"(\p{M}{30})\p{M}+").sub(r"\1", text))


def folded(text: str) -> str:
    """The normal form without the difference of upper and lower case."""
    return text.lower() if text.isascii() else normal(normal(text).casefold())


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
    """Lower-case runs of letters and digits with their marks, and pictographs; for ASCII what rouge_score takes."""
    text = folded(text)
    if text.isascii():
        return _pattern("[a-z0-9]+").findall(text)
    letter = rf"[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]"
    return _pattern(rf"[{UNSPACED}]\p{{M}}*|{letter}+|\p{{So}}").findall(text)


def spaced(text: str) -> str:
    """The normal form with blanks around each character of a script without blanks and around its punctuation."""
    text = normal(text)
    if text.isascii():
        return text
    return _pattern(rf"([{UNSPACED}]\p{{M}}*|[\u3001-\u303f])").sub(r" \1 ", text)


@cache
def _pattern(pattern: str) -> regex.Pattern[str]:
    import regex

    return regex.compile(pattern, regex.VERSION1)  # noqa: TID251 - a tokenizer's own
