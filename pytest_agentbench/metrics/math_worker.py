"""The program that compares expressions for `math_equal`, away from the session: sympy may hang or take all memory.

After a first line "ready", it answers each line `[ground truth, prediction]` by a line `{"equal": bool}` or
`{"unread": true}` (the ground truth is no expression) or `{"too_much": reason}`. A comparison that takes more CPU than
the argument's seconds ends the program, and so does the end of its input. It imports nothing of the package.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_MEMORY = 2 * 1024**3
_DELIMITED = re.compile(r"\$|\\[(\[]|\\boxed")
_WORD = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{2,}")
_FUNCTIONS = frozenset(("sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt", "pi", "min", "max"))


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


def _compare(ground_truth: str, prediction: str) -> dict[str, Any]:
    from math_verify import verify

    try:
        expected, found = _expressions(ground_truth), _expressions(prediction)
        if not expected:
            return {"unread": True}
        return {"equal": verify(expected, found, timeout_seconds=None)}
    except (MemoryError, RecursionError) as error:
        return {"too_much": type(error).__name__}


def _expressions(text: str) -> list[Any]:
    """Return what math_verify finds in the text; a formula without $ is put between them."""
    from math_verify import parse

    words = set(_WORD.findall(text)) - _FUNCTIONS
    is_prose = len(words) > 1 or any(len(word) > 2 for word in words)
    if is_prose or _DELIMITED.search(text):
        spellings = [text]
    elif re.search(r"[a-zA-Z\\]", text):
        spellings = [f"${_latex(text)}$", text]
    else:
        spellings = [text, f"${text}$"]
    found = (parse(each, parsing_timeout=None) for each in spellings)
    return next(filter(None, found), [])


def _latex(text: str) -> str:
    """Return a bare formula with what LaTeX would take for products of letters: pi, 1e3."""
    text = re.sub(r"(?<![\\a-zA-Z])pi(?![a-zA-Z])", r"\\pi", text)
    return re.sub(r"(?<=\d)[eE]([-+]?\d+)", r"\\times 10^{\1}", text)


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Ends the program where what is inside takes more CPU; where signals are not to be had, the session ends it."""
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
