"""Logs of a run stay with its own item, whichever item pytest is on meanwhile. Prints cannot be told apart."""

from __future__ import annotations

import contextvars
import logging

RUN_LOGS: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("agentbench_run_logs", default=None)
_FORMAT = logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s")
_MOST = 200


class RunLogHandler(logging.Handler):
    """Keeps the first records of each run, on the root logger while a session with cases runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes to the run that the record's thread or task belongs to, if any."""
        lines = RUN_LOGS.get()
        if lines is not None and len(lines) < _MOST:
            lines.append(_FORMAT.format(record))


def outside_runs(record: logging.LogRecord) -> bool:
    """A filter for pytest's own handlers: they show what did not come from a run ahead."""
    return RUN_LOGS.get() is None


def filter_capture_handlers() -> None:
    """Puts the filter on pytest's capturing handlers, which come and go with the phases of an item."""
    for handler in logging.getLogger().handlers:
        if type(handler).__module__ == "_pytest.logging" and outside_runs not in handler.filters:
            handler.addFilter(outside_runs)
