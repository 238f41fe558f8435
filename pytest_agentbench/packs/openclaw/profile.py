"""What run profiles and suites say of OpenClaw: the runtime, and which agent runs which cases."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from pytest_agentbench.config.base import Guest
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.keys import program_problem
from pytest_agentbench.config.loader import located
from pytest_agentbench.config.profiles import pinning_problem
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import Cases, Excess, Found, ProfileSection
from pytest_agentbench.config.suite import CaseSelection
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.openclaw.agents import AgentName, agent_file
from pytest_agentbench.records.base import AtLeastOne, Record
from pytest_agentbench.records.check_specs import Text
from pytest_agentbench.sources.discovery import unknown_ids


class OpenClawRunProfile(Record):
    """The OpenClaw runtime."""

    agent_id: AgentName
    """A folder of `agents/`, or its path."""
    image: Text
    """OCI image of the openclaw command, pinned by tag or digest."""
    timeout_seconds: AtLeastOne
    """Wall-clock limit of the container."""
    docker_cli: Text = "docker"
    """OCI runtime command, such as podman: a program on PATH, or the path of one below the session's root."""


def _selects_something(selection: CaseSelection) -> CaseSelection:
    if not selection.include_case_ids and not selection.include_tags:
        raise ValueError("an assignment needs include_case_ids or include_tags")
    return selection


class AgentAssignment(Record):
    """Cases that an agent of its own runs."""

    agent_id: AgentName
    """A folder of `agents/`, or its path."""
    case_selection: Annotated[CaseSelection, AfterValidator(_selects_something)]
    """Its cases; here excludes beat includes."""


class SuiteOpenClaw(Record):
    """The suite's OpenClaw settings."""

    agent_assignments: tuple[AgentAssignment, ...] = ()
    """Which agent runs which cases; cases of none run with the run profile's agent."""


def assigned_agent(settings: SuiteOpenClaw, case_id: str, tags: Collection[str]) -> str | None:
    """Return the agent that the suite assigns to a case, None where it assigns none."""
    agents = [each.agent_id for each in settings.agent_assignments if _assigned(each.case_selection, {case_id: tags})]
    return agents[-1] if agents else None


def _assigned(selection: CaseSelection, cases: Cases) -> list[str]:
    explicit, wanted = set(selection.include_case_ids), set(selection.include_tags)
    excluded, unwanted = set(selection.exclude_case_ids), set(selection.exclude_tags)
    return [
        case_id
        for case_id, tags in cases.items()
        if (case_id in explicit or not wanted.isdisjoint(tags))
        and case_id not in excluded
        and unwanted.isdisjoint(tags)
    ]


def _floating_image(block: OpenClawRunProfile | None, profile: Mapping[str, Any]) -> Found:
    if block is None or profile.get("allow_floating_image") is True:
        return
    if (problem := pinning_problem(block.image)) is not None:
        yield ("image",), problem


def _another_block(found: OpenClawRunProfile | None, most: OpenClawRunProfile | None, guest: Guest) -> Excess:
    return [((), found, most)] if found is not None and found != most else []


def _placed(block: OpenClawRunProfile | None, path: Path, programs: str | None) -> OpenClawRunProfile | None:
    """Return the block with the whole path of a program that it names by one. Raises ConfigError for one elsewhere."""
    if block is None or os.sep not in block.docker_cli:
        return block
    program = os.path.expanduser(block.docker_cli)
    if problem := program_problem(program, str(path.parent), programs):
        raise located(path, [(("openclaw", "docker_cli"), problem)])
    return block.model_copy(update={"docker_cli": os.path.normpath(path.parent / program)})


def _no_agent(block: OpenClawRunProfile | None, root: ConfigRoot, cases: Cases) -> Found:
    return [] if block is None else _missing_agent(block.agent_id, root, ("agent_id",))


def _missing_agent(name: str, root: ConfigRoot, loc: Loc) -> Iterator[tuple[Loc, str]]:
    try:
        agent_file(root, name)
    except ConfigError as error:
        yield loc, str(error)


def _agents_elsewhere(found: SuiteOpenClaw, most: SuiteOpenClaw, guest: Guest) -> Excess:
    for at, assigned in enumerate(found.agent_assignments):
        agent = Path(assigned.agent_id)
        if agent.is_absolute() and not agent.is_relative_to(guest.folder.resolve()):
            yield ("agent_assignments", at, "agent_id"), assigned.agent_id, f"an agent below {guest.folder}"


def _assignment_problems(settings: SuiteOpenClaw, root: ConfigRoot, cases: Cases) -> Found:
    """Yield ids that no case has, cases of more than one assignment, and agents that are not there."""
    yield from _clashes(settings.agent_assignments, cases)
    for at, assignment in enumerate(settings.agent_assignments):
        yield from _missing_agent(assignment.agent_id, root, ("agent_assignments", at, "agent_id"))


def _clashes(assignments: Sequence[AgentAssignment], cases: Cases) -> Iterable[tuple[Loc, str]]:
    taken: dict[str, str] = {}
    for at, assignment in enumerate(assignments):
        place: Loc = ("agent_assignments", at, "case_selection")
        for loc, message in unknown_ids(assignment.case_selection, cases):
            yield (*place, *loc), message
        for case_id in _assigned(assignment.case_selection, cases):
            if case_id in taken:
                message = (
                    f"case {case_id!r} is assigned to {taken[case_id]!r} already; a case has at most one assignment"
                )
                yield place, message
            taken[case_id] = assignment.agent_id


OPENCLAW: ProfileSection[OpenClawRunProfile | None] = ProfileSection(
    "openclaw",
    "run_profile",
    OpenClawRunProfile | None,
    "The OpenClaw runtime.",
    default=lambda: None,
    # of the rest, each run's own fingerprint covers what can change it
    fingerprint=lambda block: block and {"agent": os.path.basename(block.agent_id), "image": block.image},
    problems=_floating_image,
    excess=_another_block,
    place=_placed,
    references=_no_agent,
)
ASSIGNMENTS: ProfileSection[SuiteOpenClaw] = ProfileSection(
    "openclaw",
    "suite",
    SuiteOpenClaw | None,
    "Agents for some cases.",
    default=SuiteOpenClaw,
    excess=_agents_elsewhere,
    references=_assignment_problems,
)
