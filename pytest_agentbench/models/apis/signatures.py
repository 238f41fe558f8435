"""Signatures of Gemini's calls, which an agent may lose on its way: without them the model refuses the conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.models.apis.base import PARTS, JsonObject


class CallSignatures:
    """The signatures of a run's calls by what is called: agents give calls ids of their own."""

    def __init__(self) -> None:
        self._kept: dict[str, list[str]] = {}

    def keep(self, message: Mapping[str, Any]) -> None:
        """Keep the signatures of a reply's calls."""
        for part in message.get(PARTS) or ():
            if "functionCall" in part and (signature := part.get("thoughtSignature")):
                self._kept.setdefault(_key_of(part["functionCall"]), []).append(signature)

    def mend(self, contents: Any) -> tuple[Any, int]:
        """Return the contents of a request with the signatures that they lack, and how many these were.

        A result that comes twice is in it once: Gemini CLI 0.61 loses the signatures where it resumes a session, and
        sends each result twice.
        """
        if not isinstance(contents, list):
            return contents, 0
        seen: dict[str, int] = {}
        restored = 0
        made = []
        answered: set[str] = set()
        for content in contents:
            parts = content.get("parts") if isinstance(content, dict) else None
            if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
                made.append(content)
                continue
            kept = []
            for part in parts:
                if _repeats(part, answered):
                    continue
                signed = self._sign(part, seen)
                restored += signed is not part
                kept.append(signed)
            made.append(content if kept == parts else {**content, "parts": kept})
        return [each for each in made if not isinstance(each, dict) or each.get("parts") != []], restored

    def _sign(self, part: JsonObject, seen: dict[str, int]) -> JsonObject:
        """Return a part with the signature of its call; equal calls have theirs in the order in which they came."""
        call = part.get("functionCall")
        if not isinstance(call, dict):
            return part
        key = _key_of(call)
        number = seen[key] = seen.get(key, -1) + 1
        known = self._kept.get(key, ())
        if "thoughtSignature" in part or number >= len(known):
            return part
        return {**part, "thoughtSignature": known[number]}


def _repeats(part: Mapping[str, Any], answered: set[str]) -> bool:
    """Return whether a part is a result that was there before, by its id; note it."""
    response = part.get("functionResponse")
    call_id = response.get("id") if isinstance(response, dict) else None
    if not isinstance(call_id, str):
        return False
    if call_id in answered:
        return True
    answered.add(call_id)
    return False


def _key_of(call: Mapping[str, Any]) -> str:
    return json.dumps([call.get("name"), call.get("args") or {}], sort_keys=True)
