"""Safe names of folders for any text, and checks of paths."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

_SAFE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9_-])?")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")


def slug(name: str) -> str:
    """Return `name` as a folder name: unchanged if it is safe, else its safe characters and 8 digits of its hash.

    Safe are lower-case letters, digits and `_ - .` (not first; no dot last), at most 100 characters, so that no two
    names collide on a file system that ignores case.
    """
    if _SAFE.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _UNSAFE.sub("_", name.lower())[:60].strip("._-")
    if readable:
        return f"{readable}-{digest}"
    return digest


def lies_below(folder: str, path: str) -> bool:
    """Return whether a path of others names something in the folder, after following links.

    Raises ValueError if the path is no file name.
    """
    parts = path.replace("\\", "/").split("/")
    if os.path.isabs(path) or os.path.splitdrive(path)[0] or ".." in parts:
        return False
    place = folder
    for part in parts:
        place = f"{place}/{part}"
        if os.path.islink(place):  # a folder of runs has none, and resolving each path of 10,000 takes a second
            return Path(os.path.realpath(f"{folder}/{path}")).is_relative_to(os.path.realpath(folder))
    return True


def make_folder(path: str) -> bool:
    """Make the folder `path`, with missing parents. Return False if it exists."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
    return True
