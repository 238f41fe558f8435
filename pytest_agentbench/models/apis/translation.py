"""The parts of an agent's request that are dropped if its model is asked in another API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_agentbench.models.apis.base import KEPT, Asked
from pytest_agentbench.records.case import ApiName

_OWN = KEPT | {"reasoning_content"}
"""Keys of messages for thoughts. Other providers cannot use them, and some refuse them."""
_LACKING: Mapping[ApiName, frozenset[str]] = {"chat": frozenset({"top_k"}), "responses": frozenset({"top_k"})}
"""Parameters that an API does not have and agents send by default: Gemini CLI sends a `topK` of 64."""


def translate(asked: Asked, wire: ApiName) -> Asked:
    """Return a request for a model that is asked in another API than the agent's.

    Raises RequestRefused if it cannot be translated.
    """
    if asked.refusal is not None:
        raise asked.refusal
    lacking = _LACKING.get(wire, frozenset()) & asked.parameters.keys()
    return replace(
        asked,
        messages=[{key: value for key, value in message.items() if key not in _OWN} for message in asked.messages],
        parameters={name: value for name, value in asked.parameters.items() if name not in lacking},
        lost=(*asked.lost, *sorted(lacking)),
    )
