"""Parts that several tests of kits share: a client, a case and a profile of the sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest_agentbench as ab
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.testing.samples import sample_case

CASES = Path(__file__).parents[2] / "cases"
NUMBERS = iter(range(1_000))
"""Another number for each call of an implementation that breaks its contract."""


def plain_profile(**fields: Any) -> RunProfile:
    """Return a run profile with the sample's sandbox."""
    return RunProfile.model_validate(
        {"schema_version": 1, "run_profile_id": "kit", "title": "Kit", "sandbox": "plain", **fields}
    )


def card_case(most: int = 2) -> ab.Case:
    from agentbench_sample.cards import Card

    return sample_case(parts={"card": Card(most_words=most)})


class Parrot:
    """A client that says the question again."""

    def __init__(self, model: ab.Model) -> None:
        self.model = model

    async def complete(self, messages: Any, **options: Any) -> ab.ChatReply:
        text = messages[-1]["content"]
        message = {"role": "assistant", "content": text}
        return ab.ChatReply(text, (), "stop", ab.Usage(), self.model.requested_model, None, message, 1, 0.0)
