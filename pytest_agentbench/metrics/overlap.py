"""Metrics that count the words two texts share: F1, BLEU, ROUGE-L."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.metrics.lcs import lcs_length
from pytest_agentbench.metrics.passages import said
from pytest_agentbench.metrics.registry import metric, missing_extra
from pytest_agentbench.metrics.tokens import answer_tokens, spaced, words

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics.bleu import BLEU

_LONGEST_STEM = 50  # the stemmer calls itself once a letter
_MOST_PAIRS = 4_000_000  # of characters; rouge_score keeps a table of all pairs of tokens


@metric("f1_score")
def f1_score(ground_truth: str, prediction: str) -> float:
    """F1 of the tokens both have, each as often as both have it; SQuAD's normalisation (`answer_tokens`).

    Two texts without a token agree, as in SQuAD 2.0.
    """
    expected, found = answer_tokens(ground_truth), answer_tokens(said(prediction))
    if not expected and not found:
        return 1.0
    return f_measure((Counter(expected) & Counter(found)).total(), len(expected), len(found))


@metric("bleu_score", requires="sacrebleu")
def bleu_score(ground_truth: str, prediction: str) -> float:
    """Sentence BLEU by sacrebleu, over 100: tokenizer 13a, mixed case, exponential smoothing, effective order.

    Scripts without blanks count by character. Post 2018, "A Call for Clarity in Reporting BLEU Scores".
    """
    bleu, caches = _bleu()
    value = bleu.sentence_score(spaced(said(prediction)), [spaced(ground_truth)]).score / 100
    for cached in caches:  # it keeps the last 65,536 texts, however long
        cached.cache_clear()
    return min(1.0, value)


@metric("rouge_score", requires="rouge_score")
def rouge_score(ground_truth: str, prediction: str, *, stem: bool = False) -> float:
    """F1 of the longest common subsequence of words (ROUGE-L, Lin 2004) by rouge_score; 0 where a text has no word.

    Scripts without blanks count by character. `stem` cuts English words to their Porter stems.
    """
    scorer, prediction = _rouge(stem), said(prediction)
    if len(ground_truth) * len(prediction) <= _MOST_PAIRS:
        return float(scorer.score(ground_truth, prediction)["rougeL"].fmeasure)
    expected, found = _Words(stem).tokenize(ground_truth), _Words(stem).tokenize(prediction)
    return f_measure(lcs_length(expected, found), len(expected), len(found))


def f_measure(common: int, expected: int, found: int) -> float:
    """The harmonic mean of precision and recall from numbers of tokens; 0 where nothing is common."""
    if not common:
        return 0.0
    precision, recall = common / found, common / expected
    return 2 * precision * recall / (precision + recall)


@cache
def _bleu() -> tuple[BLEU, Sequence[Any]]:
    _need("bleu_score")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    return BLEU(tokenize="13a", effective_order=True), (Tokenizer13a.__call__, TokenizerRegexp.__call__)


@cache
def _rouge(stem: bool) -> RougeScorer:
    _need("rouge_score")
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=_Words(stem))


class _Words:
    """The tokenizer that rouge_score is given."""

    def __init__(self, stem: bool) -> None:
        self._stemmer = None
        if stem:
            from nltk.stem.porter import PorterStemmer

            self._stemmer = PorterStemmer()

    def tokenize(self, text: str) -> list[str]:
        found = words(text)
        if self._stemmer is None:
            return found
        return [self._stemmer.stem(word) if 3 < len(word) <= _LONGEST_STEM else word for word in found]


def _need(name: str) -> None:
    if (reason := missing_extra(name)) is not None:
        raise UnavailableError(reason)
