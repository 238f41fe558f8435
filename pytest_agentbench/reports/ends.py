"""What a reader of figures has to know of how runs ended, and of what they were asked with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MANY_BLANK, _FEWEST_RUNS = 0.05, 5


_DROPPED = " dropped"


def list_dropped(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the parameters that endpoints did not take, so that runs went without."""
    for row in rows:
        yield from (each.removesuffix(_DROPPED) for each in row.get("adapted") or () if each.endswith(_DROPPED))


def end_warnings(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which models gave many blank answers, and which were asked otherwise than others."""
    ends: dict[str, Counter[str | None]] = defaultdict(Counter)
    dropped: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        model = row["model_id"]
        ends[model][row.get("end_reason")] += 1
        dropped[model].update(list_dropped((row,)))
    for model, counts in ends.items():
        runs, blank = counts.total(), counts["empty"]
        if runs >= _FEWEST_RUNS and blank > _MANY_BLANK * runs:
            yield f"{model}: many blank answers: {blank} of {runs} runs; see whether its prompts fit its window"
    for parameter in sorted(set().union(*dropped.values())):
        without = sorted(model for model, lost in dropped.items() if parameter in lost)
        if len(without) < len(ends):
            told = f"did not take {parameter}, which the other models were asked with: compare with care"
            yield f"{', '.join(without)} {told}"
