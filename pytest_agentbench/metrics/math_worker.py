"""The program that compares expressions for `math_equal`, away from the session: sympy may hang or take all memory.

After a first line "ready", it answers each line `[ground truth, prediction, is the prediction prose]` by a line
`{"equal": bool}` or `{"unread": true}` (the ground truth is no expression) or `{"too_much": reason}`, each with the
`seconds` of CPU that it took. A comparison that takes more CPU than
the argument's seconds ends the program, and so does the end of its input. It imports nothing of the package.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

_MEMORY = 2 * 1024**3


def main() -> None:
    """Answers requests until there are no more."""
    seconds = float(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what libraries print is no reply
    _bound_memory()
    logging.disable()
    import math_verify  # noqa: F401  now, for a comparison is timed

    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        with _bounded(seconds):
            reply = _compare(*json.loads(line))
        print(json.dumps(reply), file=replies, flush=True)


def _compare(ground_truth: str, prediction: str, prose: bool) -> dict[str, Any]:
    from math_verify import parse, verify

    begun = time.process_time()
    try:
        expected = _expressions(ground_truth)
        actual = parse(prediction, parsing_timeout=None) if prose else _expressions(prediction)
        reply: dict[str, Any] = {"unread": True}
        if expected:
            reply = {"equal": verify(expected, actual, timeout_seconds=None)}
    except (MemoryError, RecursionError) as error:
        reply = {"too_much": type(error).__name__}
    return {**reply, "seconds": time.process_time() - begun}


@lru_cache(200)
def _expressions(text: str) -> list[Any]:
    """Return the expressions that math_verify finds in a formula, which is put between $."""
    from math_verify import parse

    expressions: list[Any] = parse(f"${_latex(text)}$", parsing_timeout=None) or parse(text, parsing_timeout=None)
    return expressions


def _latex(text: str) -> str:
    """Return a bare formula as LaTeX reads it, where letters are products and % begins a comment: pi, x**10, 1e3."""
    text = re.sub(r"(?<![\\a-zA-Z])(pi|sin|cos|tan|cot|sec|csc|log|ln|exp)(?![a-zA-Z])", r"\\\1", text).replace(
        "**", "^"
    )
    text = re.sub(r"\^ ?(?:\(([^()]*)\)|(-?\d{2,}|-\d))", lambda match: f"^{{{match[1] or match[2]}}}", text)
    text = re.sub(r"(?<!\\)%", r"\\%", text)
    return re.sub(r"(?<=\d)[eE]([-+]?\d+)", r"\\times 10^{\1}", text)


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Exit the program if the block takes more CPU; without signals (Windows) the session kills it."""
    if sys.platform == "win32":
        yield
        return
    import signal

    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def _bound_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, most))


if __name__ == "__main__":
    main()
