"""Questions of the controller to all workers, whose answers it waits for."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from pytest_agentbench.engine.limits import Line

_SECONDS = 5.0
"""Seconds to wait for answers. A worker answers in its own thread for messages, also while its pytest is busy."""


class Questions:
    """Sends questions and collects the answers, which `receive` gets in other threads. One question at a time."""

    def __init__(self) -> None:
        self._number = 0
        self._answers: dict[Line, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._retuned: dict[str, Any] = {}

    def ask(self, lines: Collection[Line], question: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers of the workers.

        Raises TimeoutError if one does not answer, and RuntimeError if one cannot.
        """
        with self._changed:
            self._number += 1
            self._answers.clear()
            if question["do"] == "retune":
                self._retuned |= {name: value for name, value in question.items() if value is not None}
            for line in lines:
                line.send(("ask", self._number, question))
            if not self._changed.wait_for(lambda: len(self._answers) >= len(lines), _SECONDS):
                raise TimeoutError(f"{len(lines) - len(self._answers)} of {len(lines)} workers do not answer")
            answers = [*self._answers.values()]
        if errors := [answer["error"] for answer in answers if "error" in answer]:
            raise RuntimeError(f"a worker cannot answer: {errors[0]}")
        return answers

    def receive(self, line: Line, number: int, answer: dict[str, Any]) -> None:
        """Take a worker's answer; one that comes too late is dropped."""
        with self._changed:
            if number == self._number:
                self._answers[line] = answer
                self._changed.notify_all()

    def repeat(self, line: Line) -> None:
        """Send the changed limits to a worker that took the place of one that crashed."""
        if self._retuned:
            line.send(("ask", 0, {"concurrency": None, "max_cost": None, **self._retuned}))
