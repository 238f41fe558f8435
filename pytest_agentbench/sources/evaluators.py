"""What decides a row: its evaluator, else the dataset's metrics of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pytest_agentbench.config import suggest
from pytest_agentbench.records import BUILTIN_KINDS, Check, MetricSpec
from pytest_agentbench.sources.dataset import Dataset
from pytest_agentbench.sources.standard import answer_of, kind

_EVALUATOR = frozenset({"func", "args"})
Deciders = tuple[tuple[Check, ...], tuple[MetricSpec, ...], str | None]
"""Checks, metrics and reference."""


def deciders(dataset: Dataset, item: Mapping[str, Any], metadata: Mapping[str, Any]) -> Deciders:
    """What decides an item with that metadata; without answer and evaluator there is no metric: only a judge can.

    Raises ValueError for an evaluator that says nothing usable, and for metrics that need what the item lacks.
    """
    answer = answer_of(item)
    evaluator = metadata.get("evaluator")
    if evaluator is None:
        if not answer:
            return (), (), answer
        recipe = dataset.recipe
        return (), dataset.metrics if recipe is None else recipe.metrics(dataset.metrics, item), answer
    if not isinstance(evaluator, dict) or not isinstance(evaluator.get("func"), str) or evaluator.keys() - _EVALUATOR:
        raise ValueError(
            f"evaluator: found {json.dumps(evaluator)[:80]}, expected "
            "{func: a registered check or metric, args: {...}}"
        )
    try:
        return _evaluated(dataset, evaluator["func"], evaluator.get("args") or {}, answer)
    except ValidationError as error:
        reasons = "; ".join(
            f"args.{each['loc'][-1]}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()
        )
        raise ValueError(f"evaluator: {reasons}") from error
    except ValueError as error:
        raise ValueError(f"evaluator: {error}") from error


def _evaluated(dataset: Dataset, name: str, args: Any, answer: str | None) -> Deciders:
    """The check or metric of an evaluator.

    A metric's `args` may hold `threshold` (default 1.0) and `reference` (default: the answer); the rest is its own.
    """
    if not isinstance(args, dict):
        raise ValueError(f"args: found {kind(args)}, expected an object")
    known = dataset.known
    if name in BUILTIN_KINDS or name in (known.checks or ()):
        check = Check.model_validate({"check_id": "evaluator", "declarative": {**args, "kind": name}})
        return (check,), (), answer
    if known.metrics is not None and name not in known.metrics:
        names = {*BUILTIN_KINDS, *(known.checks or ()), *known.metrics}
        raise ValueError(f"func: found {name!r}, expected a registered check or metric{suggest(name, names)}")
    own = dict(args)
    reference = answer_of({"answer": own.pop("reference")}) if "reference" in own else answer
    if not reference:
        raise ValueError(f"{name!r} has nothing to compare with; give the row an `answer` or args a `reference`")
    compat = dataset.descriptor.compat if dataset.descriptor is not None else None
    metric = MetricSpec(name=name, threshold=own.pop("threshold", 1.0), args=own, compat=compat)
    return (), (metric,), reference
