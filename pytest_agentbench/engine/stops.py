"""Which models get no more runs: one that fails the same way each time, refuses its key, or is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError, ProviderError, UnavailableError, as_alike
from pytest_agentbench.models import UNREACHABLE

if TYPE_CHECKING:
    from pytest_agentbench.engine.job import Job

IN_A_ROW = 3
"""So many errors of a model with the same text stop it: one may be the case's."""
_REFUSED = frozenset({"authentication", "permission", "quota"})
"""Codes of errors that no other request of the model's would be spared."""
_CLIP = 200


class ModelStops:
    """Counts the errors of each model in the order in which its runs end. For the engine's loop.

    A model here is one of a plan: the same config root, and where it is the user's own agent, the same fixture.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._rows: dict[Any, tuple[str, int]] = {}
        self._reasons: dict[Any, str] = {}

    def reason(self, job: Job) -> str | None:
        """Return why the job is not to be run, None where it is."""
        return self._reasons.get(_model_of(job))

    def note(self, job: Job, error: BaseException | None) -> None:
        """Count what a run ended with. What the case file or this machine is to blame for is no error of the model."""
        model = _model_of(job)
        if isinstance(error, (ConfigError, UnavailableError)) or model in self._reasons:
            return
        if error is None:
            self._rows.pop(model, None)
            return
        code = error.code if isinstance(error, ProviderError) else None
        if code == UNREACHABLE:
            self._stop(job, str(error))
            return
        if isinstance(error, ProviderError) and error.retryable:
            return  # an outage: requests wait for its end
        text, before = as_alike(str(error)), self._rows.get(model, ("", 0))
        count = before[1] + 1 if before[0] == text else 1
        self._rows[model] = (text, count)
        profile = job.plan.run_profile
        if count < IN_A_ROW:
            return
        if code in _REFUSED:
            self._stop(job, f"{count} errors in a row: {error}")
        elif profile.execution_policy.stop_on_runner_error:
            by = f"execution_policy.stop_on_runner_error of run profile {profile.run_profile_id!r}"
            self._stop(job, f"{count} equal errors in a row ({by}): {error}")

    def _stop(self, job: Job, why: str) -> None:
        line = " ".join(self._redact(why).split())
        self._reasons[_model_of(job)] = f"{job.plan.model_id} is stopped: {line[:_CLIP]}{'…' * (len(line) > _CLIP)}"


def _model_of(job: Job) -> Any:
    return id(job.plan), job.runner_scope if job.plan.own_agent else None
