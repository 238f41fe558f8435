"""Skills as inputs of a run: which runners can have them, and their part of its fingerprint."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.config.functions import functions_of
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.runners.base import PROBE, Runner
from pytest_agentbench.runners.kinds import RunnerKind


def skills_identity(case: Case, runner: Runner, runner_type: str) -> dict[str, Any]:
    """Return the content of the case's skills as part of its run's fingerprint.

    Raises UnavailableError if the runner has no skills.
    """
    identity: dict[str, Any] = {skill.name: skill.digest for skill in case.skills}
    if isinstance(runner, RunnerKind) and runner.takes_skills:
        return identity
    if runner_type != PROBE:
        raise UnavailableError(f"the case has skills, and the runner {runner_type} cannot give them to its agent")
    if functions_of(case.context):
        raise UnavailableError(
            "the case has skills and functions that are only declared: the first call would end the run; give the "
            "functions results (`tools` of llm_probe)"
        )
    from pytest_agentbench.tools.skills import VERSION

    return {**identity, "": VERSION}
