r"""Find backspace characters in the patterns of a case: YAML reads "\b" in double quotes as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.config.documents import Loc
from pytest_agentbench.records.check_specs import Check, RegexMatch

_BACKSPACE = "\b"


def list_pattern_doubts(
    path: Path,
    checks: Sequence[Check],
    context: Mapping[str, Any],
    context_at: Loc,
    check_places: Sequence[Loc] | None = None,
) -> list[tuple[str, str]]:
    """Return a doubt for each pattern with a backspace, with its place and without. `context_at` is the context's.

    `check_places` are the places of the checks, by default the elements of `deterministic_checks`.
    """
    if check_places is None:
        check_places = [("deterministic_checks", index) for index in range(len(checks))]
    patterns = [
        *_list_of_checks(checks, check_places),
        *(((*context_at, *at), text) for at, text in _list_of_tools(context)),
    ]
    doubts = [(at, _describe(text)) for at, text in patterns if isinstance(text, str) and _BACKSPACE in text]
    if not doubts:
        return []
    from pytest_agentbench.config.field_doubts import locate_doubts

    return locate_doubts(path, doubts)


def _list_of_checks(checks: Sequence[Check], places: Sequence[Loc]) -> Iterator[tuple[Loc, Any]]:
    for check, check_place in zip(checks, places, strict=False):  # a source may have added a check of its own
        for place, leaf in check.leaves:
            if isinstance(leaf.declarative, RegexMatch):
                yield (*check_place, *place, "pattern"), leaf.declarative.pattern


def _list_of_tools(context: Mapping[str, Any]) -> Iterator[tuple[Loc, Any]]:
    """Yield the patterns of canned tools, whose definitions are known to be sound."""
    for index, tool in enumerate((context.get("llm_probe") or {}).get("tools") or ()):
        returns = tool.get("returns") if isinstance(tool, dict) else None
        for at, result in enumerate(returns if isinstance(returns, list) else ()):
            when = result.get("when") if isinstance(result, dict) else None
            for name, pattern in (when if isinstance(when, dict) else {}).items():
                yield ("llm_probe", "tools", index, "returns", at, "when", name), pattern


def _describe(pattern: str) -> str:
    meant = pattern.replace(_BACKSPACE, r"\b").replace("'", "''")
    return rf"""found a backspace, as "\b" in double quotes is read; write '{meant[:60]}' in single quotes"""
