"""A forecast: the runs and verdicts of a session on a model, and their expected usage."""

from dataclasses import dataclass, field


@dataclass
class Expected:
    """A sum of expected values; `unknown` is the number of parts without an estimate."""

    known: float = 0.0
    unknown: int = 0

    def add(self, part: float | None) -> None:
        """Add one part more, None: unknown."""
        self.known += part or 0.0
        self.unknown += part is None


@dataclass
class Forecast:
    """Expected work of a session on one model. `new` runs are of cases without history, estimated by the model's mean.

    `to_judge` counts verdicts that need a model. Tokens are those of runs and judges, costs are USD.
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
