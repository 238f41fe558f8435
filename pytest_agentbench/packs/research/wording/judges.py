"""The texts that judges read, in one language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_agentbench.packs.research.records import RaceDimension


@dataclass(frozen=True, slots=True)
class Wording:
    """Each stage's text is the task, followed by what the reply has to look like. `{...}` are places to fill in.

    `labels` are those of blocks of material. `dimensions` say what RACE's dimensions mean, `query_dimensions` what
    scores 1 and 5 mean of the seven by which queries are selected, by letter.
    """

    role: str
    how_to_read: str
    labels: Mapping[str, str]
    dimensions: Mapping[RaceDimension, str]
    query_dimensions: Mapping[str, str]
    select: str
    weigh: str
    criteria: str
    clean: str
    race_pairwise: str
    race_pointwise: str
    extract: str
    deduplicate: str
    validate: str
    strategic: str
    knowledge: str
    reuse: str
