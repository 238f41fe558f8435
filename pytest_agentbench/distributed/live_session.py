"""Answers of a live session to `agentbench sessions`, over all of its processes.

Requests are `{"do": "state"}`, `{"do": "cancel", "run": NAME}`, `{"do": "drain"}` and `{"do": "retune",
"concurrency": N, "max_cost": USD}`, one of both or both. RequestRefused says why nothing was changed.
`collection.operations` answers for one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.distributed.control_socket import RequestRefused
from pytest_agentbench.engine.budget import Budget

DRAINED = "ended by the user (agentbench sessions drain)"
"""The reason of runs that were not started because the user drained the session."""

_MOST_LISTED = 20
"""How many runs in flight an error names."""
_MOST_TIMES = 4
"""How many times the concurrency of the start a session may be given."""
_FIELDS = {"state": frozenset(), "cancel": {"run"}, "drain": frozenset(), "retune": {"concurrency", "max_cost"}}
"""Fields of requests by what they ask for, without `do`."""


@dataclass(frozen=True)
class LiveSession:
    """A session while it runs. `ask` returns the answers of its processes that make runs.

    `facts` are plain facts about it. `stopping` is why it starts no more runs, None if it does; `drain` sets it.
    `book` looks at the budget's limits again. `warn` adds a warning to the report. `concurrency` and `max_cost` are the
    limits that the session began with: nobody may spend more by the socket than its command allows.
    """

    facts: Mapping[str, Any]
    budget: Budget
    stopping: str | None
    ask: Callable[[dict[str, Any]], list[dict[str, Any]]]
    book: Callable[[], None]
    drain: Callable[[str], None]
    warn: Callable[[str], None]
    concurrency: int
    max_cost: float | None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises RequestRefused."""
        command = request.get("do")
        if not isinstance(command, str) or command not in _FIELDS:
            raise RequestRefused("unknown_command", f"do: found {command!r}, expected {', '.join(_FIELDS)}")
        if unknown := request.keys() - {"do"} - _FIELDS[command]:
            raise RequestRefused(
                "bad_request", f"{command}: found {', '.join(sorted(unknown))}, which it does not have"
            )
        if command == "cancel":
            return self._cancel(str(request.get("run")))
        if command == "drain":
            self._require_start()
            self.drain(DRAINED)
            return {}
        if command == "retune":
            return self._retune(request.get("concurrency"), request.get("max_cost"))
        return self._describe()

    def _require_start(self) -> None:
        """Raise RequestRefused if the session starts no more runs."""
        if self.stopping is not None:
            reason = f"the session starts no more runs: {self.stopping}"
            raise RequestRefused("too_late", f"{reason}; start it again with other limits: stored runs are reused")

    def _describe(self) -> dict[str, Any]:
        processes = self.ask({"do": "state"})
        return {
            **self.facts,
            "ended": sum(each["ended"] for each in processes),
            "in_flight": [run for each in processes for run in each["runs"]],
            "spent_usd": None if self.budget.unknown or self.budget.unsettled else self.budget.spent,
            "at_least": {"spent_usd": self.budget.spent},
            "limits": {
                "concurrency": max((each["concurrency"] for each in processes), default=0),
                "max_cost": self.budget.max_cost,
            },
            "stopping": self.stopping,
        }

    def _cancel(self, name: str) -> dict[str, Any]:
        running = [run["nodeid"] for each in self.ask({"do": "state"}) for run in each["runs"]]
        matches = [nodeid for nodeid in running if nodeid == name] or [
            nodeid for nodeid in running if _is_short_name(name, nodeid)
        ]
        if len(matches) == 1:
            self.ask({"do": "cancel", "run": matches[0]})
            return {"cancelled": matches[0]}
        listed = ", ".join((matches or running)[:_MOST_LISTED]) or "none"
        if matches:
            found = f"found {len(matches)} runs in flight {name!r}"
            raise RequestRefused("ambiguous", f"{found}, expected one; give its node id: {listed}")
        raise RequestRefused("not_found", f"found no run {name!r} in flight; in flight are: {listed}")

    def _retune(self, concurrency: object, max_cost: object) -> dict[str, Any]:
        self._require_start()
        most = _MOST_TIMES * self.concurrency
        if concurrency is not None and not (isinstance(concurrency, int) and concurrency >= 1):
            raise RequestRefused(
                "bad_request", f"concurrency: found {concurrency!r}, expected a whole number from 1 on"
            )
        if concurrency is not None and concurrency > most:
            reason = f"expected {most:,} at most, {_MOST_TIMES} times the number that the session began with"
            raise RequestRefused("not_permitted", f"concurrency: found {concurrency:,}, {reason}")
        if max_cost is not None and not (isinstance(max_cost, int | float) and max_cost >= 0):
            raise RequestRefused("bad_request", f"max_cost: found {max_cost!r}, expected an amount in USD")
        if max_cost is not None and self.max_cost is not None and max_cost > self.max_cost:
            reason = f"expected {self.max_cost:.4f} USD at most, the limit that the session began with"
            raise RequestRefused("not_permitted", f"max_cost: found {max_cost:.4f}, {reason}")
        processes = self.ask({"do": "retune", "concurrency": concurrency, "max_cost": max_cost})
        warnings = list(dict.fromkeys(text for each in processes for text in each["warnings"]))
        if concurrency is not None:
            warnings.insert(0, f"the number of runs in flight was changed to {concurrency} during the session")
        if max_cost is not None:
            self.budget.max_cost = float(max_cost)
            warnings.append(f"the limit of cost was changed to {max_cost:.4f} USD during the session")
            self.book()
        for text in warnings:
            self.warn(text)
        return {"warnings": warnings}


def _is_short_name(name: str, nodeid: str) -> bool:
    """Return whether the name is the node id's part after `::`, or its case id."""
    item = nodeid.rpartition("::")[2]
    return name in (item, item.partition("[")[0])
