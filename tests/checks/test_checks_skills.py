"""The check `skill_used`."""

from __future__ import annotations

import pytest
from support.skills import make_events

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.checks.run import skill_used
from pytest_agentbench.records.run_checks import SkillUsed
from pytest_agentbench.testing.samples import sample_case, sample_run


@pytest.mark.parametrize(
    ("spec", "facts", "outcome"),
    [
        ({"name": "signs"}, ["listed", "attempted", "loaded"], "passed"),
        ({"name": "signs"}, ["listed", "attempted"], "failed"),
        ({"name": "signs", "min": 2}, ["loaded"], "failed"),
        ({"name": "signs", "min": 0, "max": 1}, ["loaded", "loaded"], "failed"),
        ({"pattern": "^si"}, ["loaded"], "passed"),
        ({"name": "signs", "min": 0, "max": 0}, ["listed", "attempted"], "passed"),
        ({"name": "others"}, ["loaded"], "skipped"),
    ],
)
def test_skill_used_counts_loaded_skills(spec, facts, outcome) -> None:
    artifact = sample_run(trace=make_events(*facts), request={"skills": ["signs"]})
    context = CheckContext(sample_case(), artifact, None, {})
    assert skill_used(SkillUsed(kind="skill_used", **spec), context).outcome == outcome
