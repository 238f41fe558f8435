"""Subjects that are no model: a user's own callable, and predictions, answers from elsewhere taken as runs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import Case
from pytest_agentbench.runners.base import ReportedCall, RunContext, RunEnd, Runner, RunOutput, make_end, record_report
from pytest_agentbench.terminal_text import count_text

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def adapt(agent: Callable[..., Any]) -> Runner:
    """Return a runner for a callable that takes `(case)` or `(case, context)`. The signature is inspected once.

    A coroutine function is awaited on the engine's loop, a plain function runs in a thread (`context.in_thread`).
    Results and exceptions pass through unchanged. A second parameter gets the context if it is named `context` or has
    no default. An object with `open(case, context)` need not be callable. Raises ConfigError for another signature.
    """
    if not callable(agent):
        from pytest_agentbench.runners.own_conversations import answer_alone, opens_conversations

        if opens_conversations(agent):
            return partial(answer_alone, agent)
        raise ConfigError(f"agentbench_runner: found {type(agent).__name__}, expected a callable; {_EXPECTED}")
    call = _with_context(agent)
    if _is_async(agent):
        return call

    async def in_thread(case: Case, context: RunContext) -> Any:
        result = await context.in_thread(partial(call, case, context))
        # A plain function may return a coroutine, for example a lambda around an async agent
        if inspect.isawaitable(result):
            return await result
        return result

    return in_thread


_EXPECTED = "an agent takes (case) or (case, context), or has open(case, context)"


def _with_context(agent: Callable[..., Any]) -> Callable[[Case, RunContext], Any]:
    """Return a function of (case, context) that passes the arguments which the callable takes."""
    try:
        parameters = list(inspect.signature(agent).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return lambda case, context: agent(case)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    keywords = [parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    required = [parameter.name for parameter in positional[2:] + keywords if _is_required(parameter)]
    if (not positional and not takes_any) or set(required) - {"context"}:
        # A partial or an instance has no __name__
        name = getattr(agent, "__name__", type(agent).__name__)
        raise ConfigError(f"agentbench_runner: found {name}{inspect.signature(agent)}; {_EXPECTED}")
    if len(positional) > 1 and (_is_required(positional[1]) or positional[1].name == "context"):
        return agent
    if any(parameter.name == "context" for parameter in positional[2:] + keywords):
        return lambda case, context: agent(case, context=context)
    return lambda case, context: agent(case)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _is_async(agent: Callable[..., Any]) -> bool:
    # A partial hides whether its function is async, and an object may have an async `__call__`
    while isinstance(agent, partial):
        agent = agent.func
    return inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(type(agent).__call__)


@dataclass(eq=False)
class Predictions:
    """A runner without a model: the output is the file's prediction for the case and the repetition.

    `answers` maps case ids, or the ids of items in their dataset, to predictions as `read_predictions` returns them. A
    list has one per repetition. Another value belongs to the first repetition. `samples` is the length of the longest
    list.
    """

    path: Path
    answers: Mapping[str, Any]
    samples: int = 1

    @property
    def model_id(self) -> str:
        """Return the model's name in ids and reports: the file's name without its suffix."""
        return self.path.stem

    def key(self, case_id: str, dataset: str | None) -> str | None:
        """Return the key of a case in the file: its case id, else its id in the dataset, else None."""
        return next((name for name in _ids(case_id, dataset) if name in self.answers), None)

    def digest(self, case: Case, repetition: int) -> str | None:
        """Return the SHA-256 of the prediction (of a text: its UTF-8), or None if there is no prediction."""
        sample = self._samples(case)[repetition - 1 : repetition]
        if sample in ([], [None]):
            return None
        # An invalid value needs an identity, too, so that a corrected file makes a new run
        text = sample[0] if isinstance(sample[0], str) else json.dumps(sample[0])
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    async def __call__(self, case: Case, context: RunContext) -> RunEnd | RunOutput:
        """Return the prediction as the run. The status is `failed` without a prediction, `invalid` if it is not a
        text.
        """
        samples, repetition = self._samples(case), context.repetition
        context.trace.provider.update(predictions=self.path.name, sha256=self.digest(case, repetition))
        if repetition > len(samples) or samples[repetition - 1] is None:
            return make_end("failed", "missing_prediction", self._missing(case, repetition))
        from pytest_agentbench.sources.predictions import has_turns

        sample, trace = samples[repetition - 1], context.trace
        is_conversation = has_turns(sample)
        try:
            answers = _read_turns(sample["answers"], case) if is_conversation else [_read_answer(sample)]
        except ValueError as error:
            return make_end("invalid", "invalid_prediction", f"{self._place(case)}: {error}")
        if all(answer.has_calls for answer in answers):
            # Checks of tool calls may decide this run: see `checks.run`.
            trace.provider["reported_calls"] = sum(len(answer.calls) for answer in answers)
        if not is_conversation:
            return RunOutput(output=answers[0].text, tool_calls=answers[0].calls)
        for number, (message, answer) in enumerate(zip(case.turns, answers, strict=True), 1):
            trace.begin_turn(number)
            trace.message("user", message.content)
            record_report(RunOutput(output=answer.text, tool_calls=answer.calls), trace)
            trace.message("assistant", answer.text)
        return RunOutput(output=answers[-1].text)

    def _samples(self, case: Case) -> list[Any]:
        key = self.key(case.case_id, case.dataset)
        value = [] if key is None else self.answers[key]
        # A single answer belongs to the first repetition; the other repetitions fail without one
        if isinstance(value, list):
            return value
        return [value]

    def _place(self, case: Case) -> str:
        return f"{self.path.name}: {self.key(case.case_id, case.dataset)!r}"

    def _missing(self, case: Case, repetition: int) -> str:
        if self.key(case.case_id, case.dataset) is None:
            return f"{self.path.name} has no prediction of {' or '.join(map(repr, _ids(case.case_id, case.dataset)))}"
        number, place = len(self._samples(case)), self._place(case)
        if repetition > number:
            return f"{place}: found {count_text(number, 'prediction')}, none for repetition {repetition}"
        if number == 1:
            return f"{place}: found null"
        return f"{place}: found null for repetition {repetition}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """A stored answer. `calls` is empty without `has_calls`: its calls are unknown then."""

    text: str
    calls: tuple[ReportedCall, ...] = ()
    has_calls: bool = False


def _read_turns(values: Any, case: Case) -> list[_Answer]:
    """Return the stored answers of a case's turns. Raises ValueError for another number of answers."""
    if not case.turns:
        raise ValueError("answers: found a list, one for each turn, but the case has no turns; expected one answer")
    if not isinstance(values, list) or len(values) != len(case.turns):
        found = count_text(len(values), "answer") if isinstance(values, list) else json.dumps(values)[:40]
        raise ValueError(f"answers: found {found}, expected a list of {len(case.turns)}, one for each turn")
    answers = []
    for number, value in enumerate(values, 1):
        try:
            answers.append(_read_answer(value))
        except ValueError as error:
            raise ValueError(f"answers[{number - 1}]: {error}") from error
    return answers


