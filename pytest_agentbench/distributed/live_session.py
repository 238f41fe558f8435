"""Answers of a live session to `agentbench sessions`, over all of its processes.

Requests are JSON objects: `{"do": "state"}`, `{"do": "cancel", "run": NAME}` and `{"do": "retune", "concurrency": N,
"max_cost": USD}`, one of both or both. An answer with `error` says why nothing was changed. `collection.operations`
answers for one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.engine.budget import Budget

_MOST_LISTED = 20
"""How many runs in flight an error names."""


@dataclass(frozen=True)
class LiveSession:
    """A session while it runs. `ask` returns the answers of its processes that make runs.

    `facts` are plain facts about it. `stopping` is why it starts no more runs, None if it does. `book` looks at the
    budget's limits again. `warn` adds a warning to the report.
    """

    facts: Mapping[str, Any]
    budget: Budget
    stopping: str | None
    ask: Callable[[dict[str, Any]], list[dict[str, Any]]]
    book: Callable[[], None]
    warn: Callable[[str], None]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        match request.get("do"):
            case "state":
                return self._describe()
            case "cancel":
                return self._cancel(str(request.get("run")))
            case "retune":
                return self._retune(request.get("concurrency"), request.get("max_cost"))
        return {"error": f"unknown request {request.get('do')!r}"}

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
            return {"error": f"found {len(matches)} runs in flight {name!r}, expected one; give its node id: {listed}"}
        return {"error": f"found no run {name!r} in flight; in flight are: {listed}"}

    def _retune(self, concurrency: object, max_cost: object) -> dict[str, Any]:
        if self.stopping is not None:
            reason = f"the session starts no more runs: {self.stopping}"
            return {"error": f"{reason}; start it again with other limits: stored runs are reused"}
        if concurrency is not None and not (isinstance(concurrency, int) and concurrency >= 1):
            return {"error": f"concurrency: found {concurrency!r}, expected a whole number of at least 1"}
        if max_cost is not None and not (isinstance(max_cost, int | float) and max_cost >= 0):
            return {"error": f"max_cost: found {max_cost!r}, expected an amount in USD"}
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
