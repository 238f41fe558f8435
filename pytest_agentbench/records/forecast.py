"""A forecast: what a session would do on a model, and what that is expected to use."""

from dataclasses import dataclass, field


@dataclass
class Expected:
    """A sum of what is expected; `unknown` parts of it nobody can tell."""

    known: float = 0.0
    unknown: int = 0

    def add(self, part: float | None) -> None:
        """Add one part more, None: unknown."""
        self.known += part or 0.0
        self.unknown += part is None


@dataclass
class Forecast:
    """Hold what a session would do on one model. `new` runs are of cases that have no history: the model's mean stands
    in.

    `to_judge` counts verdicts that models are asked for. Tokens are those of runs and judges, costs are USD.
    """

    model_id: str
    runs: int = 0
    reused: int = 0
    to_run: int = 0
    to_judge: int = 0
    new: int = 0
    tokens: Expected = field(default_factory=Expected)
    run_usd: Expected = field(default_factory=Expected)
    judge_usd: Expected = field(default_factory=Expected)
