"""Metrics that compare two texts, by the default definitions."""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left

from pytest_agentbench.metrics.registry import metric

# Scripts whose words are not set apart by blanks: every character counts as a token of its own.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff"  # Thai, Lao, Myanmar, Hangul Jamo, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"  # kana, Han, Hangul
)
_WORD = rf"[^\W{_UNSPACED}]"
_TOKEN = re.compile(rf"(?:(?<!\w)-)?\d+(?:,\d{{3}})*(?!,?\d)(?:\.\d+)?(?!{_WORD})|{_WORD}+")
_CLOSING = ".,;:!?。、，；：！？"


@metric("exact_match")
def exact_match(ground_truth: str, prediction: str) -> float:
    """1 where both are the same but for white space around them; case counts."""
    return float(ground_truth.strip() == prediction.strip())


@metric("similarity")
def similarity(ground_truth: str, prediction: str) -> float:
    """The ratio of `difflib.SequenceMatcher`: twice the characters in matching blocks over all characters."""
    return difflib.SequenceMatcher(None, ground_truth, prediction).ratio()


@metric("contains_answer")
def contains_answer(ground_truth: str, prediction: str) -> float:
    """1 where the answer stands in the prediction as whole tokens: "14" and "-4" do not contain "4".

    Case, width and runs of white space do not count, nor does punctuation that closes the answer. A number is one
    token with its sign, thousands and decimals; Chinese, Japanese, Korean and Thai are compared by character.
    An empty answer is contained nowhere.
    """
    answer, text = _plain(ground_truth), _plain(prediction)
    answer = answer.rstrip(_CLOSING).rstrip() or answer
    if not answer:
        return 0.0
    start = text.find(answer)
    if start < 0:
        return 0.0
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    while start >= 0:
        if _is_edge(text, tokens, start) and _is_edge(text, tokens, start + len(answer)):
            return 1.0
        start = text.find(answer, start + 1)
    return 0.0


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.replace("\N{MINUS SIGN}", "-").split())


def _is_edge(text: str, tokens: list[tuple[int, int]], at: int) -> bool:
    """Whether a boundary at `at` parts no token, no letter from its combining mark, no mark from the next letter."""
    if not 0 < at < len(text):
        return True
    before = bisect_left(tokens, (at, at)) - 1
    if before >= 0 and at < tokens[before][1]:
        return False
    if unicodedata.category(text[at])[0] == "M":
        return False
    return not (unicodedata.category(text[at - 1])[0] == "M" and re.match(_WORD, text[at]))
