"""Where things lie below the output folder: names that every file system bears, and folders named by fingerprint."""

from __future__ import annotations

import hashlib
import re

RUNS = "runs"
EVALUATIONS = "evaluations"
SUITE = "suit_"
"""What the folder of each suite begins with."""

FINGERPRINT_DIGITS = (8, 10, 12)
"""How many hex digits of a fingerprint a folder's name holds: more only where fewer name two fingerprints."""

_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9_-])?")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")


def slug(name: str) -> str:
    """`name` as a folder name: itself where that is safe, else what is safe of it with 8 digits of its hash.

    Safe are lower-case letters, digits and `_ - .` (not first; no dot last), at most 100 characters, so that no two
    names meet on a file system that ignores case.
    """
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _UNSAFE.sub("_", name.lower())[:60].strip("._-")
    return f"{readable}-{digest}" if readable else digest


def suite_folder(suite_id: str | None) -> str:
    """The folder of a suite; `suit_default` where none is named."""
    return f"{SUITE}{slug(suite_id) if suite_id is not None else 'default'}"
