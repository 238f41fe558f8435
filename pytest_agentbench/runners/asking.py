"""Record the requests of a run's agent to its gateway, and the refused ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_agentbench.terminal_text import count_text

_MOST_REFUSED = 3
"""Maximum refused requests that are named."""


@dataclass(slots=True)
class Asking:
    """Requests of one run to its gateway. `expected`: the run has a gateway. `ended`: the run is over.

    `asked` counts requests to the model. `refused` are refused requests, as text. `shared` counts requests that came
    with the token of another run.
    """

    expected: bool = False
    ended: bool = False
    asked: int = 0
    refused: list[str] = field(default_factory=list)
    shared: int = 0

    def refuse(self, request: str) -> None:
        """Record a refused request; equal ones once."""
        if len(self.refused) < _MOST_REFUSED and request not in self.refused:
            self.refused.append(request)

    def describe_nothing(self) -> str | None:
        """Return a message that the run sent no request, with the reasons, or None if it sent one."""
        if self.asked or not (self.expected or self.shared):
            return None
        reasons = list(self.refused)
        if self.shared:
            reasons.append(
                f"{count_text(self.shared, 'request')} came with the token of another run, by a client that several "
                "runs share: send `gateway.headers` with each request"
            )
        return f"this program sent no request to the run's gateway: {'; '.join(reasons) or 'no request arrived'}"
