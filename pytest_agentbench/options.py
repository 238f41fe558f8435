"""Command line and ini, as one frozen Settings that every room reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What the user asked of this session. None: not given, so the profile or the default decides.

    `metric` is (name, threshold) for rows of datasets; `fail_under` and `min_completion` are fractions.
    """

    models: tuple[str, ...] = ()
    suite: str | None = None
    run_profile: str | None = None
    evaluation_profile: str | None = None
    configs: Path | None = None
    concurrency: int | None = None
    repetitions: int | None = None
    metric: tuple[str, float] | None = None
    max_cost: float | None = None
    fail_under: float | None = None
    min_completion: float = 0.95
    strict: bool = False
    output: Path = Path("outputs")
    json: Path | None = None
