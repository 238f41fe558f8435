"""Request for a judge's verdict on an MCP task: evidence first, then the rubric in an iteration's own order.

The text before the rubric is equal in every iteration, so that providers can cache it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_agentbench.config.prompt_files import split_prompt
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.judging.prompt import MAX_MESSAGE, MAX_OUTPUT, anchor_lines, ends_within, without_identity
from pytest_agentbench.models.prompts import Block, clip_middle, compute_boundary, fill_prompt, render_parts
from pytest_agentbench.packs.mcp_bench.records import MCP_TASKS, McpTask
from pytest_agentbench.packs.mcp_bench.wording import Axis, JudgeWording, read_judge_wording
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import (
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    TraceEvent,
)

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile


# Maximum characters shown of each part; the middle of a longer text is left out. Many parts are each shown
# shorter.
MAX_ACTIVITY = 120_000
MAX_EVENT = 4_000
MAX_SAID = 1_000
"""Maximum characters of the agent's messages before its answer: its plans repeat its calls."""
MIN_EVENT = 300
"""Characters left of an event if there are very many; beyond that the events in the middle are left out."""
_DELIMITERS = 130
"""Approximate characters of a block in addition to its text."""
MAX_TOOLS = 40_000
MAX_DESCRIPTION = 300
MIN_DESCRIPTION = 40

_TOOLS, _DESCRIPTIONS = "tools", "tool_descriptions"

Parts = Iterator[str | Block]


def evidence(case: Case, artifact: RunArtifact, wording: JudgeWording) -> Parts:
    """Yield the task, its analysis, the solution, the execution and the tools, in this order."""
    yield from _list_task(case, wording)
    yield wording.solution
    output = artifact.final_output
    yield wording.no_solution if output is None else Block(wording.labels["solution"], clip_middle(output, MAX_OUTPUT))
    yield from _list_execution(artifact, wording)
    yield from _list_tools(artifact, wording)


