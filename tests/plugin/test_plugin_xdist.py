from __future__ import annotations

import pytest
from support.bench import COUNTING, HEAD

REST = ("each", "worksteal", "loadscope")


def crashing(case_ids, *, before="await asyncio.sleep(0.01)"):
    return HEAD + (
        "async def agent(case):\n"
        "    note('started.txt', case.case_id)\n"
        f"    {before}\n"
        f"    if case.case_id.split('.')[-1] in {tuple(case_ids)!r}:\n        os._exit(7)\n"
        "    return 'Paris'\n"
    )


@pytest.mark.slow
def test_a_crash_names_the_culprit_and_loses_nothing(bench):
    bench.agent(crashing(["q30"]))
    bench.questions(60)
    finished = bench.run("-n", "2", "--agentbench-concurrency", "8")
    assert finished.exit == 1
    crashed = {name: row for name, row in finished.runs.items() if row["outcome"] != "passed"}
    assert list(crashed) == ["cases/many.q30[agent]"]
    assert crashed["cases/many.q30[agent]"]["outcome"] == "error"
    assert len(finished.runs) == 60
    assert finished.report["totals"]["passed"] == 59
    assert "worker 'gw" in crashed["cases/many.q30[agent]"]["message"]
    assert bench.lines("started.txt").count("cases/many.q30") == 2  # alone the second time, which names it


@pytest.mark.slow
def test_crashes_over_a_gate_are_errors_of_their_cases(bench):
    bench.agent(crashing(["q3", "q17"]))
    bench.questions(40)
    args = ("-n", "2", "--agentbench-concurrency", "4", "--agentbench-fail-under", "0.9")
    finished = bench.run(*args, "--agentbench-min-completion", "0.9")
    gate = finished.report["session"]["gate"]
    assert finished.report["totals"]["errors"] == 2
    assert (finished.exit, gate["passed"], gate["completion"]) == (0, True, 0.95)


@pytest.mark.slow
def test_a_crash_of_the_only_worker_ends_with_everything_reported(bench):
    bench.agent(crashing(["q5"]))
    bench.questions(10)
    finished = bench.run("-n", "1", "--agentbench-concurrency", "2")
    assert finished.exit == 1
    assert finished.report["totals"]["passed"] == 9
    assert finished.outcomes["cases/many.q5[agent]"] == "error"


@pytest.mark.slow
def test_without_restarts_what_never_ran_fails_the_session(bench):
    bench.agent(crashing(["q5"]))
    bench.questions(10)
    finished = bench.run("-n", "1", "--max-worker-restart=0", "--agentbench-concurrency", "1")
    assert finished.exit == 1
    assert "worker restarting disabled" in finished.text
    assert "collected items were never reported" in finished.text


@pytest.mark.slow
def test_a_session_fails_if_every_worker_is_lost_before_the_first_result(bench):
    bench.agent(crashing(["q0"]))
    bench.questions(4)
    finished = bench.run("-n", "1", "--max-worker-restart=0", "--agentbench-concurrency", "1")
    assert finished.exit == 1
    assert "4 collected items were never reported" in finished.text


@pytest.mark.slow
def test_a_crash_under_another_distribution_is_told_from_other_tests(bench):
    bench.agent(crashing(["q2"]))
    bench.questions(4)
    finished = bench.run("-n", "2", "--dist", "worksteal", "--agentbench-fail-under", "0.5")
    assert finished.exit == 1
    assert finished.report["totals"]["passed"] == 3
    [reason] = finished.report["session"]["gate"]["reasons"]
    assert reason.endswith("crashed while running 'cases/many.jsonl::cases/many.q2[agent]'.")


@pytest.mark.slow
@pytest.mark.parametrize("dist", ["loadfile", *REST])
def test_other_distributions_run_every_case(bench, dist):
    bench.agent(HEAD + "def agent(case):\n    return 'Paris'\n")
    bench.questions(6)
    bench.questions(5, name="cases/more.jsonl")
    bench.write("test_plain.py", "def test_plain(): pass\n")
    finished = bench.run("-n", "2", "--dist", dist)
    assert finished.exit == 0
    assert finished.report["totals"]["passed"] == 11


@pytest.mark.slow
def test_loadfile_keeps_a_file_on_one_worker(bench):
    bench.agent(
        HEAD + "def agent(case):\n    note('workers.txt', os.environ['PYTEST_XDIST_WORKER'])\n    return 'Paris'\n"
    )
    bench.questions(12)
    finished = bench.run("-n", "2", "--dist", "loadfile")
    assert finished.report["totals"]["passed"] == 12
    assert len(set(bench.lines("workers.txt"))) == 1


@pytest.mark.slow
def test_limits_are_divided_among_workers(bench):
    bench.agent(COUNTING)
    bench.questions(80)
    assert bench.run("-n", "2", "--agentbench-concurrency", "6").exit == 0
    assert bench.lines("most.txt") == ["3", "3"]


@pytest.mark.slow
def test_a_stop_reaches_the_workers(bench):
    bench.agent(
        HEAD
        + """
async def agent(case):
    note("started.txt", case.case_id)
    if case.case_id.endswith(".q0"):
        return "Rome"
    await asyncio.Event().wait()
"""
    )
    bench.questions(50)
    finished = bench.run("-n", "2", "--agentbench-concurrency", "4", "-x")
    assert finished.exit != 0
    assert finished.outcomes["cases/many.q0[agent]"] == "failed"
    assert len(bench.lines("started.txt")) < 20


@pytest.mark.slow
def test_a_session_without_cases_is_xdists_own(bench):
    bench.write("test_plain.py", "import pytest\n@pytest.mark.parametrize('i', range(9))\ndef test_it(i): pass\n")
    finished = bench.run("-n", "2")
    assert finished.exit == 0
    assert finished.report is None
    finished.result.assert_outcomes(passed=9)


@pytest.mark.slow
def test_cases_and_other_tests_share_the_workers(bench):
    bench.agent(HEAD + "async def agent(case):\n    return 'Paris'\n")
    bench.questions(30)
    bench.write(
        "test_plain.py", "import pytest\n@pytest.mark.parametrize('i', range(9))\ndef test_it(i): assert i != 5\n"
    )
    finished = bench.run("-n", "2", "--agentbench-fail-under", "0.5")
    assert finished.exit == 1  # a gate on cases forgives no other test
    finished.result.assert_outcomes(passed=38, failed=1)
    assert "1 test that is no case failed" in finished.text


@pytest.mark.slow
def test_an_exception_in_the_controller_is_not_a_lost_worker(bench):
    bench.agent(
        HEAD
        + """
def agent(case):
    return "Paris"

def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        raise OSError(28, "No space left for my own log")
"""
    )
    bench.questions(4)
    finished = bench.spawn("-n", "1")
    assert finished.exit == 3
    assert "No space left for my own log" in finished.text
    assert "a worker was lost" not in finished.text


@pytest.mark.slow
def test_lone_surrogates_do_not_lose_items(bench):
    """A lone surrogate in what an agent raises or prints."""
    bench.path.joinpath("conftest.py").write_text(
        HEAD
        + """
def agent(case):
    print("printed \\ud800")
    if case.case_id == "one":
        raise ValueError("raised \\ud800")
    return "answered \\ud800"
"""
    )
    bench.case("one")
    bench.case("two")
    finished = bench.run("-n", "2")
    assert finished.outcomes == {"one[agent]": "error", "two[agent]": "failed"}
    assert "raised \\ud800" in finished.text
