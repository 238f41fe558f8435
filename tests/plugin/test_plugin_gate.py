from __future__ import annotations

import pytest

AGENT = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        says = case.metadata.get("says", "Paris")
        if says == "broken":
            raise OSError("no network")
        if says == "skipped":
            pytest.skip("not here")
        return says
    return agent
"""


def cases(bench, *, passed=0, failed=0, broken=0, skipped=0, **fields):
    bench.agent(AGENT)
    for says, count in (("Paris", passed), ("Rome", failed), ("broken", broken), ("skipped", skipped)):
        for number in range(count):
            bench.case(f"{says.lower()}{number}", metadata={"says": says}, **fields)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "args", "exit_status", "reason"),
    [
        ({"passed": 4}, (), 0, None),
        ({"passed": 3, "failed": 1}, (), 0, None),
        ({"passed": 3, "failed": 2}, (), 1, "Pass rate"),
        ({"failed": 2}, (), 1, "Pass rate"),
        ({"passed": 3, "failed": 1, "skipped": 3}, (), 0, None),
        ({"passed": 3, "failed": 1, "broken": 1}, (), 1, "Completion"),
        ({"passed": 3, "failed": 1, "broken": 1}, ("--agentbench-min-completion", "0.8"), 0, None),
        ({"skipped": 2}, (), 1, "No run was judged"),
        ({"broken": 2}, (), 1, "No run was judged"),
        ({"passed": 9, "failed": 1}, ("-x",), 1, "stopped early"),
        ({"passed": 9, "failed": 1}, ("--maxfail", "2"), 0, None),
    ],
)
def test_the_gate_decides_the_exit_status(bench, counts, args, exit_status, reason):
    cases(bench, **counts)
    finished = bench.run("--agentbench-fail-under", "0.75", *args)
    gate = finished.report["session"]["gate"]
    assert (finished.exit, gate["passed"]) == (exit_status, exit_status == 0)
    assert finished.report["session"]["exit_status"] == exit_status
    if reason is None:
        assert gate["reasons"] == []
    else:
        assert reason in gate["reasons"][0]
        assert gate["reasons"][0] in finished.text


@pytest.mark.slow
def test_without_a_gate_a_failure_fails_the_session(bench):
    cases(bench, passed=9, failed=1)
    finished = bench.run()
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["passed"] is None
    assert finished.report["session"]["gate"]["pass_rate"] == 0.9


def test_a_collection_error_fails_the_gate(bench):
    cases(bench, passed=3)
    bench.write("cases/bad/test.yaml", "schema_version: 1\n")
    finished = bench.run("--agentbench-fail-under", "0.5")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["1 collection error."]


def test_a_failure_of_another_test_fails_the_gate(bench):
    cases(bench, passed=3)
    bench.write("test_plain.py", "def test_plain(): assert 0\n")
    finished = bench.run("--agentbench-fail-under", "0.5")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["1 test that is no case failed."]


def test_a_session_that_selects_nothing_keeps_its_status(bench):
    cases(bench, passed=2)
    finished = bench.run("--agentbench-fail-under", "0.5", "-k", "nothing_of_that_name")
    assert finished.exit == 5
    assert finished.report is None


def test_a_gate_cannot_pass_what_could_not_be_collected_at_all(bench):
    bench.agent(AGENT)
    bench.write("cases/bad/test.yaml", "schema_version: 1\n")
    finished = bench.run("--agentbench-fail-under", "0")
    assert finished.exit not in (0, 5)


@pytest.mark.slow
def test_a_case_that_must_pass_fails_the_gate(bench):
    cases(bench, passed=9)
    bench.case("vital", metadata={"says": "Rome"}, must_pass=True)
    finished = bench.run("--agentbench-fail-under", "0.5")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["vital [agent] must pass: 0 of 1 runs passed."]


@pytest.mark.slow
def test_thresholds_over_repetitions_replace_must_pass(bench):
    bench.agent(
        "import itertools, pytest\n"
        "answers = itertools.cycle(['Paris', 'Rome', 'Paris'])\n"
        "@pytest.fixture(scope='session')\n"
        "def agentbench_runner():\n    return lambda case: next(answers)\n"
    )
    bench.case("flaky", must_pass=True, thresholds={"pass_rate": 0.6})
    args = ("--agentbench-repetitions", "3", "--agentbench-fail-under", "0.5")
    assert bench.run(*args).exit == 0
    bench.case("flaky", must_pass=True, thresholds={"pass_rate": 0.9})
    finished = bench.run(*args)
    assert finished.exit == 1
    assert "below its threshold" in finished.report["session"]["gate"]["reasons"][0]


@pytest.mark.slow
def test_a_gate_holds_over_workers(bench):
    cases(bench, passed=3, failed=1)
    assert bench.run("-n", "2", "--agentbench-fail-under", "0.75").exit == 0


@pytest.mark.parametrize(
    "args",
    [
        ("--agentbench-fail-under", "75"),
        ("--agentbench-fail-under", "nan"),
        ("--agentbench-concurrency", "0"),
        ("--agentbench-repetitions", "-1"),
        ("--agentbench-max-cost", "much"),
        ("--agentbench-metric", "f1 > 3"),
    ],
)
def test_values_out_of_range_are_usage_errors(bench, args):
    finished = bench.run(*args)
    assert finished.exit == 4
    assert f"argument {args[0]}: found " in finished.text
