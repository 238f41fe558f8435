"""The session's standard streams, which agents in the same process can reach: what one closes breaks its own run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

_NUMBERS = (1, 2)


class Streams:
    """Keeps `sys.stdout` and `sys.stderr`, pytest's capturing ones too, open for all but pytest's own thread."""

    def __init__(self) -> None:
        self._guarded: dict[int, Any] = {}
        self._saved = {number: os.dup(number) for number in _NUMBERS if _is_open(number)}

    def guard(self) -> None:
        """Has calls of `close` and `detach` refused, in the thread of the run that makes them."""
        for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
            stream = getattr(sys, name)
            if stream is None or id(stream) in self._guarded:
                continue
            buffer = getattr(stream, "buffer", None)
            self._guarded[id(stream)] = stream
            for each in (stream, buffer, getattr(buffer, "raw", None)):
                for method in ("close", "detach"):
                    _refuse_elsewhere(each, method, f"sys.{name.strip('_')}")

    def mend(self) -> None:
        """Opens again what an agent has closed by its number, before something is written there."""
        for number, saved in self._saved.items():
            if not _is_open(number):
                os.dup2(saved, number)

    def close(self) -> None:
        """Lets go of the streams."""
        self.mend()
        for saved in self._saved.values():
            os.close(saved)
        for stream in self._guarded.values():
            buffer = getattr(stream, "buffer", None) if not stream.closed else None
            for each in (stream, buffer, getattr(buffer, "raw", None)):
                for method in ("close", "detach"):
                    getattr(each, "__dict__", {}).pop(method, None)


def _refuse_elsewhere(stream: Any, method: str, name: str) -> None:
    """Replaces a method of one stream, where it has it and lets it be replaced, by one for the main thread alone."""
    call: Callable[..., Any] | None = getattr(stream, method, None)
    if call is None or not hasattr(stream, "__dict__"):
        return

    def guarded(*args: Any) -> Any:
        return call(*args) if threading.current_thread() is threading.main_thread() else _refuse(f"{name}.{method}()")

    setattr(stream, method, guarded)


def _refuse(call: str) -> NoReturn:
    raise RuntimeError(f"{call}: the stream is the whole session's, and stays as it is")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
