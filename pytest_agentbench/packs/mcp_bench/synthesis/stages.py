"""Stages that ask a model (seed 004, 4.2 and A.3): a detailed task, its fuzzy text, the gate."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from pydantic import Field

from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.prompts import Block, clip_middle, compute_boundary, fill_prompt, render_parts
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, make_invalid_reply, read_json
from pytest_agentbench.models.thoughts import split_thoughts
from pytest_agentbench.packs.mcp_bench.synthesis.base import Catalogue, Generated, Kind, Quality, Reason
from pytest_agentbench.packs.mcp_bench.synthesis.task_file import Job
from pytest_agentbench.packs.mcp_bench.wording import SynthesisWording
from pytest_agentbench.tools.mcp.servers import ServerTool

_MOST_OF_TOOLS = 200_000
"""Characters of all tools of a request, some 50,000 tokens."""
_LEAST_OF_TOOL = 100
_SLOT = re.compile(r"^\{(\w+)\}$", re.MULTILINE)

Filling = Sequence[str | Block]
"""Content of a placeholder: our own text, and blocks of untrusted text."""


def fill_request(wording: SynthesisWording, prompt: str, fillings: Mapping[str, Filling]) -> list[dict[str, str]]:
    """Return the messages of a request: the named prompt with its placeholders filled, each on separate lines."""
    if (own_text := wording.replaced.get(prompt)) is not None:
        boundary = compute_boundary([part for filling in fillings.values() for part in filling])
        return _make_messages(wording, fill_prompt(own_text, {}, fillings, boundary), boundary)
    parts: list[str | Block] = []
    template: str = getattr(wording, prompt)
    # `split` gives the texts between slots and the slots' names in turn.
    for at, piece in enumerate(_SLOT.split(template)):
        if at % 2:
            parts += fillings[piece]
        elif own := piece.removeprefix("\n").removesuffix("\n"):
            parts.append(own)
    boundary = compute_boundary(parts)
    return _make_messages(wording, render_parts(parts, boundary), boundary)


def _make_messages(wording: SynthesisWording, user: str, boundary: str) -> list[dict[str, str]]:
    system = wording.system.replace("{boundary}", boundary)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def list_tools(catalogues: Sequence[Catalogue]) -> Block:
    """Return all tools of the servers: id, description, and the JSON Schema of the arguments.

    If the list is too long, the longest descriptions and schemas are cut until it fits.
    """
    tools = [tool for catalogue in catalogues for tool in catalogue.tools]
    # No tool is left out, because a task may use any.
    limit = _MOST_OF_TOOLS
    text = _tool_texts(tools, limit)
    while len(text) > _MOST_OF_TOOLS and limit > _LEAST_OF_TOOL:
        limit //= 2
        text = _tool_texts(tools, limit)
    return Block("tools", text)


def _tool_texts(tools: Sequence[ServerTool], limit: int) -> str:
    return "\n\n".join(
        f"{tool.tool_id}\n{clip_middle(tool.description.strip(), limit)}\n"
        f"arguments: {clip_middle(json.dumps(tool.input_schema, ensure_ascii=False), limit)}"
        for tool in tools
    )


def list_problems(problems: Sequence[Reason]) -> Block:
    """Return the problems of earlier drafts as untrusted text, because they quote the drafts."""
    return Block("reasons", "\n".join(f"- {problem}" for problem in problems))


_TEXT = {"type": "string"}
_DEPENDENCY = {
    "type": "object",
    "properties": {"tool": _TEXT, "prerequisites": {"type": "array", "items": _TEXT}},
    "required": ["tool", "prerequisites"],
    "additionalProperties": False,
}
TASK_FORMAT = structured(
    "generated_task",
    {
        "dependency_analysis": _TEXT,
        "task_description": _TEXT,
        "dependencies": {"type": "array", "items": _DEPENDENCY},
    },
)
_MAX_OTHERS = 20
_MAX_OTHER = 300


def make_generation_request(
    wording: SynthesisWording, job: Job, others: Sequence[str], problems: Sequence[Reason]
) -> list[dict[str, str]]:
    """Return the request for one task.

    `others` are the existing tasks; `problems` are the problems of earlier drafts.
    """
    combination = job.combination
    # The order counts: the boundary of a replaced prompt is a hash of the blocks in turn
    names = ("tools", "several_servers", "scenario", "ordinal", "others", "problems")
    fillings: dict[str, Filling] = dict.fromkeys(names, ())
    fillings["tools"] = [list_tools(job.catalogues)]
    if len(combination.servers) > 1:
        fillings["several_servers"] = [wording.several_servers.format(servers=", ".join(combination.servers))]
    if combination.description:
        scenario = wording.scenario.format(name=combination.name, description=combination.description)
        fillings["scenario"] = [scenario]
    if job.count > 1:
        fillings["ordinal"] = [wording.ordinal.format(number=job.number, count=job.count)]
    if others:
        lines = (f"- {clip_middle(' '.join(other.split()), _MAX_OTHER)}" for other in others[-_MAX_OTHERS:])
        fillings["others"] = [wording.others, Block("tasks", "\n".join(lines))]
    if problems:
        fillings["problems"] = [wording.problems, list_problems(problems)]
    return fill_request(wording, "generation", fillings)


class _Dependency(ReplyPart):
    tool: str
    prerequisites: tuple[str, ...]


class _TaskReply(ReplyPart):
    dependency_analysis: str = Field(min_length=1)
    task_description: str = Field(min_length=1)
    dependencies: tuple[_Dependency, ...]


def read_generated(text: str, catalogues: Sequence[Catalogue]) -> Generated:
    """Return the task in a reply. Raises InvalidReply, also for unknown tools and circles in the dependencies."""
    reply = read_json(text, _TaskReply)
    ids = _map_names_to_ids(catalogues)
    if problems := list(_find_unknown_tools(reply.dependencies, ids)):
        raise make_invalid_reply(problems)
    graph: dict[str, tuple[str, ...]] = {}
    for dependency in reply.dependencies:
        tool = ids[dependency.tool]
        prerequisites = map(ids.__getitem__, dependency.prerequisites)
        graph[tool] = tuple(dict.fromkeys([*graph.get(tool, ()), *prerequisites]))
    graph = {tool: prerequisites for tool, prerequisites in graph.items() if prerequisites}
    try:
        # `prepare` finds circles, and nothing else of the sorter is needed.
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise make_invalid_reply(
            [f"dependencies: found the circle {' -> '.join(error.args[1])}, expected none"]
        ) from error
    return Generated(
        task_description=reply.task_description,
        dependency_analysis=reply.dependency_analysis,
        dependencies=graph,
    )


def _map_names_to_ids(catalogues: Sequence[Catalogue]) -> Mapping[str, str]:
    """Return each tool's id by its id, and also by its name if only one tool has it."""
    tools = [tool for catalogue in catalogues for tool in catalogue.tools]
    times = Counter(tool.name for tool in tools)
    by_name = {tool.name: tool.tool_id for tool in tools if times[tool.name] == 1}
    return {**by_name, **{tool.tool_id: tool.tool_id for tool in tools}}


