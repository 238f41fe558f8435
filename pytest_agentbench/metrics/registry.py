"""Register and apply metrics, and refuse before anything is paid those that cannot decide a run."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from numbers import Real
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from pytest_agentbench.config.functions import offers_tools
from pytest_agentbench.errors import AgentbenchError, ConfigError, is_failure
from pytest_agentbench.records.case import Case, Compat, MetricSpec
from pytest_agentbench.records.check_specs import MetricAtLeast
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.records.gold import Gold, gold_of_compat, gold_text
from pytest_agentbench.records.run import RunArtifact, Usage

if TYPE_CHECKING:
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.config.profiles import EvaluationProfile
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.store.documents import Signer
    from pytest_agentbench.store.remote import Remote


Metric = Callable[..., Any]
"""`(ground_truth: str, prediction: str, **kwargs) -> float | Measured`: 0 is wrong, 1 is right.

A coroutine function is awaited and gets the keyword `context`, a MetricContext. A metric of a trace is
`(case: Case, artifact: RunArtifact, **kwargs) -> float | Measured | None`: None if there is nothing to measure.
"""


class MetricTable(MutableMapping[str, Metric]):
    """Metrics by name. `homes` names the modules that register this package's own, imported when one is asked for."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self._functions: dict[str, Metric] = {}

    def __getitem__(self, name: str) -> Metric:
        if name not in self._functions and name in self._homes:
            # While that module is being imported its own decorators ask, too: they find nothing yet, and register
            importlib.import_module(f"pytest_agentbench.metrics.{self._homes[name]}")
        return self._functions[name]

    def __setitem__(self, name: str, function: Metric) -> None:
        self._functions[name] = function

    def __delitem__(self, name: str) -> None:
        del self._functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions or name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter({**self._homes, **self._functions})

    def __len__(self) -> int:
        return len({**self._homes, **self._functions})


RULES = ("valid_tool_name_rate", "input_schema_compliance", "execution_success_rate")
"""The rates whose mean is a part of the overall score."""
TOOL_USE_METRICS = (
    *RULES,
    *("soft_error_rate", "valid_call_failure_rate", "dependency_compliance", "planning_json_compliance"),
)
"""Metrics of every case with MCP servers."""

BUILTIN_METRICS: Mapping[str, str] = {
    "exact_match": "text",
    "similarity": "text",
    "contains_answer": "text",
    "f1_score": "text",
    "bleu_score": "text",
    "rouge_score": "text",
    "numeric_match": "numbers",
    "json_match": "json_match",
    "llm_judgement": "llm_judgement",
    "math_equal": "math_equal",
    "multiple_choice": "multiple_choice",
    "calls_match": "calls",
    **dict.fromkeys(TOOL_USE_METRICS, "tool_use"),
}
"""The modules of the metrics of one answer that ship with the package, by the metrics' names."""

METRICS = MetricTable({**BUILTIN_METRICS, "pass_at_k": "scoring", "pass_hat_k": "scoring"})
"""Every metric known to this process, by name. Fill it with the `metric` decorator."""

_V1_NAMES = "exact_match similarity f1_score bleu_score rouge_score contains_answer numeric_match"
V1_METRICS = MetricTable(dict.fromkeys(_V1_NAMES.split(), "text"))
"""The original benchmark's definitions (seed 001), for `compat="v1"`."""

V2_METRICS = MetricTable(
    dict.fromkeys(("exact_match", "f1_score", "contains_answer", "numeric_match", "similarity"), "rollout")
)
"""The definitions of the original's rewrite for rollouts, for `compat="v2"`."""

_COMPAT_METRICS: Mapping[object, MetricTable] = {"v1": V1_METRICS, "v2": V2_METRICS}
"""Definitions that replace the default ones, by `compat`."""

_LONG = 20_000  # characters of both texts

_REQUIRED: dict[str, str] = {}
_OF_SAMPLES: dict[int, Metric] = {}
_OF_TRACES: dict[int, Metric] = {}
_OF_GOLDS: dict[int, Metric] = {}
_SLOW: dict[int, Metric] = {}
"""Functions by their ids: an object that is called need not be hashable."""

M = TypeVar("M", bound=Metric)


class Measured(NamedTuple):
    """A score (0-1) with its explanation as JSON values, and its cost if a model was asked."""

    score: float
    details: Mapping[str, Any] = {}
    usage: Usage | None = None


class MetricContext(NamedTuple):
    """Resources of a metric that asks a model.

    `client` returns the client of a model id, None: the session's own judge; it raises ConfigError if there is none.
    `cache` is the folder of paid answers, None: nothing is stored. If stored answers are to be replaced, `anew`
    contains the keys of the answers stored since; only these count. `remote` is the store behind the folder that other
    machines share.
    """

    case_id: str
    question: str
    client: Callable[[str | None], ChatClient]
    redactor: Redactor | None = None
    cache: Path | None = None
    anew: set[str] | None = None
    remote: Remote | None = None
    signer: Signer | None = None


