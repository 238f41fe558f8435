"""`human.jsonl`: how far people agree with what judges gave, a line for each annotator, task and pipeline.

    {"annotator": "ann", "case_id": "bench.task_1", "pipeline": "shuffled", "agreement": 2}

`pipeline` is `plain` or `shuffled`; `agreement` is 0 (they disagree), 1 (in part) or 2 (they agree).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictInt, ValidationError

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging import Pipeline
from pytest_agentbench.records import Record, Text
from pytest_agentbench.sources import BadItem, field_problem, read_items, refuse


class Rating(Record):
    """One annotator's agreement with the scores that a pipeline gave for a task."""

    annotator: Text
    case_id: Text
    pipeline: Literal["plain", "shuffled"]
    agreement: Annotated[StrictInt, Field(ge=0, le=2)]


def read_ratings(path: Path) -> list[Rating]:
    """All ratings. Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each."""
    ratings: dict[tuple[str, str, str], tuple[Rating, int]] = {}
    problems: list[str] = []
    for item in read_items(path):
        if isinstance(item, BadItem):
            problems.append(f"{path}:{item.line}:{item.column}: {item.reason}")
            continue
        try:
            rating = Rating.model_validate(item.value)
        except ValidationError as error:
            problems += [f"{path}:{item.line}:1: {field_problem(each)}" for each in error.errors(include_url=False)]
            continue
        key = (rating.annotator, rating.case_id, rating.pipeline)
        if key in ratings:
            problems.append(
                f"{path}:{item.line}:1: found a second rating of {rating.annotator} for {rating.case_id} "
                f"({rating.pipeline}), the first is in line {ratings[key][1]}; expected one"
            )
        ratings.setdefault(key, (rating, item.line))
    if problems:
        refuse(path, problems)
    if not ratings:
        raise ConfigError(f'{path}:1:1: found no rating, expected lines such as {{"annotator": "ann", "case_id": ...}}')
    return [rating for rating, _ in ratings.values()]


def agreements(ratings: Sequence[Rating], case_ids: Collection[str]) -> dict[Pipeline, list[int]]:
    """What was said of each pipeline, of these tasks."""
    found: dict[Pipeline, list[int]] = defaultdict(list)
    for rating in ratings:
        if rating.case_id in case_ids:
            found[rating.pipeline].append(rating.agreement)
    return found
