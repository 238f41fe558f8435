"""The texts of research reports in two languages: what judges read, and what a business report says.

They are package data, `texts/*.yaml`, read when they are first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from pytest_agentbench.packs.research.records import Language, RaceDimension


@dataclass(frozen=True, slots=True)
class Wording:
    """What judges read in one language: of each stage the task, followed by what the reply has to look like.

    `{...}` are places to fill in. `labels` are those of blocks of material. `dimensions` say what RACE's dimensions
    mean, `query_dimensions` what scores 1 and 5 mean of the seven by which queries are selected, by letter.
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


_FILES: Mapping[Language, str] = {"en": "english", "zh": "chinese"}


@cache
def read_wording(language: Language) -> Wording:
    """Return what judges read in this language."""
    return Wording(**_read(_FILES[language]))


@cache
def read_labels(language: Language) -> Mapping[str, str]:
    """Return every text of the business report that is not data, by the names that the data have."""
    return {name: texts[language] for name, texts in _read("labels").items()}


def _read(name: str) -> dict[str, Any]:
    text = files("pytest_agentbench.packs.research").joinpath("texts", f"{name}.yaml").read_text("utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)  # ours, and quicker than safe_load
    return found
