"""Signatures of Gemini's calls, which agents may lose. The model refuses a conversation without them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.models.apis.base import PARTS, JsonObject
from pytest_agentbench.models.json_values import as_object


class CallSignatures:
    """The signatures of a run's calls, by name and arguments, because agents change the ids of calls."""

    def __init__(self) -> None:
        self._kept: dict[str, list[str]] = {}

    def keep(self, message: Mapping[str, Any]) -> None:
        """Store the signatures of a reply's calls."""
        for part in message.get(PARTS) or ():
            if "functionCall" in part and (signature := part.get("thoughtSignature")):
                self._kept.setdefault(_key_of(part["functionCall"]), []).append(signature)

    def mend(self, contents: Any) -> tuple[Any, int]:
        """Return the contents of a request with restored signatures, and the number of restored signatures.

        Repeated results are removed. Gemini CLI 0.61 loses the signatures when it resumes a session, and sends each
        result twice.
        """
        if not isinstance(contents, list):
            return contents, 0
        seen: dict[str, int] = {}
        restored = 0
        made = []
        answered: set[str] = set()
        for content in contents:
            parts = as_object(content).get("parts")
            if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
                made.append(content)
                continue
            signed_parts = []
            for part in parts:
                if _repeats(part, answered):
                    continue
                signed = self._sign(part, seen)
                restored += signed is not part
                signed_parts.append(signed)
            made.append({**content, "parts": signed_parts})
        return [content for content in made if not isinstance(content, dict) or content.get("parts") != []], restored

    def _sign(self, part: JsonObject, seen: dict[str, int]) -> JsonObject:
        """Return a part with the signature of its call. Equal calls get theirs in the order of the replies."""
        call = part.get("functionCall")
        if not isinstance(call, dict):
            return part
        key = _key_of(call)
        number = seen[key] = seen.get(key, -1) + 1
        signatures = self._kept.get(key, ())
        if "thoughtSignature" in part or number >= len(signatures):
            return part
        return {**part, "thoughtSignature": signatures[number]}


def _repeats(part: Mapping[str, Any], answered: set[str]) -> bool:
    """Return whether a part is a result whose id is in `answered`; add its id."""
    call_id = as_object(part.get("functionResponse")).get("id")
    if not isinstance(call_id, str):
        return False
    if call_id in answered:
        return True
    answered.add(call_id)
    return False


def _key_of(call: Mapping[str, Any]) -> str:
    return json.dumps([call.get("name"), call.get("args") or {}], sort_keys=True)
