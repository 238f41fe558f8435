"""Cases that decide whether a skill is used."""

from __future__ import annotations

from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.run_checks import SkillUsed

CHECK_ID = "skill_used"


def add_trigger_check(case: Case) -> Case:
    """Return the case with a check of its skill's use, if nothing else decides it or `skill` is `scored`.

    Otherwise the use is only counted: a variant without the skill would fail the check by construction.
    """
    trigger = case.skill
    if trigger is None or not (trigger.scored or _is_undecided(case)):
        return case
    bounds = {"min": 1} if trigger.should_trigger else {"min": 0, "max": 0}
    check = Check(check_id=CHECK_ID, declarative=SkillUsed(kind="skill_used", name=trigger.name, **bounds))
    return case.model_copy(update={"checks": (*case.checks, check)})


def _is_undecided(case: Case) -> bool:
    expectations = case.expectations
    decided = case.checks or case.verify or case.metrics or case.reference or case.golds or case.rubric
    expected = expectations.hard_expectations or expectations.soft_expectations
    return not (decided or expected or case.report_only)
