"""Criteria that belong to another query of the files, found by their words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import fsum, log
from typing import Any

from pytest_agentbench.packs.research.articles import split_words
from pytest_agentbench.packs.research.lint_rows import Finding, Table, quoted
from pytest_agentbench.packs.research.records import QueryRow, RaceCriteria, RowId
from pytest_agentbench.packs.research.rows import GoodRow, prompt_key

_MARGIN = 0.1
"""By how much the share of another query's words must be larger than the share of the own query's words."""
_FEWEST_WORDS = 3
"""Words of another query alone that criteria must have: fewer are there by chance."""
_MOST_PROMPTS = 100
"""Maximum prompts with a word: a more frequent one distinguishes none, and would make the search quadratic."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    id: RowId
    text: str
    words: frozenset[str]


def swapped_findings(criteria: Table[RaceCriteria], queries: Table[QueryRow] | None) -> Iterator[Finding]:
    """Yield rows of criteria with the words of another query of the two files instead of their prompt's.

    A word weighs more if fewer prompts have it (inverse document frequency).
    """
    prompts = _list_prompts([*criteria.rows, *(queries.rows if queries is not None else ())])
    having: dict[str, list[str]] = defaultdict(list)
    for key, prompt in prompts.items():
        for word in prompt.words:
            having[word].append(key)
    weights = {word: log((len(prompts) + 1) / len(keys)) for word, keys in having.items() if len(keys) <= _MOST_PROMPTS}
    totals = {key: fsum(weights.get(word, 0.0) for word in prompt.words) for key, prompt in prompts.items()}
    for row in criteria.rows:
        criteria_of_row = chain(*row.value.criterions.values())
        texts = (f"{criterion.criterion} {criterion.explanation}" for criterion in criteria_of_row)
        criteria_words, own_key = split_words(" ".join(texts)).words, prompt_key(row.value.prompt)
        matched: dict[str, float] = defaultdict(float)
        # Sorted, so that sums and the first of equals are the same in every call
        for word in sorted(criteria_words & weights.keys()):
            for key in having[word]:
                matched[key] += weights[word]
        others = (key for key in matched if key != own_key)
        own, nearest = prompts[own_key], max(others, key=lambda key: matched[key] / totals[key], default=own_key)
        other = prompts[nearest]
        if _is_of(other, own, criteria_words, weights):
            found = f"the words of query {other.id!r} ({quoted(other.text)})"
            yield Finding(criteria.path, row.line, "warning", "criterions", found, "criteria of the row's own prompt")


def _list_prompts(rows: Iterable[GoodRow[Any]]) -> dict[str, _Prompt]:
    """Return the prompts by their keys; of several rows with one prompt the first counts."""
    prompts: dict[str, _Prompt] = {}
    for row in rows:
        key, value = prompt_key(row.value.prompt), row.value
        if key not in prompts:
            prompts[key] = _Prompt(value.id, value.prompt, split_words(value.prompt).words)
    return prompts


def _is_of(other: _Prompt, own: _Prompt, criteria_words: frozenset[str], weights: Mapping[str, float]) -> bool:
    if _share(other.words, criteria_words, weights) <= _share(own.words, criteria_words, weights) + _MARGIN:
        return False
    # Variants of one query share most words: only their differing words can decide.
    of_other, of_own = other.words - own.words, own.words - other.words
    if len(of_other & criteria_words) < _FEWEST_WORDS:
        return False
    return _share(of_other, criteria_words, weights) > _share(of_own, criteria_words, weights) + _MARGIN


def _share(words: frozenset[str], criteria_words: frozenset[str], weights: Mapping[str, float]) -> float:
    """Return the share of the words' weight, 0-1, that `criteria_words` has; 0 if no word counts."""
    total = fsum(weights.get(word, 0.0) for word in words)
    if total:
        return fsum(weights.get(word, 0.0) for word in words & criteria_words) / total
    return 0.0
