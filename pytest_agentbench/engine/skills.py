"""Skills as inputs of a run: which runners can have them, and their part of its fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.functions import functions_of
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.skill_uses import find_calls, is_trigger_case
from pytest_agentbench.runners.base import PROBE, Runner
from pytest_agentbench.runners.kinds import RunnerKind
from pytest_agentbench.sources.triggers import CHECK_ID

if TYPE_CHECKING:
    from pytest_agentbench.engine.variants import Variant

_KIND = "skill_used"


def skills_identity(case: Case, runner: Runner, runner_type: str) -> dict[str, Any]:
    """Return the content of the case's skills as part of its run's fingerprint.

    Raises UnavailableError if the runner has no skills.
    """
    identity: dict[str, Any] = {"contents": {skill.name: skill.digest for skill in case.skills}}
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

    identity["texts"] = VERSION
    if called := [skill.name for skill in case.skills if find_calls(case, skill)]:
        identity["explicit"] = called  # their instructions are in the request
    return identity


def drop_unequal_check(case: Case, unchanged: Case, variants: Sequence[Variant]) -> Case:
    """Return the case without the check of its `skill` if one of the variants lacks the skill.

    The check would count in the other variants alone. `unchanged` is the case without a variant.
    """
    assert case.skill is not None
    parts = [variant.fields.parts for variant in variants]
    skills = [unchanged.skills if each is None else each.skills for each in parts]
    if is_trigger_case(case) or all(case.skill.name in {skill.name for skill in arm} for arm in skills):
        return case
    checks = tuple(check for check in case.checks if check.check_id != CHECK_ID)
    return case.model_copy(update={"checks": checks})


def require_skill(case: Case) -> None:
    """Raise UnavailableError for a case that only checks the use of skills, in a run without these skills.

    In a variant without the skill such a case has no result: neither arm of a comparison counts it.
    """
    if not case.checks or any(check.kind != _KIND for check in case.checks) or case.verify or case.metrics:
        return
    if case.rubric or case.expectations.hard_expectations or case.expectations.soft_expectations:
        return
    names = {skill.name for skill in case.skills}
    asked: list[Any] = [check.declarative for check in case.checks]
    if not any(spec.name in names if spec.pattern is None else names for spec in asked):
        labels = ", ".join(str(spec.name or spec.pattern) for spec in asked)
        raise UnavailableError(f"the case only checks the use of the skill {labels}, which this run does not have")