def _find_unknown_tools(dependencies: Sequence[_Dependency], ids: Mapping[str, str]) -> Iterator[str]:
    for at, dependency in enumerate(dependencies):
        for name in dict.fromkeys((dependency.tool, *dependency.prerequisites)):
            if name not in ids:
                yield f"dependencies[{at}]: found {name!r}, expected one of the listed tools, as Server:tool"


_QUOTES = {'"': '"', "“": "”", "「": "」"}


def make_fuzzing_request(
    wording: SynthesisWording, task: str, tools: int, *, exact: bool, problems: Sequence[Reason]
) -> list[dict[str, str]]:
    """Return the request for the fuzzy text of a detailed task.

    With `exact` it must keep the task's numbers. `tools` is the number of the agent's tools.
    """
    fillings: dict[str, Filling] = {
        "task": [Block("task", task)],
        "count": [wording.count.format(count=tools)],
        "exactness": (),
        "problems": (),
    }
    if exact:
        fillings["exactness"] = [wording.exact]
    if problems:
        fillings["problems"] = [wording.fuzzing_problems, list_problems(problems)]
    return fill_request(wording, "fuzzing", fillings)


def read_fuzzy(text: str) -> str:
    """Return the text in a reply, without quotes around it. Raises InvalidReply if there is none."""
    reply = split_thoughts(text)[0].strip()
    # Only quotes around the whole text: `"A" and "B"` begins and ends with quotes, too.
    if len(reply) > 1 and _QUOTES.get(reply[0]) == reply[-1] and not {reply[0], reply[-1]} & set(reply[1:-1]):
        reply = reply[1:-1].strip()
    if not reply:
        raise InvalidReply("- the reply is empty, expected the request")
    return reply


LEAST_SOLVABILITY = 9.0
LEAST_UTILITY = 5.0
"""Minimum scores of 10; seed 004, 4.2."""

_FEEDBACK = {"type": "string"}
_SCORE = {"type": "number", "description": "1 to 10."}
QUALITY_FORMAT = structured(
    "task_quality",
    {
        "solvability_feedback": _FEEDBACK,
        "utility_feedback": _FEEDBACK,
        "solvability_score": _SCORE,
        "utility_score": _SCORE,
    },
)


def make_gate_request(
    wording: SynthesisWording, detailed: str, fuzzy: str, catalogues: Sequence[Catalogue]
) -> list[dict[str, str]]:
    """Return the request for the scores of a task."""
    fillings: dict[str, Filling] = {
        "task": [Block("task", detailed)],
        "fuzzy": [Block("request", fuzzy)],
        "tools": [list_tools(catalogues)],
    }
    return fill_request(wording, "quality", fillings)


class _QualityReply(ReplyPart):
    solvability_score: Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]
    utility_score: Annotated[float, Field(strict=True, ge=1, le=10, allow_inf_nan=False)]
    solvability_feedback: str = ""
    utility_feedback: str = ""


def read_quality(text: str) -> Quality:
    """Return the scores in a reply. Raises InvalidReply if one is missing, not a number, or out of range."""
    reply = read_json(text, _QualityReply)
    return Quality(
        solvability=reply.solvability_score,
        utility=reply.utility_score,
        solvability_feedback=reply.solvability_feedback,
        utility_feedback=reply.utility_feedback,
    )


def find_shortcomings(quality: Quality) -> Iterator[Reason]:
    """Yield a reason for each score below its minimum."""
    scores: tuple[tuple[Kind, float, float, str], ...] = (
        ("solvability", quality.solvability, LEAST_SOLVABILITY, quality.solvability_feedback),
        ("utility", quality.utility, LEAST_UTILITY, quality.utility_feedback),
    )
    for kind, score, least, feedback in scores:
        if score < least:
            yield Reason(kind=kind, text=f"scored {score:g}, expected at least {least:g}: {feedback}")
