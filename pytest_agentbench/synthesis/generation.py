"""Dependencies between tools, and a detailed task built on them (seed 004, 4.2 and A.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter

from pydantic import Field

from pytest_agentbench.judging import structured
from pytest_agentbench.models import Block, ReplyPart, clipped, invalid, read_json
from pytest_agentbench.synthesis.base import Catalogue, Generated, Reason
from pytest_agentbench.synthesis.jobs import Job
from pytest_agentbench.synthesis.prompting import Filling, problems_block, request, tools_block
from pytest_agentbench.synthesis.wording import Wording

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


def generation_request(
    wording: Wording, job: Job, others: Sequence[str], problems: Sequence[Reason]
) -> list[dict[str, str]]:
    """Asks for one task. `others` are the tasks that exist; `problems` says what was wrong with former drafts."""
    combination = job.combination
    several = wording.several_servers.format(servers=", ".join(combination.servers))
    scenario = wording.scenario.format(name=combination.name, description=combination.description)
    shown = "\n".join(f"- {clipped(' '.join(other.split()), _MAX_OTHER)}" for other in others[-_MAX_OTHERS:])
    fillings: dict[str, Filling] = {
        "tools": [tools_block(job.catalogues)],
        "several_servers": [several] if len(combination.servers) > 1 else [],
        "scenario": [scenario] if combination.description else [],
        "ordinal": [wording.ordinal.format(number=job.number, count=job.count)] if job.count > 1 else [],
        "others": [wording.others, Block("tasks", shown)] if others else [],
        "problems": [wording.problems, problems_block(problems)] if problems else [],
    }
    return request(wording, wording.generation, fillings)


class _Dependency(ReplyPart):
    tool: str
    prerequisites: tuple[str, ...]


class _Reply(ReplyPart):
    dependency_analysis: str = Field(min_length=1)
    task_description: str = Field(min_length=1)
    dependencies: tuple[_Dependency, ...]


def read_generated(text: str, catalogues: Sequence[Catalogue]) -> Generated:
    """The task in a reply. Raises InvalidReply, also for dependencies of unknown tools and for circles."""
    reply = read_json(text, _Reply)
    known = _known_names(catalogues)
    if problems := list(_unknown(reply.dependencies, known)):
        raise invalid(problems)
    graph: dict[str, tuple[str, ...]] = {}
    for each in reply.dependencies:
        tool = known[each.tool]
        prerequisites = map(known.__getitem__, each.prerequisites)
        graph[tool] = tuple(dict.fromkeys([*graph.get(tool, ()), *prerequisites]))
    graph = {tool: prerequisites for tool, prerequisites in graph.items() if prerequisites}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise invalid([f"dependencies: found the circle {' -> '.join(error.args[1])}, expected none"]) from error
    return Generated(
        task_description=reply.task_description,
        dependency_analysis=reply.dependency_analysis,
        dependencies=graph,
    )


def reader(catalogues: Sequence[Catalogue]) -> partial[Generated]:
    """`read_generated` for these servers."""
    return partial(read_generated, catalogues=catalogues)


def _known_names(catalogues: Sequence[Catalogue]) -> Mapping[str, str]:
    """A tool's id by its id, and by its name where only one tool is called so."""
    tools = [tool for catalogue in catalogues for tool in catalogue.tools]
    times = Counter(tool.name for tool in tools)
    by_name = {tool.name: tool.tool_id for tool in tools if times[tool.name] == 1}
    return {**by_name, **{tool.tool_id: tool.tool_id for tool in tools}}


def _unknown(dependencies: Sequence[_Dependency], known: Mapping[str, str]) -> Iterator[str]:
    for at, each in enumerate(dependencies):
        for name in dict.fromkeys((each.tool, *each.prerequisites)):
            if name not in known:
                yield f"dependencies[{at}]: found {name!r}, expected one of the listed tools, as Server:tool"
