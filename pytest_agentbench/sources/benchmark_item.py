"""One question of a dataset as Python code sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class BenchmarkItem:
    """A question with its expected answer ("" where there is none) and all other fields (seed 001)."""

    id: str
    question: str
    answer: str = ""
    metadata: dict[str, Any] | None = None
