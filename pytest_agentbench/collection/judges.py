"""Which models the metrics of a case ask: told at collection, before anything is paid."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence

from pytest_agentbench.engine import Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics import Metric, asks_model
from pytest_agentbench.records import MetricSpec, Model


def metric_judges(
    plans: Sequence[Plan], specs: Iterable[MetricSpec], metrics: Mapping[str, Metric], place: str
) -> list[tuple[Model, ...]]:
    """For each plan the models that the metrics of a case at `place` ask, those of the evaluation profile included.

    Raises ConfigError for a metric that takes a `model` and has none.
    """
    specs = list(specs)
    return [tuple(_models(plan, (*specs, *plan.evaluation_profile.metrics), metrics, place).values()) for plan in plans]


def _models(plan: Plan, specs: Iterable[MetricSpec], metrics: Mapping[str, Metric], place: str) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for spec in specs:
        function = metrics.get(spec.name)
        if function is None or not asks_model(function):
            continue
        name = spec.args.get("model")
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"{place}: metric {spec.name}: args.model: found {name!r}, expected a model's id or name")
        if plan.judged_by(name) is not None:
            model = plan.judge_model(name)
            found[model.model_id] = model
        elif "model" in inspect.signature(function).parameters:
            raise ConfigError(
                f"{place}: metric {spec.name} asks a model, and there is none to ask; name one in the metric's args "
                "(`args: {model: gpt4o}`), or a judge in the evaluation profile"
            )
    return found
