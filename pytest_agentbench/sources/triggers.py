"""Cases that decide whether a skill is used."""

from __future__ import annotations

from pytest_agentbench.records.case import Case, Thresholds
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.run_checks import SkillUsed
from pytest_agentbench.records.skill_uses import is_trigger_case

CHECK_ID = "skill_used"
REPETITIONS = 3
"""Runs of a case that only decides whether a skill is used."""
_SHOULD, _SHOULD_NOT = Thresholds(pass_rate=0.5), Thresholds(pass_rate=0.51)
"""Least shares of runs that pass: a skill that should be used is used in half of the runs or more, another in fewer."""


def add_trigger_check(case: Case) -> Case:
    """Return the case with a check of its skill's use, if nothing else decides it or `skill` is `scored`.

    Otherwise the use is only counted: a variant without the skill would fail the check by construction. A case that
    nothing else decides passes by the share of its runs.
    """
    trigger = case.skill
    is_undecided = _is_undecided(case)
    if trigger is None or not (trigger.scored or is_undecided):
        return case
    bounds = {"min": 1} if trigger.should_trigger else {"min": 0, "max": 0}
    check = Check(check_id=CHECK_ID, declarative=SkillUsed(kind="skill_used", name=trigger.name, **bounds))
    case = case.model_copy(update={"checks": (*case.checks, check)})
    if is_undecided and case.thresholds is None:
        thresholds = _SHOULD if trigger.should_trigger else _SHOULD_NOT
        return case.model_copy(update={"thresholds": thresholds})
    return case


def count_repetitions(case: Case) -> int:
    """Return how often a case runs by default."""
    return REPETITIONS if is_trigger_case(case) else 1


def _is_undecided(case: Case) -> bool:
    expectations = case.expectations
    decided = case.checks or case.verify or case.metrics or case.reference or case.golds or case.rubric
    expected = expectations.hard_expectations or expectations.soft_expectations
    return not (decided or expected or case.report_only)
