"""A stored verdict that somebody edited: what can be told again for nothing is, and counts."""

from __future__ import annotations

import pytest
from support.bench import HEAD, check
from support.stored import find_stored

SAYS = HEAD + "def agent(case):\n    note('ran.txt')\n    return case.metadata['says']\n"
SECRET = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 2


@pytest.fixture
def stored(bench):
    """A session that failed `rome` and passed `paris`, and the paths of its verdicts."""
    bench.agent(SAYS)
    for name, says in (("paris", "Paris"), ("rome", "Rome")):
        bench.case(name, metadata={"says": says})
    first = bench.run()
    assert first.outcomes == {"paris[agent]": "passed", "rome[agent]": "failed"}
    return bench


def edit(bench, case_id: str, change) -> None:
    """Change what is stored of the verdict on a case."""
    [verdict] = find_stored(bench.path / "outputs", f"*{case_id}*/final_result_1.json")
    document = verdict.json()
    change(document)
    verdict.update(**document)


def forged(document) -> None:
    document["outcome"], document["reasons"] = "passed", []
    for each in document["checks"]:
        each["outcome"] = "passed"


def turned(document) -> None:
    document["outcome"] = "passed"


@pytest.mark.slow
@pytest.mark.parametrize(("change", "where"), [(forged, " (check paris)"), (turned, "")])
def test_an_edited_verdict_is_told_again_and_that_counts(stored, change, where):
    edit(stored, "rome", change)
    again = stored.run()
    assert again.outcomes == {"paris[agent]": "passed", "rome[agent]": "failed"}
    assert again.exit == 1
    assert again.runs["rome[agent]"]["evaluation_reused"]
    [told] = again.report["session"]["warnings"]
    assert told == (
        "rome [agent] repetition 1: the stored verdict is passed, the stored run comes to failed"
        f"{where}: the latter counts"
    )
    assert len(stored.lines("ran.txt")) == 2  # no run was made again


def test_a_verdict_from_which_results_were_taken_is_made_again(stored):
    edit(stored, "rome", lambda document: document.update(outcome="passed", reasons=[], checks=[]))
    again = stored.run()
    assert again.outcomes["rome[agent]"] == "failed"
    assert not again.runs["rome[agent]"]["evaluation_reused"]
    assert len(stored.lines("ran.txt")) == 2


@pytest.mark.slow
def test_scores_of_metrics_are_told_again(bench):
    bench.agent(HEAD + "def agent(case):\n    return 'Rome'\n")
    bench.questions(8)
    assert set(bench.run().outcomes.values()) == {"failed"}

    def perfect(document) -> None:
        turned(document)
        document["metrics"][0].update(score=1.0, passed=True)

    for number in range(8):
        edit(bench, f"many.q{number}", perfect)
    again = bench.run()
    assert set(again.outcomes.values()) == {"failed"}
    assert {row["metrics"]["exact_match"] for row in again.runs.values()} == {0.0}
    told = again.report["session"]["warnings"]
    assert sum("(metric exact_match): the latter counts" in text for text in told) == 5
    assert told[-1] == "more stored verdicts differ from the present verdicts on their runs"


def test_a_redacted_run_keeps_its_stored_verdict(bench):
    bench.agent(HEAD + f"def agent(case):\n    return 'Paris {SECRET}'\n")
    bench.case("one", deterministic_checks=[check("key", kind="regex_match", pattern="sk-proj-a1B2")])
    assert bench.run().outcomes == {"one[agent]": "passed"}
    again = bench.run()
    assert again.outcomes == {"one[agent]": "passed"}
    [told] = again.report["session"]["warnings"]
    assert "the stored one counts, because the run is stored without its secrets" in told


@pytest.mark.slow
def test_checks_of_files_and_judges_stay_as_they_are_stored(bench):
    bench.agent(
        HEAD
        + "from pytest_agentbench import RunContext\n"
        + "def agent(case, context: RunContext):\n"
        + "    (context.workspace.path / 'city.txt').write_text('Paris')\n    return 'Paris'\n"
    )
    bench.case("one", deterministic_checks=[check("file", kind="file_contains", path="city.txt", text="Paris")])
    assert bench.run().outcomes == {"one[agent]": "passed"}
    again = bench.run()
    assert (again.outcomes, again.report["session"]["warnings"]) == ({"one[agent]": "passed"}, [])
    assert again.runs["one[agent]"]["evaluation_reused"]
