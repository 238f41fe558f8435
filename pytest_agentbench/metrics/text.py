"""Metrics that compare characters, or look for the answer as it stands."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left

from pytest_agentbench.metrics.difference import similarity_ratio
from pytest_agentbench.metrics.passages import said
from pytest_agentbench.metrics.registry import metric
from pytest_agentbench.metrics.tokens import UNSPACED, folded

_WORD = rf"[^\W{UNSPACED}]"
# A number or version with the letters after it; or a word, which C++ and C# are too.
_TOKEN = re.compile(rf"(?:(?<!\w)-)?\d++(?:\.\d++)*+{_WORD}*+|{_WORD}++(?:\+\+|#)?")
_THOUSANDS = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})++(?!,?\d)")
_SAME = str.maketrans("\u2010\u2011\u2012\u2013\u2212\u2018\u2019\u201c\u201d", "-----''\"\"")
_CLOSING = ".,;:!?。、，；：！？"


@metric("exact_match")
def exact_match(ground_truth: str, prediction: str) -> float:
    """1 where both are the same but for white space around them; case counts."""
    return float(ground_truth.strip() == prediction.strip())


@metric("similarity")
def similarity(ground_truth: str, prediction: str) -> float:
    """The ratio of `difflib.SequenceMatcher`: twice the characters in matching blocks over all characters.

    Where finding the blocks would take more than some seconds, what was not reached counts as different.
    """
    return similarity_ratio(ground_truth, prediction)


@metric("contains_answer")
def contains_answer(ground_truth: str, prediction: str) -> float:
    """1 where the answer stands in the prediction as whole tokens: "14" and "-4" do not contain "4".

    Case, width, runs of white space, the forms of hyphens and quotes and the commas of thousands do not count, nor does
    punctuation that closes the answer. A number is one token with its sign and decimals; Chinese, Japanese, Korean and
    Thai are compared by character. An empty answer is contained nowhere.
    """
    answer, text = _plain(ground_truth), _plain(said(prediction))
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
    text = " ".join(folded(text).translate(_SAME).split())
    return _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text)


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
