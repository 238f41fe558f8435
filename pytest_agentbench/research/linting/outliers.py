"""Scores that lie far from the others of their file, for a person to look at (seed 003, 结果交叉验证).

The modified z-score of Iglewicz and Hoaglin (1993): `0.6745 |x - median| / MAD`, above 3.5 an outlier. Where more than
half of the scores are the same, and MAD so is 0, `|x - median| / (1.2533 mean absolute deviation)` takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum, isfinite
from pathlib import Path
from statistics import median
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import RACE_DIMENSIONS
from pytest_agentbench.research.linting.finding import Finding
from pytest_agentbench.sources import BadItem, read_items

FEWEST = 10
"""Scores: of fewer none can be told to be an outlier."""
LIMIT = 3.5

SHARES = (
    *RACE_DIMENSIONS,
    "overall_score",
    "overall_poet_score",
    "efficiency_score",
    "quality_score",
    "strategic_score",
    "race_score",
    "fact_accuracy",
    "automation_rate",
)
"""Scores of result files that are 0-1."""
AMOUNTS = ("cost_saving_usd", "knowledge_units_created")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A row of a result file by its line."""

    line: int
    value: dict[str, Any]


def read_results(path: Path) -> list[ResultRow]:
    """The rows of `raw_results.jsonl` or of `<model>_poet_summary.json`. Raises ConfigError with all that are none."""
    rows, problems = [], []
    for item in read_items(path, "results"):
        if isinstance(item, BadItem):
            problems.append(f"{path}:{item.line}:{item.column}: {item.reason}")
        elif not isinstance(item.value, dict) or not {*SHARES, *AMOUNTS} & item.value.keys():
            if not _failed(item.value):
                problems.append(f"{path}:{item.line}:1: found no scores, expected a row of results")
        else:
            rows.append(ResultRow(item.line, item.value))
    if problems:
        raise ConfigError("\n".join(problems))
    return rows


def result_findings(path: Path, rows: Sequence[ResultRow]) -> Iterator[Finding]:
    """Rows that repeat, scores outside of 0-1, and outliers among the others."""
    lines: dict[str, int] = {}
    for row in rows:
        name = str(row.value.get("id", row.value.get("task_id", f"line {row.line}")))
        first = lines.setdefault(name, row.line)
        if first != row.line:
            yield Finding(path, row.line, "error", "id", f"{name!r} of line {first} again", "one row for each")
    for name in (*SHARES, *AMOUNTS):
        known: list[tuple[int, float]] = []
        for row in rows:
            score = row.value.get(name)
            if score is None:
                continue
            if not _is_number(score) or (name in SHARES and not 0 <= score <= 1):
                wanted = "a number from 0 to 1, or null" if name in SHARES else "a number, or null"
                yield Finding(path, row.line, "error", name, repr(score), wanted)
            else:
                known.append((row.line, score))
        yield from _far(path, name, known)


def outliers(values: Sequence[float]) -> dict[int, float]:
    """The indexes of values whose modified z-score is above LIMIT, with it; none of fewer than FEWEST values."""
    if len(values) < FEWEST:
        return {}
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    unit = median(distances) / 0.6745 or 1.253314 * fsum(distances) / len(distances)
    return {at: distance / unit for at, distance in enumerate(distances) if unit and distance / unit > LIMIT}


def _far(path: Path, name: str, known: Sequence[tuple[int, float]]) -> Iterator[Finding]:
    values = [value for _, value in known]
    for at, score in outliers(values).items():
        line, value = known[at]
        expected = f"about {median(values):.4g}, the median of {len(values)}"
        yield Finding(path, line, "review", name, f"{value:.4g} (modified z-score {score:.1f})", expected)


def _failed(row: Any) -> bool:
    """Whether it is the row of a report that has no scores, and says why."""
    return isinstance(row, dict) and any(key.endswith("_error") for key in row)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
