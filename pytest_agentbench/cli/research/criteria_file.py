"""The file of criteria, to which calls add: it may have cost more than one of them, or be written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pytest_agentbench.bounded import read_file
from pytest_agentbench.cli.research.inputs import failed_row, label
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.records import QueryRow, RaceCriteria
from pytest_agentbench.research.files import rows_text, write_text
from pytest_agentbench.sources.research_rows import GoodRow, LostRow, prompt_key

ERROR = "criteria_error"


@dataclass(frozen=True, slots=True)
class CriteriaFile:
    """Its lines as they stand there, each with the key of its row's prompt, None where it has none.

    Lines that only say why there are no criteria are left out.
    """

    path: Path
    lines: tuple[tuple[str | None, str], ...]

    @classmethod
    def read(cls, path: Path) -> CriteriaFile:
        """A file that is not there has no lines. Raises ConfigError where it cannot be read, or is no JSONL."""
        try:
            text = read_file(path).decode("utf-8-sig")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise ConfigError(f"{path}:1:1: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            found = f"found text that is not UTF-8 (byte {error.start}); save it as UTF-8"
            raise ConfigError(f"{path}:1:1: {found}") from error
        if text.lstrip().startswith("["):
            raise ConfigError(f"{path}:1:1: found one JSON list, expected JSONL, to which rows can be added")
        return cls(path, tuple(_keyed(line) for line in text.split("\n") if line.strip() and not _failed(line)))

    def write(
        self,
        rows: Sequence[GoodRow[QueryRow] | LostRow],
        results: Sequence[RaceCriteria | AgentbenchError | None],
    ) -> list[str]:
        """Writes the rows' criteria in their order, then the lines of other queries; tells what a user should know.

        A line stays where there are no new criteria in its place. Raises UnwritableError.
        """
        known = {key: line for key, line in reversed(self.lines) if key is not None}
        written: list[str] = []
        placed: set[str] = set()
        replaced: list[str] = []
        for row, result in zip(rows, results, strict=True):
            key = prompt_key(row.value.prompt) if isinstance(row, GoodRow) else None
            there = known.get(key) if key is not None else None
            if isinstance(result, RaceCriteria) and (there is None or _said(there) != result):
                written.append(rows_text([result.model_dump()]))
                replaced += [label(row)] * (there is not None)
            elif there is not None:
                written.append(f"{there}\n")
            elif isinstance(result, AgentbenchError):
                written.append(rows_text([failed_row(row, ERROR, result)]))
            if key is not None and (there is not None or result is not None):
                placed.add(key)
        others = [f"{line}\n" for key, line in self.lines if key not in placed]
        write_text(self.path, "".join(written + others))
        told = [f"criteria that were there before are replaced: {', '.join(replaced)}"] * bool(replaced)
        return told + [f"{len(others)} rows of other queries stay"] * bool(others)


def _keyed(line: str) -> tuple[str | None, str]:
    row = _row(line)
    prompt = row.get("prompt") if isinstance(row, dict) else None
    return prompt_key(prompt) if isinstance(prompt, str) else None, line.rstrip("\r")


def _failed(line: str) -> bool:
    row = _row(line)
    return isinstance(row, dict) and ERROR in row


def _row(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _said(line: str) -> RaceCriteria | None:
    try:
        return RaceCriteria.model_validate_json(line)
    except ValidationError:
        return None
