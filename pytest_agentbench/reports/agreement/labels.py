"""`human.jsonl`: what people say of runs, a line for each annotator and run, bound to the judge and the rubric.

`agentbench review` writes it; report.json's `human` comes from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Record, Text
from pytest_agentbench.sources import BadItem, field_problem, read_items, refuse

HUMAN_FILE = "human.jsonl"
"""Where labels lie: in the folder that sessions are started for (pytest's rootdir)."""


class Label(Record):
    """What one annotator says of one run.

    `judges` maps what judged the run (`judge`, or a metric's name) to the hash of that judge, `rubric` is the hash of
    what the run was measured by, both as report.json has them. `score` is 0-10, as judges score.
    """

    schema_version: Literal[1] = 1
    annotator: Text
    nodeid: Text
    run_id: Text
    rubric: Text
    judges: dict[str, Text]
    verdict: Literal["passed", "failed"]
    score: Annotated[float, Field(strict=True, ge=0, le=10)] | None = None
    comment: str | None = None
    at: AwareDatetime

    @property
    def line(self) -> str:
        """The label as a line of the file."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False) + "\n"

    def is_of(self, judged: Mapping[str, Any]) -> bool:
        """Whether it was given for this judge and rubric; `judged` is an entry of a row's `judged`."""
        return (self.rubric, self.judges.get(judged["by"])) == (judged["rubric"], judged["judge"])


def read_labels(path: Path) -> list[Label]:
    """All labels in order. Raises ConfigError with up to 20 problems of the file, `file:line:column: ...` each."""
    labels: list[Label] = []
    problems: list[str] = []
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no file")
    for item in read_items(path):
        if isinstance(item, BadItem):
            problems.append(f"{path}:{item.line}:{item.column}: {item.reason}")
            continue
        try:
            labels.append(Label.model_validate_json(json.dumps(item.value)))
        except ValidationError as error:
            problems += [f"{path}:{item.line}:1: {sentence}" for sentence in _sentences(item.value, error)]
    if problems:
        refuse(path, problems)
    return labels


def _sentences(value: object, error: ValidationError) -> list[str]:
    if isinstance(value, dict) and {"pipeline", "agreement"} <= value.keys():
        return [
            "found a rating for `agentbench mcp ablation`, expected a label of `agentbench review`; "
            "keep the two in files of their own"
        ]
    problems = error.errors(include_url=False, include_context=False)
    return [field_problem(each if each["loc"] else {**each, "loc": ("line",)}) for each in problems]