def make_tools_note(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return the offered tools as a run's `request` stores them for judges: `descriptions` are by id."""
    lines = {name: _shorten_line(description, MAX_DESCRIPTION) for name, description in descriptions.items()}
    return {_TOOLS: list(lines), _DESCRIPTIONS: lines}


def _list_task(case: Case, wording: JudgeWording) -> Parts:
    task = case.part(McpTask)
    yield wording.task
    for message in (*case.messages, *case.turns):
        yield Block(wording.labels[message.role], clip_middle(message.content, MAX_MESSAGE))
    detailed = task.detailed if task is not None else None
    if not detailed:
        yield wording.concrete_missing
    # With `task_text: detailed` the agent's question was this text, which is already above.
    elif any(detailed.strip() in message.content for message in case.messages):
        yield wording.concrete_given
    else:
        yield wording.concrete
        yield Block(wording.labels["concrete"], clip_middle(detailed, MAX_MESSAGE))
    if task is not None and task.dependency_analysis:
        yield wording.analysis
        yield Block(wording.labels["analysis"], clip_middle(task.dependency_analysis, MAX_MESSAGE))


def _list_execution(artifact: RunArtifact, wording: JudgeWording) -> Parts:
    calls, rounds = len(artifact.tool_calls), artifact.rounds
    heading = wording.execution_without_rounds if rounds is None else wording.execution
    yield heading.format(rounds=rounds, calls=calls)
    if artifact.status != "success":
        yield wording.ended_early.format(status=artifact.status)
    if artifact.error is not None:
        yield Block(
            # A provider's message may name the model, which the judge must not know.
            wording.labels["problem"],
            clip_middle(without_identity(artifact.error.message, artifact), MAX_EVENT),
        )
    yield wording.side_by_side if calls else wording.no_calls
    rounds_and_blocks = _list_activity(artifact, wording)
    first, last = ends_within([block for _, block in rounds_and_blocks], MAX_ACTIVITY, _DELIMITERS)
    current_round = 0
    for at, (number, block) in enumerate(rounds_and_blocks):
        if at == first < last:
            yield wording.events_left_out.format(count=last - first)
        if first <= at < last:
            continue
        if number != current_round:
            current_round = number
            yield wording.round.format(number=number)
        yield block


def _list_activity(artifact: RunArtifact, wording: JudgeWording) -> list[tuple[int, Block]]:
    """Return calls, results and the agent's messages, in order, each with the number of its round."""
    round_event, final_output = artifact.round_event, artifact.final_output
    events = [event for event in artifact.trace if _is_shown(event, round_event, final_output)]
    limit = min(MAX_EVENT, max(MIN_EVENT, MAX_ACTIVITY // max(1, len(events))))
    round_number = call_number = 0
    numbers: dict[str, int] = {}  # an id may be used again in a later round
    blocks = []
    for event in events:
        if isinstance(event, RunnerEvent):
            round_number += 1
        elif isinstance(event, ToolCallEvent):
            call_number += 1
            numbers[event.call_id] = call_number
            label = wording.labels["call"].format(number=call_number)
            blocks.append((round_number, Block(label, clip_middle(f"{event.name}\n{_format_arguments(event)}", limit))))
        elif isinstance(event, ToolResultEvent):
            label = wording.labels["error" if event.is_error else "result"]
            label = label.format(number=numbers.get(event.call_id, "?"))
            blocks.append((round_number, Block(label, clip_middle(event.content, limit))))
        elif isinstance(event, MessageEvent):
            text = clip_middle(event.content, min(limit, MAX_SAID))
            blocks.append((round_number, Block(wording.labels["message"], text)))
    return blocks


def _is_shown(event: TraceEvent, round_event: str, final_output: str | None) -> bool:
    """Return whether an event is part of the execution: calls, results, beginnings of rounds, the agent's messages."""
    if isinstance(event, MessageEvent):
        # The final answer has a separate block, so it would be shown twice.
        return event.role == "assistant" and bool(event.content.strip()) and event.content != final_output
    if isinstance(event, RunnerEvent):
        return event.name == round_event
    return isinstance(event, ToolCallEvent | ToolResultEvent)


def _format_arguments(call: ToolCallEvent) -> str:
    if call.arguments is None:
        return call.raw or ""
    return json.dumps(call.arguments, ensure_ascii=False, default=str)


def _list_tools(artifact: RunArtifact, wording: JudgeWording) -> Parts:
    """Yield a line for each offered tool: its id and its server's description, shortened if there are many."""
    names = artifact.request.get(_TOOLS)
    if not isinstance(names, list) or not names:
        yield wording.tools_unknown
        return
    descriptions = artifact.request.get(_DESCRIPTIONS)
    if not isinstance(descriptions, dict):
        descriptions = {}
    # All names stay, because the agent could choose any tool; descriptions share the room.
    limit = max(MIN_DESCRIPTION, min(MAX_DESCRIPTION, MAX_TOOLS // len(names)))
    lines = [_format_tool(str(name), str(descriptions.get(name) or ""), limit) for name in names]
    yield wording.tools.format(count=len(names))
    yield Block(wording.labels["tools"], clip_middle("\n".join(lines), 2 * MAX_TOOLS))


def _format_tool(name: str, description: str, limit: int) -> str:
    name, line = _join_lines(name), _shorten_line(description, limit)
    if line:
        return f"{name}: {line}"
    return name


def _shorten_line(text: str, limit: int) -> str:
    line = _join_lines(text)
    if len(line) <= limit:
        return line
    return f"{line[:limit]}..."


def _join_lines(text: str) -> str:
    return " ".join(text.split())


Shuffle = Literal["axes", "bands", "none"]
"""`axes` shuffles axes and the dimensions within each, `bands` also the bands of each dimension."""

T = TypeVar("T")


def shuffled(rubric: Sequence[Axis], shuffle: Shuffle, case_id: str, iteration: int) -> tuple[Axis, ...]:
    """Return the rubric in the order of an iteration: the same for every judge and in every session.

    Every order is drawn separately. The orders of axes and dimensions are the same with `axes` and with `bands`.
    """
    if shuffle == "none":
        return tuple(rubric)
    # Seeded by task and iteration, not by judge: scores of several judges then differ only by the judges.
    orders = random.Random(f"{case_id}:{iteration}")
    axes = _shuffle(orders, [replace(axis, scales=_shuffle(orders, axis.scales)) for axis in rubric])
    if shuffle == "axes":
        return axes
    # Bands are drawn last, from the same generator: axes and dimensions have the same order with and without
    # them.
    return tuple(_shuffle_bands(orders, axis) for axis in axes)


def _shuffle_bands(orders: random.Random, axis: Axis) -> Axis:
    return replace(axis, scales=tuple(replace(scale, bands=_shuffle(orders, scale.bands)) for scale in axis.scales))


def _shuffle(orders: random.Random, items: Sequence[T]) -> tuple[T, ...]:
    return tuple(orders.sample(items, len(items)))


PROMPT_VERSION = 1
"""Part of every verdict's identity: raise it if the wording, the order or the shown part of a run changes."""


def make_judge_messages(
    case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
) -> Callable[[int], list[dict[str, str]]]:
    """Return a function from the number of an iteration, from 1, to its system and user message.

    `redact` removes secrets.
    """
    settings = profile.section(MCP_TASKS)
    wording = read_judge_wording(settings.language)
    if settings.prompts is not None and (text := settings.prompts.find("judge", settings.language)) is not None:
        return _fill_prompt(text, case, artifact, profile, redact)
    parts = [_redact_part(part, redact) for part in evidence(case, artifact, wording)]
    # From the evidence without the rubric: all iterations begin with the same text, which providers cache.
    boundary = compute_boundary(parts)
    contract = wording.how_to_read.replace("{boundary}", boundary)
    system = redact(f"{profile.system_prompt or wording.role}\n\n{contract}")
    introduction = [wording.stance]
    if anchors := anchor_lines(profile):
        introduction += [wording.anchors, *redact(anchors)]
    before = render_parts([*introduction, *parts], boundary)

    def messages(iteration: int) -> list[dict[str, str]]:
        order = shuffled(wording.rubric, settings.shuffle, case.case_id, iteration)
        rubric = "\n".join([wording.rubric_title, *_rubric_lines(order)])
        user = f"{before}\n{rubric}\n\n{wording.scoring}\n\n{wording.reply}"
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    return messages


def _fill_prompt(
    text: str, case: Case, artifact: RunArtifact, profile: EvaluationProfile, redact: Callable[[Any], Any]
) -> Callable[[int], list[dict[str, str]]]:
    """Return a function from an iteration to its messages, by a prompt of a file.

    Raises ConfigError if the profile has anchors that the prompt does not show.
    """
    settings = profile.section(MCP_TASKS)
    wording = read_judge_wording(settings.language)
    material = {
        name: [_redact_part(part, redact) for part in parts]
        for name, parts in _list_material(case, artifact, wording).items()
    }
    anchors = anchor_lines(profile)
    if anchors and "anchors" not in split_prompt(text)[1::2]:
        raise ConfigError(f"judge.{settings.language}.txt: found no {{anchors}}, expected it: the profile has anchors")
    boundary = compute_boundary([part for parts in material.values() for part in parts])
    contract = wording.how_to_read.replace("{boundary}", boundary)
    system = redact("\n\n".join(filter(None, [profile.system_prompt, contract])))
    rounds = "?" if artifact.rounds is None else artifact.rounds
    values = {"rounds": rounds, "calls": len(artifact.tool_calls)}

    def messages(iteration: int) -> list[dict[str, str]]:
        order = shuffled(wording.rubric, settings.shuffle, case.case_id, iteration)
        instructions = {"rubric": list(_rubric_lines(order)), "anchors": redact(anchors)}
        user = fill_prompt(text, values, {**material, **instructions}, boundary)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    return messages


def _list_material(case: Case, artifact: RunArtifact, wording: JudgeWording) -> dict[str, list[str | Block]]:
    """Return the evidence by the placeholders of a prompt, without our headings."""
    task = [part for part in _list_task(case, wording) if isinstance(part, Block)]
    concrete, analysis = (wording.labels[name] for name in ("concrete", "analysis"))
    output = artifact.final_output
    solution: str | Block = wording.no_solution
    if output is not None:
        solution = Block(wording.labels["solution"], clip_middle(output, MAX_OUTPUT))
    return {
        "task": [part for part in task if part.label not in (concrete, analysis)],
        "concrete": [part for part in task if part.label == concrete],
        "analysis": [part for part in task if part.label == analysis],
        "solution": [solution],
        # Without the first part, the heading with both counts, which are placeholders of the prompt.
        "execution": list(_list_execution(artifact, wording))[1:],
        "tools": [part for part in _list_tools(artifact, wording) if isinstance(part, Block)]
        or [wording.tools_unknown],
    }


def _rubric_lines(rubric: Sequence[Axis]) -> Iterator[str]:
    for axis in rubric:
        yield f"\n## {axis.title}"
        for scale in axis.scales:
            yield f"### {scale.title}"
            yield from scale.bands


def _redact_part(part: str | Block, redact: Callable[[Any], Any]) -> str | Block:
    if isinstance(part, Block):
        return Block(part.label, redact(part.text))
    return part
