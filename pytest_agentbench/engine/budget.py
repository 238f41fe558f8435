"""End a session early: a budget that is spent, and signals. Light: xdist sessions without cases import it too."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.records.run import Usage


Part = str
"""The purpose of a payment: `run`, the agent's run; `judge`, judges and metrics that ask models; or the role of a
further model of a run.

`batch` is not spent yet: the expected cost of requests that wait for a batch, booked again as negative when they end.
"""

_ABSURD = 1e100

Estimate = tuple[int, float | None, int]
"""Requests that may be billed and returned no usage: their number, USD (None: the model has no price) and tokens."""
Spending = tuple[float | None, int | None] | tuple[float | None, int | None, Estimate]
"""USD and tokens of one run or judgement, None if unknown; plain, so that it can be sent between processes.

If some requests returned no usage, USD and tokens are those of the others, and an estimate follows.
"""


def spending(usage: Usage) -> Spending:
    """Return the USD and tokens of a usage: input and output tokens together."""
    if (part := usage.unsettled) is not None:
        cost, *counts = usage.known
        tokens = [count for count in counts if count is not None]
        estimate = part.requests, _possible(part.estimated_cost_usd), max(0, part.estimated_tokens)
        return _possible(cost), sum(tokens) if tokens else None, estimate
    total = usage.total_tokens
    if usage.input_tokens is not None and usage.output_tokens is not None:
        total = usage.input_tokens + usage.output_tokens
    if total is not None and total < 0:
        total = None
    return _possible(usage.cost_usd), total


def _possible(cost: float | None) -> float | None:
    if cost is not None and 0 <= cost < _ABSURD:
        return cost
    return None


def over_budget(max_cost: float | None, max_tokens: int | None, usage: Usage) -> str | None:
    """Return why a run that has used so much may send no further request, None if it may.

    Usage of other runs does not count, so that runs do not cut each other off.
    """
    part = usage.unsettled
    if part is not None and part.given_up and (max_cost is not None or max_tokens is not None):
        requests = count_text(part.given_up, "request")
        return f"the agent hung up on {requests} whose cost is unknown, and the session has a limit"
    if part is None and not usage.total_tokens and not usage.cost_usd:
        return None
    return Budget(max_cost, max_tokens).book("run", [spending(usage)])


@dataclass(eq=False, repr=False)
class Budget:
    """Adds up the session's payments. A limit (USD, tokens) of None does not apply. Safe from any thread.

    `tokens` are the known tokens; `unknown_tokens` counts the runs and judgements with unknown tokens. `foreseen` is
    the USD of requests that wait for a batch. `unsettled` requests may be billed and returned no usage; the limits
    count `estimated_usd` and `estimated_tokens` for them.
    """

    max_cost: float | None = None
    max_tokens: int | None = None
    tokens: int = 0
    unknown_tokens: int = 0
    foreseen: float = 0.0
    unsettled: int = 0
    unpriced: int = 0
    estimated_usd: float = 0.0
    estimated_tokens: int = 0
    _costs: dict[Part, float] = field(default_factory=lambda: {"run": 0.0, "judge": 0.0})
    _unknown: Counter[Part] = field(default_factory=Counter)
    _unsettled: Counter[Part] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def book(self, part: Part, spendings: Iterable[Spending]) -> str | None:
        """Add them. Returns the reason to start nothing more, once a limit is reached."""
        with self._lock:
            for cost, tokens, *estimate in spendings:
                if part == "batch":
                    self.foreseen += cost or 0.0
                    continue
                self._costs[part] = self._costs.get(part, 0.0) + (cost or 0.0)
                self.tokens += tokens or 0
                if estimate:
                    self._book_estimate(part, *estimate[0])
                else:
                    self._unknown[part] += cost is None
                    self.unknown_tokens += tokens is None
            return self._used_up()

    def _book_estimate(self, part: Part, requests: int, cost: float | None, tokens: int) -> None:
        self.unsettled += requests
        self._unsettled[part] += requests
        if cost is None:
            self.unpriced += requests
        self.estimated_usd += cost or 0.0
        self.estimated_tokens += tokens

    def _used_up(self) -> str | None:
        if self.max_cost is not None and self.spent + self.estimated_usd + self.foreseen >= self.max_cost:
            also = ""
            if self.estimated_usd > 0:
                also = f" and {self.estimated_usd:.4f} estimated"
            if self.foreseen > 0:
                also += f" and {self.foreseen:.4f} foreseen for batches"
            return f"the budget is used up: {self.spent:.4f}{also} of {self.max_cost:.4f} USD (--agentbench-max-cost)"
        if self.max_tokens is not None and self.tokens + self.estimated_tokens >= self.max_tokens:
            also = f" and {self.estimated_tokens} estimated" if self.estimated_tokens else ""
            return f"the budget is used up: {self.tokens}{also} of {self.max_tokens} tokens (--agentbench-max-tokens)"
        return None

    @property
    def spent(self) -> float:
        """Return the known USD of all parts."""
        return sum(self._costs.values())

    @property
    def unknown(self) -> int:
        """Return the number of runs and judgements with unknown cost."""
        return sum(self._unknown.values())

    @property
    def spent_usd(self) -> dict[str, float | None]:
        """Return USD by part, None for a part with unknown cost."""
        return {
            part: None if self._unknown[part] or self._unsettled[part] else cost for part, cost in self._costs.items()
        }

    @property
    def known_usd(self) -> dict[str, float | None]:
        """USD by part that were certainly spent."""
        return dict(self._costs.items())

    def gaps(self) -> Iterator[str]:
        """Yield a sentence for each limit that could not count everything, or counted an estimate."""
        counted = []
        if self.max_cost is not None and self.unsettled > self.unpriced:
            counted.append(f"--agentbench-max-cost counted {self.estimated_usd:.4f} USD")
        if self.max_tokens is not None and self.unsettled:
            counted.append(f"--agentbench-max-tokens counted {self.estimated_tokens} tokens")
        if self.unsettled > self.unpriced or counted:
            requests = count_text(self.unsettled, "request")
            estimate = " and ".join(counted) or f"up to {self.estimated_usd:.4f} USD"
            yield (
                f"{requests} returned no usage and may have been billed: {estimate} by estimate; figures leave the "
                "estimate out and are shown as >="
            )
        if self.max_cost is not None and (unknown := self.unknown + self.unpriced):
            yield (
                f"the cost of {unknown} requests is unknown, so --agentbench-max-cost did not count them; "
                "give the model prices in models.yaml"
            )
        if self.max_tokens is not None and self.unknown_tokens:
            yield (
                f"the tokens of {self.unknown_tokens} requests are unknown, so --agentbench-max-tokens did not count "
                "them"
            )


_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """Raised where pytest's main thread is, so that everything ends which Ctrl-C ends."""


