"""Find the run that a user names: one rule for all commands that take the name of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MOST_LISTED = 20
"""Maximum candidates in an error."""


def match_runs(name: str, runs: Mapping[str, str]) -> list[str]:
    """Return the node ids that a name matches. `runs` maps node ids to case ids, "" if unknown.

    The first rule with a match decides. The name is a node id, with or without `[model]`; the part of one after `::`,
    with or without `[model]`, or a case id; any part of a node id.
    """
    return (
        [nodeid for nodeid in runs if name in _with_stem(nodeid)]
        or [nodeid for nodeid, case_id in runs.items() if name in (*_with_stem(nodeid.partition("::")[2]), case_id)]
        or [nodeid for nodeid in runs if name in nodeid]
    )


def describe_mismatch(name: str, matches: Sequence[str], candidates: Sequence[str], noun: str = "run") -> str:
    """Return the error for a name that matches none or several, with the matches or else all candidates."""
    if matches:
        headline = f"found {len(matches):,} {noun}s {name!r}, expected one; give its node id:"
    elif candidates:
        headline = f"found no {noun} {name!r}, expected a part of the node id of one of these:"
    else:
        return f"found no {noun} {name!r}, and no other one"
    listed = list(matches or candidates)
    lines = [headline, *(f"  {nodeid}" for nodeid in listed[:_MOST_LISTED])]
    if len(listed) > _MOST_LISTED:
        lines.append(f"  ... and {len(listed) - _MOST_LISTED:,} more")
    return "\n".join(lines)


def _with_stem(nodeid: str) -> tuple[str, str]:
    """Return the node id, with and without `[model]`."""
    return nodeid, nodeid.rpartition("[")[0]
