"""The metric `math_equal`, and the process of `math_worker.py` that it asks."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import InfrastructureError, UnavailableError
from pytest_agentbench.metrics.math_answers import agree, have_same_words, plain_text, read_answer
from pytest_agentbench.metrics.passages import without_run_on
from pytest_agentbench.metrics.registry import Measured, metric, missing_extra
from pytest_agentbench.models.thoughts import drop_thoughts

_CPU_SECONDS = 5.0
"""Seconds of CPU that one request may take; the time of other processes does not count."""

_WALL_SECONDS = 30.0  # where signals are not to be had (Windows), this alone ends a request
_START_SECONDS = 120.0
_PROGRAM = Path(__file__).with_name("math_worker.py")
_INHERITED = ("PATH", "HOME", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "USERPROFILE", "APPDATA")
_LOG_BYTES = 2_000
_CPU_SPENT = -getattr(signal, "SIGPROF", 0) or None


def ask(request: Any) -> dict[str, Any] | None:
    """Return the reply to one request, or None if it took too long. Thread-safe: requests wait for each other.

    Raises InfrastructureError if the process died for another reason.
    """
    return _shared.ask(request)


class _Worker:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Any) -> dict[str, Any] | None:
        with self._lock:
            if self._process is None:
                self._start()
            line = self._exchange(json.dumps(request) + "\n", _WALL_SECONDS)
            if line is None:
                return None
            reply: dict[str, Any] = json.loads(line)
            return reply

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._log.close()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM), str(_CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="ascii",
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},  # no keys
            start_new_session=True,  # Ctrl-C is for the session
        )
        if self._exchange("", _START_SECONDS) is None:
            raise InfrastructureError(f"math_equal: its process did not start within {_START_SECONDS:g} seconds")

    def _exchange(self, line: str, seconds: float) -> str | None:
        """Send a line and return the next one that comes; None, and the process is gone, where that takes too long."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        expired = threading.Event()

        def end() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True  # an exit would wait for it
        timer.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:  # the pipe of a process that died
            answer = ""
        except BaseException:
            self.close()  # its reply would be taken for that to the next request
            raise
        finally:
            timer.cancel()
        if answer and not expired.is_set():
            return answer
        status, log = process.wait(), self._log_end()
        self.close()
        if answer or expired.is_set() or status == _CPU_SPENT:
            return answer or None
        raise InfrastructureError(f"math_equal: its process ended with status {status}: {log}")

    def _log_end(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LOG_BYTES))
        return self._log.read().decode("utf-8", "replace").strip() or "it printed nothing"


_shared = _Worker()
atexit.register(_shared.close)


def _forget() -> None:
    """Forget, in a forked process, pipes and a lock that are its parent's."""
    global _shared
    _shared = _Worker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


_LONGEST = 10_000


class _TooMuch(Exception):
    """The comparison was given up for this reason."""


@metric("math_equal", requires="math_verify", slow=True)
def math_equal(ground_truth: str, prediction: str) -> Measured:
    """Return 1 if both answer with the same mathematics (`read_answer`, `agree`), or with the same words, else 0.

    Single expressions are compared by math-verify, in another process with at most 2 GB of memory. A comparison that
    takes more than 5 seconds of CPU scores 0, with the `reason` in its details. Of a long text the last 10,000
    characters are read. A reply that continues with a further question is read up to there (`without_run_on`), and its
    details have `run_on`. Raises ValueError for an empty ground truth, UnavailableError without math-verify.
    """
    if (reason := missing_extra("math_equal")) is not None:
        raise UnavailableError(reason)
    gold = ground_truth.strip()[-_LONGEST:]
    reply, run_on = without_run_on(drop_thoughts(prediction))
    reply = reply.strip()[-_LONGEST:]
    details: dict[str, Any] = {"run_on": True} if run_on else {}
    if not gold:
        raise ValueError("math_equal: the ground truth is empty, it holds no mathematical expression")
    if gold == reply or have_same_words(gold, reply):
        return Measured(1.0, details)
    expected, actual = read_answer(gold), read_answer(reply)
    values = _Values()
    try:
        if expected.kind == "expression" and actual.kind == "text":
            same = values.equal(expected.text, reply, prose=True)
        else:
            same = agree(expected, actual, values.equal)
    except _TooMuch as too_much:
        return Measured(0.0, {**details, "reason": str(too_much)})
    return Measured(float(same), details)


class _Values:
    """Compares the values of expressions for one score: all comparisons together have _CPU_SECONDS."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def equal(self, expected: str, actual: str, *, prose: bool = False) -> bool:
        """Return whether both have the same value, of `prose` the one that it answers with. Raises _TooMuch."""
        if self._seconds > _CPU_SECONDS or (reply := ask([expected, actual, prose])) is None:
            raise _TooMuch(f"comparing took more than {_CPU_SECONDS:g} seconds of CPU")
        self._seconds += reply["seconds"]
        if "too_much" in reply:
            raise _TooMuch(f"comparing took too much memory ({reply['too_much']})")
        if "unread" in reply:
            return plain_text(expected).replace(" ", "") == plain_text(actual).replace(" ", "")
        return bool(reply["equal"])
