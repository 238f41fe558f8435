"""Conversations: the limits of their turns, which a case and its run profile may set."""

from pytest_agentbench.records.base import AtLeastOne, Record, Seconds


class ConversationLimits(Record):
    """Limits of a run with several turns. A turn is a user message and all that the agent does until it answers."""

    turn_timeout_seconds: Seconds = 120.0
    """Wall-clock limit of one turn; a turn's own `max_seconds` replaces it."""
    max_turns: AtLeastOne = 30
    """User messages of a run, at most."""
    max_steps: AtLeastOne = 200
    """Messages and rounds of tool calls of a run, at most."""


def merge_limits(*layers: ConversationLimits | None) -> ConversationLimits:
    """Return the limits of a run. The fields that a later layer sets replace those of the layers before it."""
    fields = (layer.model_dump(exclude_unset=True).items() for layer in layers if layer is not None)
    return ConversationLimits(**{name: value for layer in fields for name, value in layer})