def is_signal(error: BaseException) -> bool:
    """Return whether Ctrl-C or a signal ends the session, and not a test or an option such as -x."""
    return type(error) in (KeyboardInterrupt, Ended)  # pytest's and xdist's own interruptions are derived classes


class Signals:
    """A plugin, in every process of the session, that ends the session by a signal. `tell` gets the signal's number.

    Without runs to end (`applies()` is False) a signal has its usual effect. A second signal always ends the process.
    """

    def __init__(self, tell: Callable[[int], None], applies: Callable[[], bool] = lambda: True) -> None:
        self._tell, self._applies = tell, applies
        self._session: pytest.Session | None = None
        self._number: int | None = None

    def install(self, session: pytest.Session) -> None:
        """Handle signals until the session is over, but none that are ignored (nohup) or have a handler already."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._session = session
        session.config.pluginmanager.register(self)
        session.config.add_cleanup(self._restore)
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Report the signal here and not in the handler, which may interrupt a thread that has the channel's lock."""
        if self._number is not None:
            self._tell(self._number)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Let a first signal that comes now keep nobody from writing the report."""
        self._session = None

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        if not self._applies():
            os.kill(os.getpid(), number)
            return
        if self._session is not None:
            self._number = number
            name = signal.Signals(number).name
            self._session.shouldstop = f"ended by {name}"  # should what is raised get lost, in a weakref's callback
            raise Ended(name)

    def _restore(self) -> None:
        for number in _SIGNALS:
            if signal.getsignal(number) == self._end:
                signal.signal(number, signal.SIG_DFL)
