"""A grader that a conftest adds decides runs beside the checks of their cases."""

from __future__ import annotations

from support.bench import ECHO

GRADER = """
from pytest_agentbench import Grade, Grader
from pytest_agentbench.records.evaluation import MetricResult


class Brevity(Grader):
    decides = True

    def identity(self, services, job, case):
        return {"brevity": 1}

    async def grade(self, request):
        words = len((request.artifact.final_output or "").split())
        said = () if words <= 3 else (f"brevity: {words} words, expected at most 3",)
        return Grade(metrics=(MetricResult(name="words", score=words),), failures=said)


def pytest_agentbench_graders():
    return {"brevity": Brevity()}
"""


def test_a_grader_of_a_conftest_fails_a_run(bench):
    bench.agent(ECHO + GRADER)
    bench.case("short")
    bench.case("long", metadata={"says": "Paris, as anybody would tell you."})
    finished = bench.run()
    rows = {row["case_id"]: row for row in finished.report["runs"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {"short": "passed", "long": "failed"}
    assert rows["long"]["metrics"]["words"] == 6
    assert "brevity: 6 words, expected at most 3" in finished.text


def test_a_stored_grade_decides_again_and_is_not_made_again(bench):
    bench.agent(ECHO + GRADER)
    bench.case("long", metadata={"says": "Paris, as anybody would tell you."})
    bench.run()
    finished = bench.run()
    assert finished.outcomes == {"long[agent]": "failed"}
    assert "brevity: 6 words, expected at most 3" in finished.text
    assert "the stored verdict is" not in finished.text
    assert "judged anew" not in finished.text
