"""Notes for readers of figures: how runs ended, and how their requests were adapted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_agentbench.reports.table import column_of

_MANY_BLANK, _FEWEST_RUNS = 0.05, 5


_DROPPED = " dropped"


def list_dropped(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the parameters that endpoints did not take, so that runs went without."""
    for row in rows:
        yield from (
            adaptation.removesuffix(_DROPPED)
            for adaptation in row.get("adapted") or ()
            if adaptation.endswith(_DROPPED)
        )


def end_warnings(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield sentences on models with many blank answers, with replies that run on, and with refused parameters."""
    ends: dict[str, Counter[str | None]] = defaultdict(Counter)
    dropped: dict[str, set[str]] = defaultdict(set)
    run_on: Counter[str] = Counter()
    for row in rows:
        model = column_of(row)
        ends[model][row.get("end_reason")] += 1
        dropped[model].update(list_dropped((row,)))
        run_on[model] += "run_on" in row
    for model, counts in ends.items():
        runs, blank = counts.total(), counts["empty"]
        if runs >= _FEWEST_RUNS and blank > _MANY_BLANK * runs:
            yield f"{model}: many blank answers: {blank} of {runs} runs; see whether its prompts fit its window"
    for model, count in run_on.items():
        if count:
            yield f"{model}: {run_on_text(count)}"
    for parameter in sorted(set().union(*dropped.values())):
        without = sorted(model for model, lost in dropped.items() if parameter in lost)
        if len(without) < len(ends):
            note = f"did not take {parameter}, which the other models were asked with: compare with care"
            yield f"{', '.join(without)} {note}"


def run_on_text(count: int) -> str:
    """Return a note on `count` replies that continue after their answer."""
    replies = "1 reply goes" if count == 1 else f"{count:,} replies go"
    return f"{replies} on with a further question: the first answer was scored; a stop sequence would end them there"
