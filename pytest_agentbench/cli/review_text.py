"""A run as an annotator sees it: the task, its criteria and the agent's actions, without model and verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from pytest_agentbench.models.prompts import clip_middle
from pytest_agentbench.records.case import Case, Expectation, Rubric
from pytest_agentbench.records.gold import gold_text
from pytest_agentbench.records.run import MessageEvent, RunArtifact, ToolCallEvent, ToolResultEvent, TraceEvent
from pytest_agentbench.terminal_text import visible
from pytest_agentbench.terminal_text import visible_line as on_a_line

# Maximum characters shown; longer texts lose their middle.
MAX_MESSAGE = 20_000
MAX_ANSWER = 60_000
MAX_EVENT = 2_000
MAX_EVENTS = 200
MAX_DIFF = 20_000

Line = tuple[str, dict[str, bool]]
"""A line with how it is marked: `bold`, `red`, ..."""

_PLAIN: dict[str, bool] = {}
_TITLE = {"bold": True, "cyan": True}
_DIFF = {"+": {"green": True}, "-": {"red": True}, "@": {"cyan": True}}


def render_run(case: Case, run: RunArtifact) -> Iterator[Line]:
    """Yield the lines of a run. Foreign text is indented and cannot control the terminal."""
    yield _fit_line(case.title).strip() or case.case_id, {"bold": True}
    yield from _render_task(case)
    yield from _render_measure(case)
    yield from render_steps(run, "Steps of the agent", lambda event: _is_said_on_the_way(event, case, run))
    yield from render_changes(run)
    yield from render_title("Answer")
    if run.final_output is None:
        yield "  There is no answer.", _PLAIN
    else:
        yield from render_text(run.final_output, MAX_ANSWER)
    if run.status != "success":
        yield f"  The run ended {run.status}: {_fit_line(run.error.message if run.error else '')}", {"yellow": True}
    yield "", _PLAIN


def render_title(text: str) -> Iterator[Line]:
    """Yield an empty line and the title."""
    yield "", _PLAIN
    yield text, _TITLE


def render_text(text: str, limit: int = MAX_MESSAGE, indent: str = "  ") -> Iterator[Line]:
    """Yield the lines of a foreign text, indented; a text of more than `limit` characters loses its middle."""
    for line in visible(clip_middle(text, limit)).splitlines() or [""]:
        yield f"{indent}{line}", _PLAIN


def _fit_line(text: str) -> str:
    """Return a name or a message, which may hold line breaks, within a line of ours."""
    return on_a_line(clip_middle(text, MAX_EVENT))


def _render_task(case: Case) -> Iterator[Line]:
    yield from render_title("Task")
    for message in (*case.messages, *case.turns):
        yield f"  {message.role}:", {"light": True}
        yield from render_text(message.content, indent="    ")
    for attachment in case.attachments:
        yield (
            f"  file {_fit_line(attachment.name)}, {attachment.size:,} bytes: {_fit_line(str(attachment.path))}",
            _PLAIN,
        )
    if case.context:
        yield "  context:", {"light": True}
        yield from render_text(json.dumps(case.context, ensure_ascii=False, default=str, indent=1), indent="    ")


def _render_measure(case: Case) -> Iterator[Line]:
    if case.reference is not None:
        yield from render_title("Reference answer")
        yield from render_text(gold_text(case.gold))
    hard, soft = case.expectations.hard_expectations, case.expectations.soft_expectations
    if hard or soft:
        yield from render_title("Expectations")
        yield from _render_expectations("must", hard)
        yield from _render_expectations("should", soft)
    if case.rubric is not None:
        yield from render_title("Rubric")
        yield from _render_rubric(case.rubric)
    for title, text in filter(None, (part.measure for part in case.case_parts)):
        yield from render_title(title)
        yield from render_text(text)


def _render_expectations(kind: str, expectations: tuple[Expectation, ...]) -> Iterator[Line]:
    for expectation in expectations:
        weight = "" if expectation.weight == 1 else f" (weight {expectation.weight:g})"
        yield from render_text(f"{kind}: {expectation.label}{weight}")


def _render_rubric(rubric: Rubric) -> Iterator[Line]:
    low, high = rubric.scale.min, rubric.scale.max
    # Labels are from 0 to 10 on any rubric's scale, so that judges can be compared.
    if (low, high) != (0, 10):
        yield f"  on a scale of {low:g} to {high:g}; you answer from 0 to 10", _PLAIN
    for value, meaning in rubric.scale.anchors.items():
        yield from render_text(f"{value}: {meaning}")
    for criterion in rubric.criteria:
        yield from render_text(criterion.name)
        if criterion.what_good_looks_like:
            yield from render_text(f"good: {criterion.what_good_looks_like}", indent="    ")
        if criterion.what_bad_looks_like:
            yield from render_text(f"bad: {criterion.what_bad_looks_like}", indent="    ")
    if rubric.scoring_instructions:
        yield from render_text(rubric.scoring_instructions)


def render_steps(run: RunArtifact, title: str, is_shown: Callable[[MessageEvent], bool]) -> Iterator[Line]:
    """Yield the tool calls with their results, and the messages for which `is_shown` is true, below a title."""
    events = [(event.turn, block) for event in run.trace if (block := list(_render_event(event, is_shown)))]
    if not events:
        return
    yield from render_title(title)
    turn = None
    for event_turn, block in events[:MAX_EVENTS]:
        if event_turn not in (None, turn):
            turn = event_turn
            yield f"  turn {turn}", {"cyan": True}
        yield from block
    if len(events) > MAX_EVENTS:
        yield f"  [... {len(events) - MAX_EVENTS} more steps ...]", {"yellow": True}


def _render_event(event: TraceEvent, is_shown: Callable[[MessageEvent], bool]) -> Iterator[Line]:
    if isinstance(event, ToolCallEvent):
        arguments = event.raw
        if event.arguments is not None:
            arguments = json.dumps(event.arguments, ensure_ascii=False, default=str)
        yield f"  calls {_fit_line(event.name)}", {"bold": True}
        yield from render_text(arguments or "", MAX_EVENT, "    ")
    elif isinstance(event, ToolResultEvent):
        # An annotator of the agent needs to know whether the tool or the agent failed.
        if not event.is_error:
            yield "  result:", {"light": True}
        elif event.broken:
            yield "  the tool itself broke:", {"red": True}
        else:
            yield "  an error came back:", {"red": True}
        yield from render_text(event.content, MAX_EVENT, "    ")
    elif isinstance(event, MessageEvent) and is_shown(event):
        yield f"  {event.role}:", {"light": True}
        yield from render_text(event.content, MAX_EVENT, "    ")


def _is_said_on_the_way(event: MessageEvent, case: Case, run: RunArtifact) -> bool:
    # The task is shown above, so only later user messages are new.
    is_turn = event.role == "user" and (bool(case.turns) or event.turn is not None)
    return (event.role == "assistant" or is_turn) and bool(event.content.strip()) and event.content != run.final_output


def render_changes(run: RunArtifact) -> Iterator[Line]:
    """Yield the files that the agent changed, with their diffs."""
    untold = run.changes_untold
    if not run.changes and untold is None:
        return
    yield from render_title("Changes in its folder")
    for change in run.changes or ():
        yield f"  {_fit_line(change.sentence)}", {"bold": True}
        for line in visible(clip_middle(change.diff or "", MAX_DIFF)).splitlines():
            yield f"    {line}", _DIFF.get(line[:1], _PLAIN)
    if untold is not None:
        yield f"  {_fit_line(untold)}", {"yellow": True}
