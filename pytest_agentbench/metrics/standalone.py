"""Metrics that ask a model, from plain Python: an event loop and connections of their own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import ONE_TEXT, Metric, MetricContext

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient


def ask_alone(
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
