"""What runs of a model, and verdicts on them, have used so far: all that the output folder still holds."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_agentbench.bounded import read_file
from pytest_agentbench.records import Usage
from pytest_agentbench.store.layout import EVALUATIONS, RUNS, slug

_RUN_FILE = re.compile(r"run_[0-9]+(\.[0-9a-f]{8})?\.json")


@dataclass(frozen=True)
class History:
    """Usages by the folder name of the case, `slug(case_id)`."""

    runs: Mapping[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))
    verdicts: Mapping[str, list[Usage]] = field(default_factory=lambda: defaultdict(list))


def read_history(output: str, model: str, evaluation_profile_id: str) -> History:
    """The history of the model with the folder name `model`: under any run profile and suite, superseded runs too.

    Verdicts are those that the evaluation profile has asked a model for. What cannot be read, and runs that a provider
    ended, count for nothing. Reads every artifact of the model once.
    """
    history = History()
    root = Path(output)
    for path in root.glob(f"{RUNS}/*/*/{model}/*/run_*.json"):
        if _RUN_FILE.fullmatch(path.name) and (run := _document(path)).get("status") != "provider_error":
            _put(history.runs, path, _usage(run.get("usage")))
    profile = re.compile(rf"eval_profile_{re.escape(slug(evaluation_profile_id))}_[0-9a-f]+")
    for path in root.glob(f"{EVALUATIONS}/*/*/*/{model}/*/final_result_*.json"):
        if profile.fullmatch(path.parts[-4]):
            used = list(_asked(_document(path)))
            _put(history.verdicts, path, reduce(add, used) if used else None)
    return history


def _put(kept: Mapping[str, list[Usage]], path: Path, usage: Usage | None) -> None:
    if usage is not None:
        kept[path.parent.name].append(usage)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_file(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _asked(evaluation: dict[str, Any]) -> Iterator[Usage]:
    """What the judge and the metrics that ask models have used."""
    judge, metrics = evaluation.get("judge"), evaluation.get("metrics")
    parts = [judge, {"usage": evaluation.get("judge_usage")}, *(metrics if isinstance(metrics, list) else ())]
    for part in parts:
        if isinstance(part, dict) and (usage := _usage(part.get("usage"))) is not None:
            yield usage


def _usage(value: object) -> Usage | None:
    try:
        return None if value is None else Usage.model_validate(value)
    except ValidationError:
        return None
