"""A dry run: the runs and verdicts that a session would make, and their expected usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.engine.budget import spending
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.records.forecast import Forecast
from pytest_agentbench.records.run import Usage
from pytest_agentbench.statistics.estimates import mean, mean_of
from pytest_agentbench.store.contents import read_history

_Mean = tuple[float | None, int | None]
"""USD and tokens, None if unknown."""

NOT_RUN = "this is a dry run"
"""Why no item of a dry run has a result."""


@dataclass
class DryRun:
    """Replaces runs: books the expected usage of each, by model in the order of the jobs."""

    forecasts: dict[str, Forecast] = field(default_factory=dict)
    _means: dict[tuple[str, str, str], tuple[_Means, _Means]] = field(default_factory=dict)

    def add(self, job: Job, model_id: str, found: Result, *, asks: bool, free_run: bool, free_verdict: bool) -> None:
        """Book a job. `found` has the parts that the store contains.

        `asks` is True if the verdict asks a model; a free run or verdict is answered by a file.
        """
        forecast = self.forecasts.setdefault(model_id, Forecast(model_id))
        forecast.runs += 1
        forecast.reused += found.reused
        if not found.reused:
            forecast.to_run += 1
            cost, tokens = (0.0, 0) if free_run else self._expected_run(job, forecast)
            forecast.run_usd.add(cost)
            forecast.tokens.add(tokens)
        # A run that is still to be made has no stored verdict either: it is judged too
        if found.evaluation is None and asks:
            forecast.to_judge += 1
            cost, tokens = (0.0, 0) if free_verdict else self._history(job)[1].of(slug(job.case_id))
            forecast.judge_usd.add(cost)
            forecast.tokens.add(tokens)

    def _expected_run(self, job: Job, forecast: Forecast) -> _Mean:
        runs, case = self._history(job)[0], slug(job.case_id)
        forecast.new += case not in runs.usages
        return runs.of(case)

    def _history(self, job: Job) -> tuple[_Means, _Means]:
        """Return the means of runs and of verdicts, read when they are first needed."""
        model_store = job.plan.model_store
        key = model_store.output, model_store.model, model_store.evaluation_profile_id
        if key not in self._means:
            history = read_history(*key)
            self._means[key] = _Means(history.runs), _Means(history.verdicts)
        return self._means[key]


@dataclass
class _Means:
    """The expected usage of a case: the mean of its history, or of the whole history if it has none."""

    usages: Mapping[str, Sequence[Usage]]

    def of(self, case: str) -> _Mean:
        """Return USD and tokens, None without any history."""
        cost, tokens = _mean(self.usages.get(case, ()))
        if cost is None:
            cost = self._all[0]
        if tokens is None:
            tokens = self._all[1]
        return cost, tokens

    @cached_property
    def _all(self) -> _Mean:
        return _mean([usage for usages in self.usages.values() for usage in usages])


def _mean(usages: Sequence[Usage]) -> _Mean:
    used = [spending(usage) for usage in usages if usage.unsettled is None]
    costs = [cost for cost, *_ in used if cost is not None]
    tokens = [count for _, count, *_ in used if count is not None]
    return mean(costs), round(mean_of(tokens)) if tokens else None