def metric(
    name: str,
    *,
    compat: Compat | None = None,
    requires: str | None = None,
    samples: bool = False,
    slow: bool = False,
    trace: bool = False,
) -> Callable[[M], M]:
    """Register the decorated function as the metric `name`.

        @metric("same_length")
        def same_length(ground_truth, prediction):
            return float(len(ground_truth) == len(prediction))

    `compat` registers the original's definition next to the default one. `requires` is a module that the extra
    `metrics` installs. With `samples`, `prediction` is a sequence of texts, one per repetition. `slow` metrics may take
    long for short texts too: a session computes them on a thread. `trace` metrics get a case and a run of it instead of
    texts. Raises ConfigError if another function has the name already.
    """

    def register(function: M) -> M:
        if trace and asks_model(function):
            raise ConfigError(f"metric {name!r}: a metric of a trace is a plain function, it cannot ask a model")
        home = _COMPAT_METRICS.get(compat, METRICS)
        holder = home.setdefault(name, function)
        if _identity(holder) != _identity(function):
            raise ConfigError(f"metric {name!r} is registered twice: {_identity(holder)} and {_identity(function)}")
        home[name] = function  # the same function of a module that was imported again
        if requires is not None:
            _REQUIRED[name] = requires
        if samples:
            _OF_SAMPLES[id(function)] = function
        if slow:
            _SLOW[id(function)] = function
        if trace:
            _OF_TRACES[id(function)] = function
        return function

    return register


def measure(
    spec: MetricSpec, reference: Gold, output: str | Sequence[str], metrics: Mapping[str, Metric]
) -> MetricResult:
    """Return the result of one metric with a case's arguments. A metric that fails has an `error`, never a score of 0.

    For metrics that ask no model; `measure_async` is for all. Several right answers are compared one by one.
    """
    try:
        function = find_metric(spec.name, metrics, spec.compat)
        if asks_model(function):
            raise ConfigError(f"the metric {spec.name} asks a model, which cannot be done here; {_WHERE_TO_ASK}")
        if spec.compat is not None:
            reference = gold_of_compat(reference)
        return _result(spec, apply(spec.name, function, reference, output, spec.args))
    except BaseException as error:
        if not is_failure(error):
            raise
        return _failure(spec, error)


def measure_trace(spec: MetricSpec, case: Case, artifact: RunArtifact, metrics: Mapping[str, Metric]) -> MetricResult:
    """Return the result of one metric of a trace.

    If there is nothing to measure, it has no score, and fails only if the metric has a threshold.
    """
    try:
        value = find_metric(spec.name, metrics)(case, artifact, **spec.args)
        if value is None:
            passed = None if spec.threshold is None else False
            return MetricResult(name=spec.name, score=None, threshold=spec.threshold, passed=passed)
        return _result(spec, value)
    except BaseException as error:
        if not is_failure(error):
            raise
        return _failure(spec, error)


async def measure_async(
    spec: MetricSpec,
    reference: Gold,
    output: str | Sequence[str],
    metrics: Mapping[str, Metric],
    context: MetricContext,
) -> MetricResult:
    """Return the result of one metric like `measure`. The metric may ask a model.

    A model is asked once: it gets several right answers as one text.
    """
    function = metrics.get(spec.name)
    if function is None or not asks_model(function):
        return measure(spec, reference, output, metrics)
    clients: list[ChatClient] = []

    def client(model: str | None) -> ChatClient:
        clients.append(context.client(model))
        return clients[-1]

    try:
        if not isinstance(output, str):
            raise ValueError(ONE_TEXT)
        args = with_compat(function, spec.args, spec.compat)
        ground_truth = gold_text(reference) if spec.compat is None else gold_of_compat(reference)
        # The counting client shows whether a failed metric may have cost something.
        return _result(spec, await function(ground_truth, output, context=context._replace(client=client), **args))
    except BaseException as error:
        if not is_failure(error):
            raise
        return _failure(spec, error, getattr(error, "usage", Usage() if clients else None))


def asks_model(function: Metric) -> bool:
    """Return whether the metric is a coroutine function: it gets a MetricContext and is awaited."""
    if type(function) is FunctionType and not function.__dict__:  # neither wrapped nor marked: nearly all metrics
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(function)


def takes_long(name: str, metrics: Mapping[str, Metric], reference: Gold, output: str) -> bool:
    """Return whether a plain metric may take long: it is registered as slow, or the texts are long."""
    return id(metrics.get(name)) in _SLOW or len(gold_text(reference)) + len(output) > _LONG


