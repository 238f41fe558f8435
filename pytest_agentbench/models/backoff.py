"""How long to wait before a request is repeated."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, in seconds: `first`, doubled each time up to `longest`.

    An endpoint's own Retry-After is honoured up to `longest_retry_after`.
    """

    first: float = 0.5
    longest: float = 30.0
    longest_retry_after: float = 120.0

    def seconds(self, attempt: int, retry_after: float | None = None) -> float:
        """The wait after attempt number `attempt` (from 1) failed."""
        jitter = random.random()
        if retry_after is not None:  # never earlier than asked, and not all at the same moment
            return min(max(retry_after, 0.0), self.longest_retry_after) + jitter * self.first
        ceiling = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return ceiling * (0.5 + jitter / 2)


def retry_after_seconds(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """What `retry-after-ms` or `Retry-After` (seconds or an HTTP date, RFC 9110 section 10.2.3) asks for.

    None where there is neither or it cannot be read. `now` is a Unix time, for dates.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(date.timestamp() - (time.time() if now is None else now), 0.0)
    except (ValueError, OverflowError, OSError):
        return None
