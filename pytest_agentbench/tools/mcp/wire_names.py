"""Names of tools as providers take them: `^[A-Za-z0-9_-]{1,64}$`, which has no `:`."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

WIRE_NAME_LENGTH = 64

_LEGAL = re.compile(rf"[A-Za-z0-9_-]{{1,{WIRE_NAME_LENGTH}}}")
_HASH_LENGTH = 8


def wire_names(tool_ids: Iterable[str]) -> dict[str, str]:
    """For each of the tools the name that a provider sees; no two have the same.

    A legal id is its own name. `Server:tool` becomes `Server__tool`; where more than that has to be changed, or another
    tool has that name already, a hash of the id is added.
    """
    ids = dict.fromkeys(tool_ids)
    names = {tool_id: tool_id for tool_id in ids if _LEGAL.fullmatch(tool_id)}
    wished = {tool_id: tool_id.replace(":", "__", 1) for tool_id in ids if tool_id not in names}
    wanted = Counter([*names, *wished.values()])
    taken = {*names, *wished.values()}
    for tool_id, wish in wished.items():
        names[tool_id] = wish if _LEGAL.fullmatch(wish) and wanted[wish] == 1 else _hashed(tool_id, wish, taken)
    return {tool_id: names[tool_id] for tool_id in ids}


def _hashed(tool_id: str, wish: str, taken: set[str]) -> str:
    """A legal name that nobody has; it is then taken."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", wish)[: WIRE_NAME_LENGTH - _HASH_LENGTH - 1]
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    found = next(
        name
        for start in range(len(digest) - _HASH_LENGTH)
        if (name := f"{stem}-{digest[start : start + _HASH_LENGTH]}") not in taken
    )
    taken.add(found)
    return found
