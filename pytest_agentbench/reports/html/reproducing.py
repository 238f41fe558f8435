"""The command that makes one run of a session again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

_DECIDING = (
    *("profile", "suite", "run-profile", "evaluation-profile", "repetitions", "metric", "predictions", "cassettes"),
    *("output", "store"),
)
"""Options of this package that change what a run is, or where its files lie. The model is named for each run."""
_OF_PYTEST = ("-c", "--config-file", "--rootdir", "--confcutdir", "-o", "--override-ini")
_KEPT = {*(f"--agentbench-{name}" for name in _DECIDING), *_OF_PYTEST}


def deciding_options(command: Sequence[str]) -> str:
    """Of a session's arguments the options that a single run needs too, as a shell takes them."""
    return shlex.join(_kept(command))


def _kept(command: Sequence[str]) -> Iterator[str]:
    arguments = iter(command)
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name not in _KEPT:
            continue
        yield argument
        if not equals and (value := next(arguments, None)) is not None:
            yield value
