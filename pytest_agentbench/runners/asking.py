"""Record what a run's agent asked of its gateway, and what of it was refused."""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST_REFUSED = 3
"""Refused requests that are named to a reader."""


@dataclass(slots=True)
class Asking:
    """What one run asked of its gateway. `expected` says that it has one, `ended` that the run is over.

    `refused` are requests that no model was asked for, as text; `shared` is how many of its requests came with the
    token of another run.
    """

    expected: bool = False
    ended: bool = False
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    shared: int = 0

    def refuse(self, request: str) -> None:
        """Note a refused request, each once."""
        if len(self.refused) < _MOST_REFUSED and request not in self.refused:
            self.refused.append(request)

    def describe_nothing(self) -> str | None:
        """Return that the run asked nothing of its gateway, and what it did in place of that; None if it asked."""
        if self.asked or not (self.expected or self.shared):
            return None
        found = list(self.refused)
        if self.shared:
            number = f"{self.shared} request{'s' * (self.shared != 1)}"
            found.append(
                f"{number} came with the token of another run, by a client that several runs share: send "
                "`gateway.headers` with each request"
            )
        return f"this program asked nothing of the run's gateway: {'; '.join(found) or 'no request arrived'}"
