"""`context` of a case's input: settings of runners by their names, and the tools of `llm_probe`."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo

from pytest_agentbench.config.base import Known, Problems, complain, find_unregistered, known_of, suggest
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.functions import read_functions
from pytest_agentbench.config.request_fields import TOOLS_PLACE

PROBE = "llm_probe"
"""The built-in runner, and its section of the context."""


def _check_context(context: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    known = known_of(info)
    complaints: list[tuple[Loc, str]] = []
    for name, hints in context.items():
        if hints is not None and (problems := known.runner_says(name, "context_problems")) is not None:
            complaints += [((name, *loc), text) for loc, text in problems(hints)]
        elif name == "tools" and isinstance(hints, list):
            complaints.append(((name,), f"found a list, expected the section of a runner; {TOOLS_PLACE}"))
        # An agent of one's own may have a section of any name; one that is a slip away from ours is nobody's.
        elif name != PROBE and get_close_matches(name.lower(), [PROBE], cutoff=0.85):
            complaints.append(((name,), f"unknown runner{suggest(name.lower(), [PROBE])}"))
    complaints += [((PROBE, *loc), text) for loc, text in _find_probe_problems(context.get(PROBE), known)]
    complain(complaints)
    return context


def _find_probe_problems(probe: object, known: Known) -> Iterator[tuple[Loc, str]]:
    if probe is None:
        return
    if not isinstance(probe, dict):
        yield (), f"found {probe!r}, expected a mapping"
        return
    known_names = ["tools", "functions"]
    yield from (((name,), f"unknown field{suggest(name, known_names)}") for name in probe if name not in known_names)
    functions: Collection[str] = ()
    try:
        functions = [function.name for function in read_functions(probe.get("functions"))]
    except ValueError as error:
        yield ("functions",), str(error)
    problems = _find_tools_problems(probe.get("tools") or [], functions, known)
    yield from ((("tools", *at), text) for at, text in problems)


def _find_tools_problems(tools: object, functions: Collection[str], known: Known) -> Iterator[tuple[Loc, str]]:
    if not isinstance(tools, list):
        yield (), f"found {tools!r}, expected a list of tool names and canned tools"
        return
    names = [tool for tool in tools if isinstance(tool, str)]
    taken = {*names, *functions}
    for index, tool in enumerate(tools):
        if isinstance(tool, str):
            yield from find_unregistered([((index,), tool)], known.tools, "tool")
        elif isinstance(tool, dict):
            yield from (((index, *at), text) for at, text in _find_canned_problems(tool, taken))
        else:
            yield (
                (index,),
                f"found {tool!r}, expected a name, or {{name, description, parameters, returns}}",
            )


def _find_canned_problems(definition: dict[str, Any], taken: set[str]) -> Iterator[tuple[Loc, str]]:
    """Yield the problems of a canned tool, and add its name to `taken`."""
    from pytest_agentbench.config.canned_tools import read_canned_tool

    try:
        name = read_canned_tool(definition).name
    except Problems as problems:
        yield from problems.found
        return
    if name in taken:
        yield ("name",), f"Duplicate tool {name!r}; each must be unique"
    taken.add(name)


CaseContext = Annotated[dict[str, Any], AfterValidator(_check_context)]
"""Settings for runners by their names; tools that `llm_probe` may call are registered, or defined here."""
