from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.config import AgentAssignment, CaseSelection
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources import assign_agents, select

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
    with pytest.raises(ConfigError) as error:
        select(CaseSelection(**{field: ["a", "case_x", "y"]}), [*CASES, ("case_z", ())])
    lines = str(error.value).splitlines()
    assert lines[0] == f"{field}.1: references unknown case_id values: 'case_x'; did you mean 'case_z'?"
    assert "references unknown case_id values: 'y'" in lines[1]


def assignment(agent_id, **selection):
    return AgentAssignment(agent_id=agent_id, case_selection=CaseSelection(**selection))


def test_excludes_beat_includes_in_assignments():
    assignments = [
        assignment("one", include_case_ids=["a", "b"], exclude_tags=["slow"]),
        assignment("two", include_tags=["slow"], exclude_case_ids=["c"]),
    ]
    assert assign_agents(assignments, CASES) == {"a": "one", "b": "two"}


def test_a_case_of_two_assignments_is_an_error():
    assignments = [assignment("one", include_case_ids=["b"]), assignment("two", include_tags=["smoke"])]
    with pytest.raises(ConfigError, match="case 'b' is assigned to 'one' already"):
        assign_agents(assignments, CASES)


def test_an_unknown_id_in_an_assignment_is_an_error():
    with pytest.raises(ConfigError, match=r"0\.case_selection\.include_case_ids\.0: references unknown case_id values"):
        assign_agents([assignment("one", include_case_ids=["x"])], CASES)
