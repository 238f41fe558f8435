"""Score single pairs and several samples of one case: `score`, pass@k and pass^k."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import (
    METRICS,
    ONE_TEXT,
    Measured,
    Metric,
    MetricContext,
    apply,
    asks_model,
    checked,
    find_metric,
    metric,
    reads_golds,
    with_compat,
)
from pytest_agentbench.records.case import Compat
from pytest_agentbench.records.gold import Gold, Golds, are_integers, gold_of_compat, gold_text, read_gold
from pytest_agentbench.statistics.estimates import pass_at_k, pass_hat_k

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient


def score(
    name: str, ground_truth: object, prediction: str | Sequence[str], compat: Compat | None = None, **kwargs: object
) -> float:
    """Return the score, 0-1, of `prediction` against `ground_truth` by the metric `name`. `kwargs` are the metric's
    options.

    `ground_truth` is a text, or any value that the `answer` of a dataset's row may have: a list of right answers, a
    number. A metric that asks a model takes its id as `model` (default: OPENAI_MODEL), and the `question`; its votes
    are not stored. Raises ConfigError for an unknown name, ValueError if the score is outside 0-1, and the metric's
    exceptions.
    """
    function = find_metric(name, METRICS, compat)
    gold = ground_truth if isinstance(ground_truth, Golds) else read_gold(ground_truth)
    if compat is not None:
        gold = gold_of_compat(gold)
    elif name == "multiple_choice" and are_integers(ground_truth):
        kwargs = {"answer_is": "integer", **kwargs}
    if asks_model(function):
        options = with_compat(function, kwargs, compat)
        value = _ask_alone(name, function, gold_text(gold), prediction, options)
    else:
        value = apply(name, function, gold, prediction, kwargs)
    return float(checked(name, value).score)


def _ask_alone(
    name: str, function: Metric, ground_truth: str, prediction: str | Sequence[str], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of a metric that asks a model, in an event loop of this call.

    `kwargs` are its options, and `question` for the context. Raises the metric's exceptions.
    """
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
    from pytest_agentbench.config.profiles import ModelsFile
    from pytest_agentbench.models.client import Endpoints
    from pytest_agentbench.models.routes import missing_key, resolve_model
    from pytest_agentbench.secrets.redaction import Redactor

    endpoints = Endpoints()

    def client(model_id: str | None) -> ChatClient:
        model_id = model_id or os.environ.get("OPENAI_MODEL")
        if model_id is None:
            raise ConfigError(
                f"the metric {name} asks a model: name one, as in score({name!r}, ..., model='gpt-5.4-mini'), or set "
                "OPENAI_MODEL"
            )
        model = resolve_model(model_id, models=ModelsFile(schema_version=1))
        if (reason := missing_key(model)) is not None:
            raise ConfigError(reason)
        return endpoints.client(model)

    try:
        context = MetricContext(case_id=name, question=question, client=client, redactor=Redactor())
        return await function(ground_truth, prediction, context=context, **options)
    finally:
        await endpoints.close()


@metric("pass_at_k", samples=True)
@reads_golds
def pass_at_k_metric(ground_truth: Gold, prediction: str | Sequence[str], **options: Any) -> Measured:
    """Return the chance that at least one of `k` samples passes (`pass_at_k`), from all the samples of `prediction`.

    Options: `k` (1); a sample passes by `metric` (exact_match) and `threshold` (1.0); all others are that
    metric's. Details: `samples`, `passed`, `scores`. Raises ValueError for fewer samples than `k`.
    """
    return _over_samples("pass_at_k", pass_at_k, ground_truth, prediction, **options)


@metric("pass_hat_k", samples=True)
@reads_golds
def pass_hat_k_metric(ground_truth: Gold, prediction: str | Sequence[str], **options: Any) -> Measured:
    """Return the chance that all of `k` samples pass (`pass_hat_k`); else like the metric `pass_at_k`."""
    return _over_samples("pass_hat_k", pass_hat_k, ground_truth, prediction, **options)


def _over_samples(
    name: str,
    estimate: Callable[[int, int, int], float | None],
    ground_truth: Gold,
    prediction: str | Sequence[str],
    *,
    k: int = 1,
    metric: str = "exact_match",
    threshold: float = 1.0,
    **kwargs: Any,
) -> Measured:
    if asks_model(find_metric(metric, METRICS)):
        raise ValueError(f"{name}: metric {metric!r} asks a model, expected one that compares texts")
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"{name}: k is {k!r}, expected a whole number")
    samples = [prediction] if isinstance(prediction, str) else list(prediction)
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, str):
            raise ValueError(f"{name}: sample {number} is {sample!r}, expected a text")
    scores = [score(metric, ground_truth, sample, **kwargs) for sample in samples]
    passed = sum(each >= threshold for each in scores)
    value = estimate(len(samples), passed, k)
    if value is None:
        raise ValueError(f"{name}: k is {k}, expected 1 to the number of samples, {len(samples)}")
    return Measured(value, {"samples": len(samples), "passed": passed, "scores": scores})
