"""Names of the files and folders in an output folder, and errors of one that cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.errors import ConfigError

RUNS = "runs"
EVALUATIONS = "evaluations"
JUDGEMENTS = "judgements"
"""The folder of the votes of metrics that ask a model."""
DATABASE = "store.sqlite"
"""The file of all documents but the large ones."""
LOCKS = ".locks"
"""The folder of the files that sessions lock."""
RUN_LEVELS = 4
"""Folders below `runs`: suite, run profile, model, case."""
EVALUATION_LEVELS = 5
"""Folders below `evaluations`: suite, run profile, evaluation profile, model, case."""
_FOLDER_LEVELS = {
    RUNS: RUN_LEVELS,
    EVALUATIONS: EVALUATION_LEVELS,
    JUDGEMENTS: 1,
    LOCKS: 0,
    ".journals": 0,  # of the room `reports`
    ".agentbench": 1,  # of `models`
    "mcp": 1,  # of `tools`
}
"""Depth of the folders that this package makes below an output folder."""
SUITE = "suit_"
"""Beginning of the names of suites' folders."""

PROFILE_FILE = ".fingerprint.json"
"""File in a profile's folder with its full fingerprint and settings. No slug begins with a dot."""

FINGERPRINT_DIGITS = (8, 10, 12)
"""Numbers of hex digits in a folder's name. More are used only if two fingerprints begin alike."""


def suite_folder(suite_id: str | None) -> str:
    """Return the folder of a suite; `suit_default` for None."""
    if suite_id is None:
        return f"{SUITE}default"
    return f"{SUITE}{slug(suite_id)}"


class DamagedError(OSError):
    """The database is damaged. `strerror` is SQLite's message, `rows` are the rows read before the damage."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, reason)
        self.rows: list[tuple[Any, ...]] = []


def explain_unwritable(folder: str, error: OSError) -> str:
    """Return the message for an output folder that cannot be written to."""
    if isinstance(error, DamagedError):
        advice = f"save the readable documents with `agentbench store repair --output {folder}`"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "allow more open files (ulimit -n), or ask for less at once with --agentbench-concurrency"
    else:
        advice = "make room or give write permission there, or name another folder with --agentbench-output"
    return f"cannot write to {folder}: {error.strerror or error}. Earlier results are kept; {advice}"


def refuse_links(output: Path) -> None:
    """Raise ConfigError if one of the store's folders below an output folder is a link, which may lead anywhere.

    The output folder itself may be a link. Links below a case's folder are refused when they are met.
    """
    for name, levels in _FOLDER_LEVELS.items():
        if (link := _first_link(str(output), name, levels)) is not None:
            raise ConfigError(
                f"{link}: is a link to another folder, expected a folder: nothing below an output folder is read, "
                f"written or removed through links. Remove it; to keep results elsewhere, name that folder "
                f"(--agentbench-output DIR), or make {output} itself the link"
            )


def _first_link(folder: str, name: str, levels: int) -> str | None:
    path = f"{folder}/{name}"
    if os.path.islink(path):
        return path
    if levels == 0:
        return None
    try:
        with os.scandir(path) as entries:
            folders = [entry for entry in entries if entry.is_dir()]
    except OSError:
        return None  # the reader of the folder reports the error
    for entry in folders:
        if entry.is_symlink():
            return entry.path
        if levels > 1 and (link := _first_link(path, entry.name, levels - 1)) is not None:
            return link
    return None
