"""An endpoint that judges reports, for the commands of a test to ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.race_judge import RaceJudge


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[RaceJudge]:
    with RaceJudge() as found:
        found.judge_for(monkeypatch)
        yield found
