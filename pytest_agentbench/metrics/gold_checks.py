"""Grade each case's own answer by each metric of the case: an answer that fails itself can be met by no reply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pytest_agentbench.metrics.multiple_choice import find_readings
from pytest_agentbench.metrics.registry import Metric, asks_model, measure, missing_extra, takes_samples, takes_trace
from pytest_agentbench.records.case import Case, Compat, MetricSpec
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.records.gold import Gold, Golds
from pytest_agentbench.terminal_text import count_text, shorten_text, visible_line

_SHOWN = 40
"""Maximum characters of an answer in a message."""

_COMPARE_NUMBERS = frozenset({"exact_match", "contains_answer", "numeric_match", "math_equal"})
_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
"""A number that is itself by any of these metrics. Reading one twice takes 90 µs, more than making its case."""

# Parts that differ between messages of one kind: quoted texts and numbers.
_DIFFERING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+")


@dataclass
class GoldTest:
    """Test of the answers of many cases. Each finding is stored once for a file and kind, with a count."""

    metrics: Mapping[str, Metric]
    _found: dict[tuple[Path, str], _Finding] = field(default_factory=dict)
    _measurable: dict[tuple[str, Compat | None], bool] = field(default_factory=dict)

    def add(self, case: Case) -> None:
        """Grade the answer of a case by its metrics that compare texts without a model."""
        if not case.gold:
            return
        for spec in case.metrics:
            if self._can_measure(spec):
                self._note(case, next(self._problems(spec, case.gold), None))

    def problems(self) -> Iterator[str]:
        """Yield `file:line:1: ...` of each kind of problem, with the number of further rows that have it."""
        for finding in self._found.values():
            yield f"{finding.place}: answer: {finding.text}{finding.count}"

    def _can_measure(self, spec: MetricSpec) -> bool:
        key = spec.name, spec.compat
        if key not in self._measurable:  # looking for a package takes longer than most metrics
            function = self.metrics.get(spec.name)
            others = asks_model, takes_samples, takes_trace
            measurable = function is not None and not any(is_other(function) for is_other in others)
            self._measurable[key] = measurable and missing_extra(spec.name, spec.compat) is None
        return self._measurable[key]

    def _note(self, case: Case, problem: _Problem | None) -> None:
        if problem is None:
            return
        key = case.path, problem.kind
        if key in self._found:
            self._found[key].rows += 1
        else:
            self._found[key] = _Finding(f"{case.path}:{case.line}:1", visible_line(problem.text))

    def _problems(self, spec: MetricSpec, gold: Gold) -> Iterator[_Problem]:
        for one in _split(gold):
            reply = one if isinstance(one, str) else one.reply
            if spec.name in _COMPARE_NUMBERS and _PLAIN_NUMBER.fullmatch(reply):
                continue
            if spec.name == "multiple_choice":
                yield from _choice_problems(spec, one, reply, self.metrics)
            else:
                yield from _problems(spec, one, reply, self.metrics)


class _Problem(NamedTuple):
    text: str
    kind: str
    """Rows with problems of one kind are counted together."""


@dataclass
class _Finding:
    place: str
    text: str
    rows: int = 1

    @property
    def count(self) -> str:
        more = self.rows - 1
        if more:
            return f" (and {count_text(more, 'more row')})"
        return ""


def _split(gold: Gold) -> Iterator[Gold]:
    """Yield the answers that have to be right by themselves: each of several, but all together if all are needed."""
    if isinstance(gold, str) or gold.rule == "all_of":
        yield gold
        return
    for spellings in gold.answers:
        yield Golds(rule="any_of", answers=(spellings,), text=spellings[0], original=gold.original)


def _problems(spec: MetricSpec, gold: Gold, reply: str, metrics: Mapping[str, Metric]) -> Iterator[_Problem]:
    result = measure(spec, gold, reply, metrics)
    if result.score is None:
        yield _unreadable(result)
        return
    expected = 1.0 if spec.threshold is None else spec.threshold
    if result.score < expected:
        text = (
            f"found {_show(reply)}, which {spec.name} scores {result.score:.3g} against itself, expected at least "
            f"{expected:g}: no reply is sure to be right; correct the answer or name another metric"
        )
        yield _Problem(text, f"{spec.name} below {expected:g}")


def _choice_problems(spec: MetricSpec, gold: Gold, reply: str, metrics: Mapping[str, Metric]) -> Iterator[_Problem]:
    """Yield why an answer leads to no option, or to several. A reply names an option by its letter, never an index."""
    try:
        readings = find_readings(reply, spec.args.get("choices"), spec.args.get("answer_is"))
    except ValueError:
        readings = {}  # `measure` below reports the same error
    if len(set(readings.values())) == 1:
        return
    result = measure(spec, gold, "", metrics)
    if result.score is None:
        yield _unreadable(result)
    elif readings:
        ways = " and ".join(f"{letter} as {name}" for name, letter in readings.items())
        kinds = " or ".join(f"`answer_is: {name}`" for name in readings)
        text = (
            f"found {_show(reply)}, which is {ways}; multiple_choice reads it as {result.details['expected']}; "
            f"declare the right one by {kinds} in dataset.yaml"
        )
        yield _Problem(text, f"multiple_choice reads {kinds}")


def _unreadable(result: MetricResult) -> _Problem:
    text = f"{result.error}; each run of it would be an error"
    return _Problem(text, _DIFFERING.sub("", text))


def _show(text: str) -> str:
    return repr(shorten_text(" ".join(text[: 4 * _SHOWN].split()), _SHOWN))
