"""Why a metric cannot decide a run: told while cases are collected, before anything is paid."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from pytest_agentbench.metrics.registry import (
    OF_A_TRACE,
    Metric,
    asks_model,
    find_metric,
    missing_extra,
    takes_samples,
    takes_trace,
)
from pytest_agentbench.records import MetricSpec


def refusal(
    spec: MetricSpec, metrics: Mapping[str, Metric], compat: Literal["v1"] | None = None, *, checked: bool = False
) -> str | None:
    """What is wrong with a metric as `spec` asks for it, None where nothing is. `checked`: by a check of a case.

    Names of `args` are compared with the function's parameters, values with their annotations, as far as these can be
    resolved; what a template (`{{ ... }}`) fills in is not known yet.
    """
    compat = spec.compat or compat
    if (reason := missing_extra(spec.name, compat)) is not None:
        return reason
    function = find_metric(spec.name, metrics, compat)
    if takes_samples(function):
        return (
            f"metric {spec.name}: it compares several answers, and a run gives one answer; the report has pass@k and "
            "pass^k of the repetitions, and Benchmark.evaluate takes several predictions"
        )
    if checked and takes_trace(function):
        return f"metric {spec.name}: it {OF_A_TRACE}"
    if checked and asks_model(function):
        return f"metric {spec.name}: it asks a model, which a check cannot; list it under `metrics` of the case"
    problem = wrong_names(function, spec.args) or _wrong_values(function, spec.args)
    return None if problem is None else f"metric {spec.name}: {problem}"


def wrong_names(function: Metric, args: Mapping[str, Any]) -> str | None:
    """Which options the metric does not take or lacks, None where all is well."""
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind("", "", **({"context": None} if asks_model(function) else {}), **args)
    except TypeError as error:
        return f"args: {error}"
    return None


def _wrong_values(function: Metric, args: Mapping[str, Any]) -> str | None:
    signature = _signature(function)
    parameters = {} if signature is None else signature.parameters
    problems = (_wrong_value(parameters[name], args[name]) for name in parameters if name in args)
    return next(filter(None, problems), None)


def _signature(function: Metric) -> inspect.Signature | None:
    """With annotations where they can be resolved; None for what has no signature."""
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, TypeError):  # names that only type checkers know
        return inspect.signature(function)
    except ValueError:
        return None


def _wrong_value(parameter: inspect.Parameter, value: Any) -> str | None:
    annotation = parameter.annotation
    if annotation is parameter.empty or isinstance(annotation, str) or (isinstance(value, str) and "{{" in value):
        return None
    found = json.dumps(value, ensure_ascii=False, default=str)
    try:
        TypeAdapter(annotation).validate_json(found, strict=True)
    except PydanticSchemaGenerationError:
        return None
    except ValidationError as error:
        said = error.errors(include_url=False)[0]["msg"]
        return f"args.{parameter.name}: found {found[:80]}, {said[:1].lower()}{said[1:]}"
    return None
