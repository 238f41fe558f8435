"""Cases that have other ids in the baseline, as a file or a root has moved: compared as one case, as the store does."""

from __future__ import annotations

import pytest
from comparison_samples import compared, only_model
from reports_samples import make_row


def rows(*places, outcome="passed", **fields):
    """A row for each `file::case id`, and the name of its dataset behind `@`."""
    found = []
    for place in places:
        nodeid, _, dataset = place.partition("@")
        _, _, case_id = nodeid.partition("::")
        row = make_row(outcome, case_id, dataset=dataset or None, **fields)
        found.append(row | {"nodeid": f"{nodeid}[{row['model_id']}]"})
    return found


MOVED = {
    "rootdir": (["t.yaml::one", "b/t.yaml::two"], ["cases/t.yaml::one", "cases/b/t.yaml::two"]),
    "folder": (["math/t.yaml::one"], ["maths/t.yaml::one"]),
    "ids of several folders": (["a/t.yaml::one", "b/t.yaml::one"], ["cases/a/t.yaml::one", "cases/b/t.yaml::one"]),
    "a root is added": (["cases/c.jsonl::cases/c.fr@cases/c"], ["cases/c.jsonl::c.fr@c"]),
    "a root is removed": (["cases/c.jsonl::c.fr@c"], ["cases/c.jsonl::cases/c.fr@cases/c"]),
    "root and rootdir": (["c.jsonl::c.fr@c"], ["p/cases/c.jsonl::cases/c.fr@cases/c"]),
    "two datasets": (
        ["cases/a/c.jsonl::cases/a/c.1@cases/a/c", "cases/b/c.jsonl::cases/b/c.1@cases/b/c"],
        ["cases/a/c.jsonl::a/c.1@a/c", "cases/b/c.jsonl::b/c.1@b/c"],
    ),
    "a name with a hash": (
        ["cases/my c.jsonl::cases/my_c-0a1b2c.fr@cases/my_c-0a1b2c"],
        ["cases/my c.jsonl::my_c-aabbcc.fr@my_c-aabbcc"],
    ),
}


@pytest.mark.parametrize("moved", MOVED)
def test_cases_of_a_moved_root_are_compared_as_one(moved):
    there, here = MOVED[moved]
    found = compared(rows(*there), rows(*here, outcome="failed"))
    model = only_model(found)
    assert model["cases"] == {"paired": len(here), "unjudged": [], "only_baseline": [], "only_current": []}
    assert [change["case"] for change in model["by_chance"]] == [place.partition("@")[0] for place in here]
    [note] = [note for note in found["notes"] if " has another id in a.json" in note or " have other ids" in note]
    assert f"for example {there[0].partition('@')[0]} there and {here[0].partition('@')[0]} here" in note
    assert not any("other fingerprints" in note for note in found["notes"])


OTHERS = {
    "another id": (["t.yaml::one"], ["cases/t.yaml::two"]),
    "another dataset": (["a.jsonl::a.1@a"], ["b.jsonl::b.1@b"]),
    "a dataset and a case": (["t.yaml::c.1"], ["c.jsonl::c.1@c"]),
    "one name is the end of another's, not of its path": (["c.jsonl::bc.1@bc"], ["c.jsonl::c.1@c"]),
    "two may be it": (["a/t.yaml::one"], ["b/t.yaml::one", "c/t.yaml::one"]),
    "another test by hand": (["t.py::test_a"], ["u.py::test_b"]),
}


@pytest.mark.parametrize("others", OTHERS)
def test_ambiguous_renamed_cases_are_not_compared(others):
    there, here = OTHERS[others]
    cases = only_model(compared(rows(*there), rows(*here)))["cases"]
    assert (cases["paired"], len(cases["only_baseline"]), len(cases["only_current"])) == (0, len(there), len(here))


def test_equal_node_ids_pair_first():
    both = ["a/t.yaml::one", "cases/a/t.yaml::one"]
    cases = only_model(compared(rows(*both), rows(*both, "b/cases/a/t.yaml::one")))["cases"]
    assert (cases["paired"], cases["only_current"]) == (2, ["b/cases/a/t.yaml::one"])
