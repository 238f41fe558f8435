"""What of an agent's request is left out where its model is asked in another protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_agentbench.models.apis.base import KEPT, Asked
from pytest_agentbench.records.case import ApiName

_OWN = KEPT | {"reasoning_content"}
"""Keys of messages for what an agent was shown of thoughts: another provider than the one that wrote it has no use for
it, and some refuse it.
"""
_LACKING: Mapping[ApiName, frozenset[str]] = {"chat": frozenset({"top_k"}), "responses": frozenset({"top_k"})}
"""Parameters that a protocol has no name for, and agents send unasked: Gemini CLI a `topK` of 64 with each request."""


def translate(asked: Asked, wire: ApiName) -> Asked:
    """Return a request for a model that is asked in another protocol than the agent's dialect.

    Raises RequestRefused for one that cannot be translated.
    """
    if asked.refusal is not None:
        raise asked.refusal
    lacking = _LACKING.get(wire, frozenset()) & asked.parameters.keys()
    return replace(
        asked,
        messages=[
            message if _OWN.isdisjoint(message) else {key: value for key, value in message.items() if key not in _OWN}
            for message in asked.messages
        ],
        parameters={name: value for name, value in asked.parameters.items() if name not in lacking},
        lost=(*asked.lost, *sorted(lacking)),
    )
