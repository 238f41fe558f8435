"""What is wrong with the lines of a file of records, as people are told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from pytest_agentbench.errors import ConfigError

_MOST_REPORTED = 20


def field_problem(error: Mapping[str, object]) -> str:
    """One of pydantic's errors in a sentence: the field, what was found, what is expected."""
    loc = error["loc"]
    where = ".".join(map(str, loc)) if isinstance(loc, tuple) and loc else ""
    if error["type"] == "missing":
        return f"{where}: found nothing, expected a value"
    found = json.dumps(error["input"], ensure_ascii=False, default=str)
    message = str(error["msg"])
    said = f"found {found if len(found) <= 60 else f'{found[:57]}...'}; {message[:1].lower()}{message[1:]}"
    return f"{where}: {said}" if where else said


def refuse(path: Path, problems: Sequence[str]) -> NoReturn:
    """Raises ConfigError with the first 20 problems of a file, `file:line:column: ...` each, and how many more."""
    more = [f"{path}: and {len(problems) - _MOST_REPORTED} more problems"] * (len(problems) > _MOST_REPORTED)
    raise ConfigError("\n".join([*problems[:_MOST_REPORTED], *more]))