def _read_answer(value: Any) -> _Answer:
    """Return a stored answer, with its tool calls if it has them. Raises ValueError for any other value."""
    from pytest_agentbench.sources.predictions import as_prediction, has_calls

    text = as_prediction(value)
    if not isinstance(text, str):
        found = "null" if text is None else "a list in a list"
        raise ValueError(f"found {found}, expected a text")
    if has_calls(value):
        return _Answer(text, _read_calls(value["tool_calls"]), has_calls=True)
    return _Answer(text)


def _read_calls(value: Any) -> tuple[ReportedCall, ...]:
    """Return the tool calls of a prediction. Raises ValueError for anything but a list of calls."""
    if not isinstance(value, list):
        expected = "a list of {name, arguments, result or error}"
        raise ValueError(f"tool_calls: found {json.dumps(value)[:40]}, expected {expected}")
    return tuple(_read_call(f"tool_calls[{at}]", call) for at, call in enumerate(value))


def _read_call(place: str, value: Any) -> ReportedCall:
    from pytest_agentbench.sources.predictions import field_problem

    try:
        return ReportedCall.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"{place}: {field_problem(dict(error.errors()[0]))}") from error


def _ids(case_id: str, dataset: str | None) -> tuple[str, ...]:
    # Prediction files are often written by people who know only the dataset and its own ids
    if dataset is None:
        return (case_id,)
    return (case_id, case_id.removeprefix(f"{dataset}."))
