"""Metrics that compare characters, or look for the answer as it stands."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator

from pytest_agentbench.metrics.difference import similarity_ratio
from pytest_agentbench.metrics.registry import metric
from pytest_agentbench.metrics.tokens import UNSPACED, folded

_WORD = rf"[^\W{UNSPACED}]"
# A number; or digits and commas that are none, with the letters after them; or a word. Each takes what it has read, so
# that a text is read at most twice.
_TOKEN = re.compile(
    rf"(?:(?<!\w)-)?\d++(?:,\d{{3}}(?!\d))*+(?!,?\d)(?:\.\d++(?!{_WORD})|(?!{_WORD}))"
    rf"|(?P<chain>\d++(?:,\d{{3}}(?!\d))*+){_WORD}*+"
    rf"|{_WORD}++"
)
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
    tokens = list(_tokens(text))
    while start >= 0:
        if _is_edge(text, tokens, start) and _is_edge(text, tokens, start + len(answer)):
            return 1.0
        start = text.find(answer, start + 1)
    return 0.0


def _plain(text: str) -> str:
    return " ".join(folded(text).replace("\N{MINUS SIGN}", "-").split())


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """The spans of the words and numbers of the text, in order."""
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if match["chain"] is not None:
            for comma in re.finditer(",", match["chain"]):
                yield start, match.start() + comma.start()
                start = match.start() + comma.end()
        yield start, end


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
