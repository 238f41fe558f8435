"""Figures of a run with several turns, for its row in report.json."""

from __future__ import annotations

from typing import Any

from pytest_agentbench.records.run import RunArtifact, RunnerEvent
from pytest_agentbench.records.run_turns import split_turns
from pytest_agentbench.statistics.estimates import nearest_rank


def describe_conversation(artifact: RunArtifact) -> dict[str, Any]:
    """Return turns, requests and seconds of a turn as the row's member `conversation`; {} if no turn is recorded."""
    turns = split_turns(artifact)
    if not turns:
        return {}
    events = [event for turn in turns for event in turn.events]
    requests = sum(isinstance(event, RunnerEvent) and event.name == "request" for event in events)
    turn_seconds = None
    if artifact.runner_type != "predictions":  # stored answers: their time is unknown
        seconds = sorted(turn.seconds for turn in turns)
        turn_seconds = {"p50": nearest_rank(seconds, 50), "p95": nearest_rank(seconds, 95)}
    return {"conversation": {"turns": len(turns), "requests": requests or None, "turn_seconds": turn_seconds}}
