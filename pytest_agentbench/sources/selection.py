"""Which cases a suite runs, and with which agents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_agentbench.config import AgentAssignment, CaseSelection, ConfigRoot, Loc, SuiteFile, suggest
from pytest_agentbench.errors import ConfigError

Cases = Iterable[tuple[str, Collection[str]]]
"""Case ids with their tags."""


def select(selection: CaseSelection, cases: Cases) -> frozenset[str]:
    """The ids of the cases that a suite selects: include_case_ids > tag filters > exclude_case_ids.

    Ids named in include_case_ids are always in. Others enter by include_tags, or all of them where neither is given;
    exclude_tags and exclude_case_ids then hold for these others. `suite_problems` has what a selection can have wrong.
    """
    known = dict(cases)
    explicit = frozenset(selection.include_case_ids)
    everything = not explicit and not selection.include_tags
    wanted, unwanted = set(selection.include_tags), set(selection.exclude_tags)
    entered = {
        case_id
        for case_id, tags in known.items()
        if (everything or not wanted.isdisjoint(tags)) and unwanted.isdisjoint(tags)
    }
    return explicit | (entered - set(selection.exclude_case_ids))


def assign_agents(assignments: Sequence[AgentAssignment], cases: Cases) -> dict[str, str]:
    """Case id to agent, for the cases that an assignment matches. Here excludes beat includes."""
    known = dict(cases)
    return {
        case_id: assignment.agent_id
        for assignment in assignments
        for case_id in _assigned(assignment.case_selection, known)
    }


def suite_problems(suite: SuiteFile, cases: Cases) -> list[tuple[Loc, str]]:
    """Ids that no case has, and cases of more than one assignment, each at its place in the suite's file."""
    known = dict(cases)
    found: list[tuple[Loc, str]] = [
        (("case_selection", *at), text) for at, text in _unknown(suite.case_selection, known)
    ]
    assigned = _assignment_problems(suite.agent_assignments, known)
    return found + [(("openclaw", "agent_assignments", *at), text) for at, text in assigned]


def agent_problems(suite: SuiteFile, root: ConfigRoot) -> list[tuple[Loc, str]]:
    """Agents that it assigns to cases, and that are not there."""
    found: list[tuple[Loc, str]] = []
    for index, assignment in enumerate(suite.agent_assignments):
        try:
            root.agent_file(assignment.agent_id)
        except ConfigError as error:
            found.append((("openclaw", "agent_assignments", index, "agent_id"), str(error)))
    return found


def _unknown(selection: CaseSelection, known: Collection[str]) -> list[tuple[Loc, str]]:
    """A problem for each id that no case has, at its place in the selection."""
    return [
        ((field, index), f"references unknown case_id values: {case_id!r}{suggest(case_id, known)}")
        for field in ("include_case_ids", "exclude_case_ids")
        for index, case_id in enumerate(getattr(selection, field))
        if case_id not in known
    ]


def _assignment_problems(
    assignments: Sequence[AgentAssignment], cases: Mapping[str, Collection[str]]
) -> list[tuple[Loc, str]]:
    found: list[tuple[Loc, str]] = []
    taken: dict[str, str] = {}
    for index, assignment in enumerate(assignments):
        problems = _unknown(assignment.case_selection, cases)
        found += [((index, "case_selection", *loc), message) for loc, message in problems]
        for case_id in _assigned(assignment.case_selection, cases):
            if case_id in taken:
                message = (
                    f"case {case_id!r} is assigned to {taken[case_id]!r} already; a case has at most one assignment"
                )
                found.append(((index, "case_selection"), message))
            taken[case_id] = assignment.agent_id
    return found


def _assigned(selection: CaseSelection, cases: Mapping[str, Collection[str]]) -> list[str]:
    explicit, wanted = set(selection.include_case_ids), set(selection.include_tags)
    excluded, unwanted = set(selection.exclude_case_ids), set(selection.exclude_tags)
    return [
        case_id
        for case_id, tags in cases.items()
        if (case_id in explicit or not wanted.isdisjoint(tags))
        and case_id not in excluded
        and unwanted.isdisjoint(tags)
    ]