def takes_samples(function: Metric) -> bool:
    """Return whether the metric compares several predictions with one ground truth."""
    return id(function) in _OF_SAMPLES


def reads_golds(function: M) -> M:
    """Mark a metric that compares with several right answers by itself: it gets them as `Golds`."""
    _OF_GOLDS[id(function)] = function
    return function


def takes_trace(function: Metric | None) -> bool:
    """Return whether the metric looks at a run, not at texts."""
    return id(function) in _OF_TRACES


def find_metric(name: str, metrics: Mapping[str, Metric], compat: Compat | None = None) -> Metric:
    """Return the function of a metric by its name. Raises ConfigError for an unknown name or `compat`."""
    function = metrics.get(name)
    if function is None:
        from pytest_agentbench.config.base import suggest

        raise ConfigError(f"unknown metric {name!r}{suggest(name, metrics)}")
    require_compat(compat)
    if compat is None:
        return function
    return _COMPAT_METRICS[compat].get(name, function)


def require_compat(compat: object) -> None:
    """Raise ConfigError for a `compat` that names no definitions."""
    if compat is not None and compat not in _COMPAT_METRICS:
        raise ConfigError(f"compat: found {compat!r}, expected None, 'v1' or 'v2'")


def missing_extra(name: str, compat: Compat | None = None) -> str | None:
    """Return why the metric cannot be computed: a package that it needs is not installed. Return None if it can be."""
    METRICS.get(name)  # imports the metric's module, which registers the needed package
    module = _REQUIRED.get(name)
    if module is None or name in _COMPAT_METRICS.get(compat, ()) or _is_installed(module):
        return None
    return f"the metric {name} needs the module {module}; install it with: pip install 'pytest-agentbench[metrics]'"


@cache
def _is_installed(module: str) -> bool:
    # Cached, because the search takes ten times as long as the comparison of two equal formulas.
    return importlib.util.find_spec(module) is not None


_WHERE_TO_ASK = "list it under `metrics` of the case, dataset or evaluation profile"
_OF_A_TRACE = "looks at how a run used its tools, not at texts; list it under `metrics` of a case"
ONE_TEXT = "found several predictions, expected one text; pass_at_k and pass_hat_k take several"


def apply(
    name: str, function: Metric, ground_truth: Gold, prediction: str | Sequence[str], kwargs: Mapping[str, object]
) -> Any:
    """Return the result of a metric of texts that asks no model, for several right answers by their rule."""
    if takes_trace(function):
        raise ConfigError(f"metric {name!r} {_OF_A_TRACE}")
    if not isinstance(prediction, str) and not takes_samples(function):
        raise ValueError(f"metric {name!r}: {ONE_TEXT}")
    if isinstance(ground_truth, str) or id(function) in _OF_GOLDS:
        return function(ground_truth, prediction, **kwargs)
    from pytest_agentbench.metrics.golds import compare_golds

    measured, answer = compare_golds(ground_truth, lambda gold: checked(name, function(gold, prediction, **kwargs)))
    if len(ground_truth.answers) == 1:
        return measured
    return measured._replace(details={**measured.details, "answer": answer})


def with_compat(function: Metric, options: Mapping[str, Any], compat: Compat | None) -> Mapping[str, Any]:
    """Return the options of a metric that asks a model, and `compat` if the metric has the original's definition."""
    if compat == "v1" and "compat" in inspect.signature(function).parameters:
        return {**options, "compat": compat}
    return options


def checked(name: str, value: Any) -> Measured:
    """Return a metric's result as a score with details. Raises ValueError if it is not a number from 0 to 1."""
    measured = value if isinstance(value, Measured) else Measured(value)
    number = measured.score
    if not isinstance(number, (int, float, Real)) or not 0 <= float(number) <= 1:  # NaN fails the comparison
        raise ValueError(f"metric {name!r} returned {number!r}, expected a number from 0 to 1")
    return measured


def _result(spec: MetricSpec, value: Any) -> MetricResult:
    measured = checked(spec.name, value)
    number = float(measured.score)
    return MetricResult(
        name=spec.name,
        score=number,
        threshold=spec.threshold,
        passed=None if spec.threshold is None else number >= spec.threshold,
        details=dict(measured.details),
        usage=measured.usage,
    )


def _failure(spec: MetricSpec, error: BaseException, usage: Usage | None = None) -> MetricResult:
    """Return a failed result. `usage` is the usage of requests before the error, None if no model was asked."""
    text = str(error)
    # The text of another error may be no sentence: that of a KeyError is only the key.
    if not text or not isinstance(error, (AgentbenchError, ValueError)):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return MetricResult(name=spec.name, score=None, threshold=spec.threshold, error=text, usage=usage)


