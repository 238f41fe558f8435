"""What a session may spend."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Adds up what runs and judges cost, in USD. `max_cost` None is no limit. Safe from any thread."""

    max_cost: float | None = None
    spent: float = 0.0
    unknown: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend(self, *costs: float | None) -> str | None:
        """Books costs (None: unknown, only counted). Returns the reason to stop once the limit is reached."""
        with self._lock:
            self.spent += sum(cost for cost in costs if cost is not None)
            self.unknown += sum(cost is None for cost in costs)
            if self.max_cost is None or self.spent < self.max_cost:
                return None
            return f"the budget is used up: {self.spent:.4f} of {self.max_cost:.4f} USD (--agentbench-max-cost)"
