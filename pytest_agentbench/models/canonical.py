"""A request as cassettes keep and compare it: what differs from run to run without a meaning is taken out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pytest_agentbench.store import Redactor

WORKSPACE = "[workspace]"
"""What stands for the folder that a run works in, which is another one each time."""

_TAGS = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
"""Fields by which a caller marks its requests; no model sees them."""

_BOUNDARY = re.compile(r"(<<<(?:DATA|END) )([0-9a-f]{32})\b")
"""The code of the blocks in a judge's request: a hash of all of them, folder names included."""


def canonical(request: Mapping[str, Any], folder: str | None, redactor: Redactor) -> dict[str, Any]:
    """The request, JSON-like, without tags and secrets; the run's `folder` is called `[workspace]` in it."""

    def neutral(text: str) -> str:
        return _BOUNDARY.sub(r"\1[boundary]", without_folder(text, folder))

    kept = {name: value for name, value in request.items() if name not in _TAGS}
    text = "\0".join(_texts(kept))
    if neutral(text) == text == redactor.text(text):  # as most are, and they grow long
        return kept
    result: dict[str, Any] = redactor.value(mapped(kept, neutral))
    return result


def neutral(value: Any, folder: str | None, redactor: Redactor) -> Any:
    """A JSON-like answer as a cassette keeps it."""
    return redactor.value(mapped(value, lambda text: without_folder(text, folder)))


def placed(value: Any, folder: str | None) -> Any:
    """A kept answer for a run in `folder`."""
    return value if folder is None else mapped(value, lambda text: text.replace(WORKSPACE, folder))


def without_folder(text: str, folder: str | None) -> str:
    """The text with `[workspace]` in place of the folder."""
    return text if folder is None else text.replace(folder, WORKSPACE)


def _texts(value: Any) -> list[str]:
    """All texts in the value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for part in (key, item) for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return []


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed, keys left as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return value
