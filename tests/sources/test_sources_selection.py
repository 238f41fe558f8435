from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.config.profiles import CaseSelection, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.packs.openclaw.config import AgentAssignment, SuiteOpenClaw, find_assigned_agent
from pytest_agentbench.sources.discovery import select, suite_problems

CASES = [("a", ("smoke",)), ("b", ("smoke", "slow")), ("c", ("slow",)), ("d", ())]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, "abcd"),
        ({"include_tags": ["smoke"]}, "ab"),
        ({"exclude_tags": ["slow"]}, "ad"),
        ({"include_tags": ["smoke"], "exclude_tags": ["slow"]}, "a"),
        ({"include_tags": ["smoke"], "exclude_case_ids": ["a"]}, "b"),
        ({"exclude_case_ids": ["a", "d"]}, "bc"),
        ({"include_case_ids": ["c"]}, "c"),
        ({"include_case_ids": ["c"], "exclude_case_ids": ["c"]}, "c"),
        ({"include_case_ids": ["c"], "exclude_tags": ["slow"]}, "c"),
        ({"include_case_ids": ["d"], "include_tags": ["smoke"]}, "abd"),
        ({"include_case_ids": ["d"], "include_tags": ["smoke"], "exclude_tags": ["slow"]}, "ad"),
        ({"include_case_ids": ["b"], "include_tags": ["smoke"], "exclude_case_ids": ["a", "b"]}, "b"),
    ],
)
def test_ids_go_before_tags_and_tags_before_excluded_ids(selection, expected):
    assert select(CaseSelection(**selection), CASES) == frozenset(expected)


tags = st.lists(st.sampled_from(["smoke", "slow", "new"]), max_size=2)
ids = st.lists(st.sampled_from("abcd"), max_size=3)


@given(
    st.builds(CaseSelection, include_case_ids=ids, exclude_case_ids=ids, include_tags=tags, exclude_tags=tags),
)
def test_named_cases_are_always_in_and_others_never_against_an_exclude(selection):
    selected = select(selection, CASES)
    assert selected >= set(selection.include_case_ids)
    for case_id, own in CASES:
        if case_id in selected and case_id not in selection.include_case_ids:
            assert case_id not in selection.exclude_case_ids
            assert not set(own) & set(selection.exclude_tags)


@pytest.mark.parametrize("field", ["include_case_ids", "exclude_case_ids"])
def test_an_id_that_no_case_has_is_an_error(field):
    odd = suite(case_selection={field: ["a", "case_x", "y"]})
    [problem] = suite_problems(odd, [*CASES, ("case_z", ())], ConfigRoot(Path()))
    message = "2 ids that no case has: 'case_x', 'y'; did you mean 'case_z'?"
    assert problem == (("case_selection", field, 1), message)


def suite(**fields):
    return SuiteFile(schema_version=1, suite_id="s", title="S", **fields)


@pytest.fixture
def root(tmp_path):
    """A config root with the agents that suites assign here."""
    for name in ("one", "two"):
        folder = tmp_path / "agents" / name
        (folder / "workspace").mkdir(parents=True)
        (folder / "agent.yaml").write_text(f"schema_version: 1\nagent_id: {name}\ntitle: T\n")
    return ConfigRoot(tmp_path)


def assignment(agent_id, **selection):
    return AgentAssignment(agent_id=agent_id, case_selection=CaseSelection(**selection))


def test_excludes_beat_includes_in_assignments():
    assignments = [
        assignment("one", include_case_ids=["a", "b"], exclude_tags=["slow"]),
        assignment("two", include_tags=["slow"], exclude_case_ids=["c"]),
    ]
    settings = SuiteOpenClaw(agent_assignments=tuple(assignments))
    assigned = {case_id: find_assigned_agent(settings, case_id, tags) for case_id, tags in CASES}
    assert assigned == {"a": "one", "b": "two", "c": None, "d": None}


def test_a_case_of_two_assignments_is_an_error(root):
    assignments = [assignment("one", include_case_ids=["b"]), assignment("two", include_tags=["smoke"])]
    ((place, message),) = suite_problems(suite(openclaw={"agent_assignments": assignments}), CASES, root)
    assert place == ("openclaw", "agent_assignments", 1, "case_selection")
    assert "case 'b' is assigned to 'one' already" in message


def test_an_unknown_id_in_an_assignment_is_an_error(root):
    odd = suite(openclaw={"agent_assignments": [assignment("one", include_case_ids=["x"])]})
    ((place, message),) = suite_problems(odd, CASES, root)
    assert place == ("openclaw", "agent_assignments", 0, "case_selection", "include_case_ids", 0)
    assert "no case has the id 'x'" in message
