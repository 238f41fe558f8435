"""Labels that a page sends to `agentbench watch`."""

from __future__ import annotations

import json

import pytest
from support.watching import BEGUN, SPENT, row, watching

from pytest_agentbench.reports.human_agreement import read_labels
from pytest_agentbench.reports.journal import Journal

pytestmark = pytest.mark.slow

JUDGED = {"by": "judge", "judge": "a" * 16, "rubric": "c" * 16, "models": ["gpt"], "passed": True, "score": None}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A watched session with one judged run."""
    output = tmp_path_factory.mktemp("project") / "outputs"
    journal = Journal(output, BEGUN, pytest.fail)
    judged = {**row("one"), "run_id": "r1", "judged": [JUDGED]}
    journal.row(judged, 0, SPENT)
    with watching(output) as watched:
        assert watched.ask().status == 200
        yield watched, judged["nodeid"], output.parent / "human.jsonl"
    journal.close()


def send(served, token=None, **changes):
    watched, nodeid, _ = served
    label = {"nodeid": nodeid, "run_id": "r1", "verdict": "failed", "comment": "No date.", **changes}
    body = json.dumps(label).encode()
    return watched.ask("/label", "POST", body, X_Agentbench_Token=token or watched.token)


def test_a_label_is_stored_with_the_judge_and_rubric_that_the_server_knows(served):
    answer = send(served)
    assert (answer.status, answer.body) == (200, b"Stored in human.jsonl.")
    [label] = read_labels(served[2])
    assert (label.run_id, label.verdict, label.comment) == ("r1", "failed", "No date.")
    assert (label.rubric, label.judges) == ("c" * 16, {"judge": "a" * 16})
    assert not label.blind


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (403, {"token": "guessed"}),
        (400, {"verdict": "great"}),
        (400, {"annotator": "somebody else"}),
        (400, {"comment": "x" * 20_000}),
        (413, {"comment": "x" * 200_000}),
        (409, {"run_id": "another"}),
        (409, {"nodeid": "cases/none.yaml::none[gpt]"}),
    ],
)
def test_any_other_request_stores_nothing(served, status, change):
    stored = served[2].read_text() if served[2].exists() else ""
    assert send(served, **change).status == status
    assert (served[2].read_text() if served[2].exists() else "") == stored


def test_a_page_of_another_origin_stores_nothing_even_with_the_token(served):
    watched = served[0]
    headers = {"X_Agentbench_Token": watched.token, "Origin": "http://evil.example"}
    assert watched.ask("/label", "POST", b"{}", **headers).status == 403
    assert watched.ask("/label").status == 405
    assert watched.token not in watched.ask("/").body.decode(), "whoever reads the page may not rate"


def test_no_label_is_appended_through_a_link(served, tmp_path):
    human = served[2]
    human.unlink(missing_ok=True)
    (tmp_path / "profile").touch()
    human.symlink_to(tmp_path / "profile")
    try:
        answer = send(served)
        assert answer.status == 500
        assert b"found a link" in answer.body
        assert (tmp_path / "profile").read_bytes() == b""
    finally:
        human.unlink()
