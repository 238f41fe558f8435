"""Answers of a live session to `agentbench sessions`, over all of its processes.

Requests have `do` and the fields in `_FIELDS`; all but `reason` change or select something. RequestRefused says why
nothing was changed. `collection.operations` answers for one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pytest_agentbench.distributed.control_socket import RequestRefused
from pytest_agentbench.engine.budget import Budget
from pytest_agentbench.reports.run_names import describe_mismatch, match_runs
from pytest_agentbench.terminal_text import sendable

DRAINED = "ended by the user (agentbench sessions drain)"
"""The reason of runs that were not started because the user drained the session."""

_MOST_TIMES = 4
"""How many times the concurrency of the start a session may be given."""
_MOST_REASON = 500
"""Characters."""
_STATES = ("running", "done", "error")
_ROW_FIELDS = ("nodeid", "outcome", "final_score", "duration_seconds", "cost_usd", "reused")
_MOST_ROWS = 1000
"""How many runs one answer lists at most."""
_FIELDS: Mapping[str, frozenset[str]] = {
    "state": frozenset(),
    "list": frozenset({"state", "limit"}),
    "show": frozenset({"run", "content"}),
    "follow": frozenset({"from"}),
    "cancel": frozenset({"run", "all", "reason"}),
    "pause": frozenset({"reason"}),
    "resume": frozenset({"reason"}),
    "drain": frozenset({"reason"}),
    "retune": frozenset({"concurrency", "max_cost", "reason"}),
}
"""Fields of requests by what they ask for, without `do`."""


@dataclass
class LiveSession:
    """A session while it runs. `ask` returns the answers of its processes that make runs.

    `facts` are plain facts about it. `stopping` is why it starts no more runs, None if it does; `drain` sets it.
    `held` is True while it is paused. `rows` returns the rows of reported runs, in order. `book` looks at the budget's
    limits again. `warn` adds a warning to the report. `concurrency` and `max_cost` are the limits that the session
    began with: nobody may spend more by the socket than its command allows.

    An answer sets `held`, and `changed` if it changed the session: what was done, to which runs, and why.
    """

    facts: Mapping[str, Any]
    budget: Budget
    stopping: str | None
    held: bool
    ask: Callable[[dict[str, Any]], list[dict[str, Any]]]
    rows: Callable[[], Iterable[Mapping[str, Any]]]
    book: Callable[[], None]
    drain: Callable[[str], None]
    warn: Callable[[str], None]
    concurrency: int
    max_cost: float | None
    changed: dict[str, Any] | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises RequestRefused."""
        command = request.get("do")
        if not isinstance(command, str) or command not in _FIELDS:
            raise RequestRefused("unknown_command", f"do: found {command!r}, expected {', '.join(_FIELDS)}")
        if unknown := request.keys() - {"do"} - _FIELDS[command]:
            raise RequestRefused(
                "bad_request", f"{command}: found {', '.join(sorted(unknown))}, which it does not have"
            )
        reason = request.get("reason")
        if reason is not None and not (isinstance(reason, str) and len(reason) <= _MOST_REASON):
            raise RequestRefused("bad_request", f"reason: expected a text of at most {_MOST_REASON} characters")
        answer: dict[str, Any] = getattr(self, f"_{command}")(request)
        if self.changed is not None and reason is not None:
            self.changed["reason"] = sendable(reason)
        return answer

    def _require_start(self) -> None:
        """Raise RequestRefused if the session starts no more runs."""
        if self.stopping is not None:
            reason = f"the session starts no more runs: {self.stopping}"
            raise RequestRefused("too_late", f"{reason}; start it again with other limits: stored runs are reused")

    def _state(self, request: Mapping[str, Any]) -> dict[str, Any]:
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
            "paused": self.held,
        }

    def _list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reported runs and those in flight, the newest last."""
        state, limit = request.get("state"), request.get("limit", 100)
        if state is not None and state not in _STATES:
            raise RequestRefused("bad_request", f"state: found {state!r}, expected {', '.join(_STATES)}")
        if not isinstance(limit, int) or not 1 <= limit <= _MOST_ROWS:
            raise RequestRefused("bad_request", f"limit: found {limit!r}, expected a number from 1 to {_MOST_ROWS}")
        live = self._state({})
        running = [{"nodeid": run["nodeid"], "state": "running"} for run in live["in_flight"]]
        ended = [describe_row(row) for row in self.rows()]
        counts = Counter(run["state"] for run in [*ended, *running])
        runs = [run for run in [*ended, *running] if state in (None, run["state"])]
        return {
            "as_of": datetime.now(UTC).isoformat(),
            "counts": {"planned": live["runs"], **{name: counts[name] for name in _STATES}},
            **{name: live[name] for name in ("spent_usd", "at_least", "limits", "stopping", "paused")},
            "runs": runs[-limit:],
            "truncated": len(runs) > limit,
        }

    def _show(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of one run in flight; with `content` also the end of its conversation."""
        nodeid = self._find_running(str(request.get("run")))
        answers = self.ask({"do": "show", "run": nodeid, "content": request.get("content") is True})
        found: dict[str, Any] = next((answer for answer in answers if answer), {})
        return {"nodeid": nodeid, **found}

    def _follow(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rows of reported runs from the number `from` on, and the number to ask for next."""
        first = request.get("from", 0)
        if not isinstance(first, int) or first < 0:
            raise RequestRefused("bad_request", f"from: found {first!r}, expected a number from 0 on")
        records = [describe_row(row) for row in islice(self.rows(), first, first + _MOST_ROWS)]
        live = self._state({})
        progress = {name: live[name] for name in ("ended", "runs", "spent_usd", "at_least", "stopping", "paused")}
        return {"records": records, "next": first + len(records), **progress}

    def _find_running(self, name: str) -> str:
        """Return the node id of a run in flight by its short name. Raises RequestRefused."""
        running: list[str] = [run["nodeid"] for each in self.ask({"do": "state"}) for run in each["runs"]]
        matches = match_runs(name, dict.fromkeys(running, ""))
        if len(matches) == 1:
            return matches[0]
        problem = f"in flight: {describe_mismatch(name, matches, running)}"
        raise RequestRefused("ambiguous" if matches else "not_found", problem)

    def _cancel(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, cancels_all = request.get("run"), request.get("all") is True
        if cancels_all == (name is not None):
            raise RequestRefused("bad_request", "cancel: expected `run` or `all: true`")
        if cancels_all:
            nodeids = [run["nodeid"] for each in self.ask({"do": "state"}) for run in each["runs"]]
        else:
            nodeids = [self._find_running(str(name))]
        for nodeid in nodeids:
            self.ask({"do": "cancel", "run": nodeid})
        self.changed = {"do": "cancel", "runs": nodeids}
        return {"cancelled": nodeids}

    def _pause(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._require_start()
        if self.held:
            raise RequestRefused("too_late", "the session is paused already")
        self._hold(held=True)
        self.warn("the session was paused by the user (agentbench sessions pause)")
        return {}

    def _resume(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if not self.held:
            raise RequestRefused("too_late", "the session is not paused")
        self._hold(held=False)
        self.warn("the session was resumed by the user (agentbench sessions resume)")
        return {}

    def _hold(self, *, held: bool) -> None:
        command = "pause" if held else "resume"
        self.ask({"do": command})
        self.held, self.changed = held, {"do": command}

    def _drain(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._require_start()
        self.drain(DRAINED)
        self.held, self.changed = False, {"do": "drain"}
        return {}

    def _retune(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._require_start()
        concurrency, max_cost = request.get("concurrency"), request.get("max_cost")
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
        self.changed = {"do": "retune", "concurrency": concurrency, "max_cost": max_cost}
        return {"warnings": warnings}


def describe_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a reported run, without texts of an agent."""
    state = "error" if row["outcome"] == "error" else "done"
    return {"state": state, **{name: row[name] for name in _ROW_FIELDS}}
