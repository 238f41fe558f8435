"""Labels by people: `human.jsonl` as `agentbench review` and the page of `agentbench watch` write it."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.human_agreement import Label

_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def require_plain(path: Path) -> None:
    """Raise ConfigError unless the path is a plain file of labels, or does not exist.

    A repository may contain a link to a file that the reader's shell runs, and labels would be appended to it.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        what = "a link" if path.is_symlink() else "no file"
        raise ConfigError(f"{path}: found {what}, expected a file of labels; name the file itself with -o PATH")


def find_user_name() -> str | None:
    """Return the user's name, or None for an id without a name, as in containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


def label_row(
    row: Mapping[str, Any],
    verdict: Literal["passed", "failed"],
    annotator: str,
    *,
    run_id: str | None = None,
    score: float | None = None,
    comment: str | None = None,
    blind: bool = True,
) -> Label:
    """Return the label of a row of report.json, given now. `run_id` is the run's if the row has none."""
    judged = row.get("judged") or []
    return Label(
        annotator=annotator,
        nodeid=row["nodeid"],
        run_id=row.get("run_id") or run_id,
        rubric=judged[0]["rubric"] if judged else None,
        judges={verdict["by"]: verdict["judge"] for verdict in judged},
        verdict=verdict,
        score=score,
        comment=comment,
        blind=blind,
        at=datetime.now(UTC),
    )


def append_label(path: Path, label: Label) -> None:
    """Append the label to the file, and return once it is on the disk. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_NOFOLLOW and O_NONBLOCK close the gap after `require_plain`: a link or a FIFO put there meanwhile.
        with os.fdopen(os.open(path, _APPEND, 0o666), "a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that somebody typed without its end
                    file.write(b"\n")
            file.write(label.line.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
