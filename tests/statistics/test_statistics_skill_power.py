"""The power of a comparison of two arms, as docs/skills.md states it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.skill_power import rows

PAGE = Path(__file__).parents[2] / "docs" / "skills.md"


@pytest.mark.full
@pytest.mark.slow
def test_forty_cases_find_a_skill_that_helps_and_none_that_does_nothing() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, repetitions, helpful, idle in rows(40):
        assert f"| {name} | {repetitions} | {helpful:.1%} | {idle:.1%} |" in page
        assert idle <= 0.05
        assert repetitions == 1 or helpful >= 0.8
