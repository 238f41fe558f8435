"""The check of a run's use of skills."""

from __future__ import annotations

from pytest_agentbench.bounded.patterns import search_pattern
from pytest_agentbench.checks.base import CheckContext, Verdict, verdict
from pytest_agentbench.records.run_checks import SkillUsed
from pytest_agentbench.records.skill_uses import SkillUse, read_skill_uses

PATTERN_SECONDS = 1.0
"""Seconds that the search for a name may take."""


def decide_use(spec: SkillUsed, context: CheckContext) -> Verdict:
    """Return the verdict of the check `skill_used`; `skipped` if the run had no such skill.

    A call for the skill that failed does not count.
    """
    uses = {name: use for name, use in read_skill_uses(context.artifact).items() if _matches(spec, name)}
    label = spec.name or f"with a name like {spec.pattern}"
    if not uses:
        return Verdict("skipped", f"the run had no skill {label}")
    count = sum(use.loaded for use in uses.values())
    expected = f"at least {spec.min}" if spec.max is None else f"{spec.min} to {spec.max}"
    within = count >= spec.min and (spec.max is None or count <= spec.max)
    return verdict(within, f"the skill {label} was loaded {_times(count)}{_explain(uses)}", expected, str(count))


def _matches(spec: SkillUsed, name: str) -> bool:
    if spec.pattern is None:
        return name == spec.name
    return search_pattern(spec.pattern, name, PATTERN_SECONDS) is not None


def _explain(uses: dict[str, SkillUse]) -> str:
    attempts = sum(use.attempted for use in uses.values())
    if attempts and not any(use.loaded for use in uses.values()):
        return f"; the agent called for it {_times(attempts)} and did not get it"
    return ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
