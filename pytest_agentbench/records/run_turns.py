"""Turns of a finished run: which events of its trace belong to each, and what the agent answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_agentbench.records.run import FinalOutputEvent, MessageEvent, RunArtifact, TraceEvent, Usage

LIMIT_REACHED = "conversation_limit"
"""Error code of a run that had more turns or steps than its conversation may have."""


@dataclass(frozen=True, slots=True)
class RunTurn:
    """One turn that a run reached: its number from 1 and its events.

    `answer` is the text with which the agent handed back, None without one. `seconds` is the time of the turn.
    """

    number: int
    events: tuple[TraceEvent, ...]
    answer: str | None
    seconds: float


def split_turns(run: RunArtifact) -> tuple[RunTurn, ...]:
    """Return the turns of a run in order, () for a run whose turns are not recorded.

    Events outside of turns, such as the messages before the first one, belong to no turn.
    """
    groups = _group_events(run.trace)
    # A run that failed did so in its last turn, unless a limit kept the next turn from beginning
    is_cut = run.status != "success" and (run.error is None or run.error.code != LIMIT_REACHED)
    turns = []
    for number, events in groups.items():
        answer, end = _find_answer(events), events[-1].at
        if number == max(groups) and (is_cut or run.final_output is not None):
            answer = run.final_output
        if number == max(groups) and is_cut:  # later than its last event
            end = max(end, run.duration_seconds)
        turns.append(RunTurn(number, tuple(events), answer, end - events[0].at))
    return tuple(turns)


def find_unreached(run: RunArtifact, count: int) -> tuple[int, ...]:
    """Return the numbers of the turns that the run did not reach, of so many turns of its case.

    A run that succeeded without a record of its turns, such as a prediction, reached all of them.
    """
    reached = {turn.number for turn in split_turns(run)}
    if not reached and run.status == "success":
        return ()
    return tuple(number for number in range(1, count + 1) if number not in reached)


def _group_events(trace: Sequence[TraceEvent]) -> dict[int, list[TraceEvent]]:
    """Return the events of each turn by its number."""
    groups: dict[int, list[TraceEvent]] = {}
    is_numbered = any(event.turn is not None for event in trace)
    started = 0
    for event in trace:
        # Runs that were stored before events had turns: only runners with turns wrote user messages, one a turn
        if isinstance(event, MessageEvent) and event.role == "user":
            started += 1
        number = event.turn if is_numbered else started
        if number:
            groups.setdefault(number, []).append(event)
    return dict(sorted(groups.items()))


def _find_answer(events: Sequence[TraceEvent]) -> str | None:
    messages = (event for event in reversed(events) if isinstance(event, MessageEvent))
    return next((message.content for message in messages if message.role == "assistant"), None)


def limit_to_turn(run: RunArtifact, turn: RunTurn) -> RunArtifact:
    """Return the run as if the turn were all of it: its trace, answer and time, without files and usage."""
    events = [event for event in turn.events if not isinstance(event, FinalOutputEvent)]
    trace: list[TraceEvent] = [*events]
    if turn.answer is not None:
        last = turn.events[-1]
        trace.append(FinalOutputEvent(sequence=last.sequence, at=last.at, turn=turn.number, content=turn.answer))
    return run.model_copy(
        update={
            "trace": tuple(trace),
            "duration_seconds": turn.seconds,
            "usage": Usage(),
            "changes": None,
            "output_artifacts": (),
        }
    )
