"""An endpoint that judges citations, for the commands of a test to ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.research_site import FactJudge


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[FactJudge]:
    with FactJudge() as found:
        found.judge_for(monkeypatch)
        yield found
