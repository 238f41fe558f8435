"""A stage's request: what a judge is told, then the material, delimited, then the task."""

from __future__ import annotations

from pytest_agentbench.models import Block, boundary_of, rendered
from pytest_agentbench.records import Language
from pytest_agentbench.research.wording import WORDINGS


def stage_messages(language: Language, task: str, **material: str) -> list[dict[str, str]]:
    """A system and a user message. `material` is by the names of the wording's labels, in their order."""
    wording = WORDINGS[language]
    blocks = [Block(wording.labels[name], text) for name, text in material.items()]
    boundary = boundary_of(blocks)
    system = f"{wording.role}\n\n{wording.how_to_read.replace('{boundary}', boundary)}"
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{rendered(blocks, boundary)}\n\n{task}"},
    ]
