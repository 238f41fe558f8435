"""`score`: one metric of one pair, for people. A metric that asks a model gets an event loop and connections."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import (
    METRICS,
    ONE_TEXT,
    Metric,
    MetricContext,
    apply,
    asks_model,
    checked,
    find_metric,
    with_compat,
)

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient


def score(
    name: str,
    ground_truth: str,
    prediction: str | Sequence[str],
    compat: Literal["v1"] | None = None,
    **kwargs: object,
) -> float:
    """What the metric `name` gives `prediction` against `ground_truth`, 0-1. `kwargs` are the metric's own options.

    A metric that asks a model takes its id as `model`, and the `question`; nothing is kept of what it is told.
    Raises ConfigError for an unknown name, ValueError where the metric leaves its range, and what the metric raises.
    """
    function = find_metric(name, METRICS, compat)
    if asks_model(function):
        options = with_compat(function, kwargs, compat)
        value = _ask_alone(name, function, ground_truth, prediction, options)
    else:
        value = apply(name, function, ground_truth, prediction, kwargs)
    return float(checked(name, value).score)


def _ask_alone(
    name: str, function: Metric, ground_truth: str, prediction: str | Sequence[str], kwargs: Mapping[str, Any]
) -> Any:
    """What the metric returns. `kwargs` are its options, and `question` for the context. Raises what it raises."""
    if not isinstance(prediction, str):
        raise ValueError(f"metric {name!r}: {ONE_TEXT}")
    options = dict(kwargs)
    question = str(options.pop("question", ""))

    def run() -> Any:
        return asyncio.run(_ask(name, function, ground_truth, prediction, question, options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(max_workers=1) as pool:  # a notebook's loop is running already
        return pool.submit(contextvars.copy_context().run, run).result()


async def _ask(
    name: str, function: Metric, ground_truth: str, prediction: str, question: str, options: Mapping[str, Any]
) -> Any:
    from pytest_agentbench.config import ModelsFile
    from pytest_agentbench.models import Endpoints, missing_key, resolve_model
    from pytest_agentbench.store import Redactor

    endpoints = Endpoints()

    def client(model_id: str | None) -> ChatClient:
        if model_id is None:
            raise ConfigError(f"the metric {name} asks a model: name one, as in score({name!r}, ..., model='gpt-4o')")
        model = resolve_model(model_id, models=ModelsFile(schema_version=1))
        if (reason := missing_key(model)) is not None:
            raise ConfigError(reason)
        return endpoints.client(model)

    try:
        context = MetricContext(case_id=name, question=question, client=client, redactor=Redactor())
        return await function(ground_truth, prediction, context=context, **options)
    finally:
        await endpoints.close()