def _identity(function: Metric) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


def metrics_of(case: Case, profile: EvaluationProfile) -> tuple[MetricSpec, ...]:
    """Return the case's metrics, the profile's metrics that apply, and those of tool use if the case has MCP servers.

    The profile's metrics apply if there is a reference to compare with, and its metrics of a trace if there are tools.
    Metrics without `compat` use the profile's.
    """
    metrics = case.metrics
    if profile.metrics:
        metrics = _with(metrics, (metric for metric in profile.metrics if _applies(metric, case)))
    if case.mcp_servers:
        metrics = _with(metrics, (MetricSpec(name=name) for name in TOOL_USE_METRICS))
    if profile.compat is None:
        return metrics
    return tuple(m if m.compat else m.model_copy(update={"compat": profile.compat}) for m in metrics)


def _with(metrics: tuple[MetricSpec, ...], further: Iterable[MetricSpec]) -> tuple[MetricSpec, ...]:
    own = {metric.name for metric in metrics}
    return (*metrics, *(metric for metric in further if metric.name not in own))


def _applies(metric: MetricSpec, case: Case) -> bool:
    if takes_trace(METRICS.get(metric.name)):
        return bool(case.mcp_servers) or offers_tools(case)
    return case.reference is not None


def refusal(
    spec: MetricSpec, metrics: Mapping[str, Metric], compat: Compat | None = None, *, checked: bool = False
) -> str | None:
    """Return the mistake in a case's arguments for a metric, or None. `checked`: the metric is used by a check of a
    case.

    Names of `args` are compared with the function's parameters, values with their annotations, as far as these can be
    resolved. The result of a template (`{{ ... }}`) is not known yet.
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
        return f"metric {spec.name}: it {_OF_A_TRACE}"
    if checked and asks_model(function):
        return f"metric {spec.name}: it asks a model, which a check cannot; list it under `metrics` of the case"
    problem = wrong_names(function, spec.args) or _wrong_values(function, spec.args)
    if problem is None:
        return None
    return f"metric {spec.name}: {problem}"


def metric_problems(
    specs: Iterable[MetricSpec], compat: Compat | None, metrics: Mapping[str, Metric]
) -> list[tuple[Loc, str]]:
    """Return why metrics of a case, file or profile cannot be computed, each at its place there."""
    return _refused(((("metrics", index), spec) for index, spec in enumerate(specs)), compat, metrics)


def case_metric_problems(case: Case, compat: Compat | None, metrics: Mapping[str, Metric]) -> list[tuple[Loc, str]]:
    """Return why metrics, and checks of metrics, of a case cannot be computed, each at its field."""
    in_checks: Iterable[tuple[Loc, MetricSpec]] = (
        (("deterministic_checks", index, *place), MetricSpec(name=metric.name, args=metric.args))
        for index, check in enumerate(case.checks)
        for place, leaf in check.leaves
        if isinstance(metric := leaf.declarative, MetricAtLeast)
    )
    return [*metric_problems(case.metrics, compat, metrics), *_refused(in_checks, compat, metrics, checked=True)]


def _refused(
    placed: Iterable[tuple[Loc, MetricSpec]],
    compat: Compat | None,
    metrics: Mapping[str, Metric],
    *,
    checked: bool = False,
) -> list[tuple[Loc, str]]:
    return [
        (loc, reason)
        for loc, spec in placed
        if spec.name in metrics and (reason := refusal(spec, metrics, compat, checked=checked))
    ]


def wrong_names(function: Metric, args: Mapping[str, Any]) -> str | None:
    """Return the unknown or missing options of the metric as a sentence, or None."""
    signature = _signature(function)
    try:
        if signature is not None:
            # Two mappings: an option of the name `context` is refused, as it would take the place of ours
            own = {"context": None} if asks_model(function) else {}
            signature.bind("", "", **own, **args)
    except TypeError as error:
        return f"args: {error}"
    return None


def _wrong_values(function: Metric, args: Mapping[str, Any]) -> str | None:
    if (signature := _signature(function)) is None:
        return None
    parameters = signature.parameters.values()
    problems = (_wrong_value(parameter, args[parameter.name]) for parameter in parameters if parameter.name in args)
    return next(filter(None, problems), None)


def _signature(function: Metric) -> inspect.Signature | None:
    """Return the signature, with annotations if they can be resolved, or None for objects without one."""
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
    value_text = json.dumps(value, ensure_ascii=False, default=str)
    try:
        TypeAdapter(annotation).validate_json(value_text, strict=True)
    except PydanticSchemaGenerationError:
        return None
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        return f"args.{parameter.name}: found {value_text[:80]}, {message[:1].lower()}{message[1:]}"
    return None
