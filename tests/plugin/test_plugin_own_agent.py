from __future__ import annotations

import pytest

HEAD = """
import asyncio, logging, sys, threading, time
import pytest
from pytest_agentbench import ReportedCall, RunOutput, Usage

def note(name, line):
    with open(name, "a") as file:
        file.write(line + "\\n")

"""


def agent(bench, source, *, returns="agent", scope="session", folder=""):
    """A conftest.py whose fixture returns what `source` defines."""
    fixture = f'\n@pytest.fixture(scope="{scope}")\ndef agentbench_runner():\n    return {returns}\n'
    return bench.agent(HEAD + source + fixture, folder=folder)


def test_an_agent_is_any_callable(bench):
    sources = [
        "def agent(case):\n    return 'Paris'",
        "async def agent(case):\n    await asyncio.sleep(0)\n    return 'Paris'",
        "class Agent:\n    async def __call__(self, case): return 'Paris'\nagent = Agent()",
        "class Agent:\n    def __call__(self, case): return 'Paris'\nagent = Agent()",
        "def agent(case, context):\n    context.trace.final_output('Paris')",
        "def agent(case):\n    return RunOutput(output='Paris')",
        "async def later(): return 'Paris'\ndef agent(case):\n    return later()",
    ]
    for number, source in enumerate(sources):
        agent(bench, source, folder=f"cases/{number}")
        bench.case(f"case{number}", folder=f"cases/{number}")
    assert bench.run().outcomes == {f"case{number}[agent]": "passed" for number in range(7)}


def test_usage_and_calls_reported_by_an_agent_are_kept(bench):
    agent(
        bench,
        "def agent(case):\n"
        "    calls = (ReportedCall(name='look', arguments={'at': 'map'}, result='found'),)\n"
        "    usage = Usage(input_tokens=7, output_tokens=3, cost_usd=0.25)\n"
        "    return RunOutput(output='Paris', tool_calls=calls, usage=usage)\n"
        "agent.model_id = 'my-agent-3'",
    )
    checks = [{"check_id": "looked", "declarative": {"kind": "tool_called", "name": "look"}}]
    bench.case("one", deterministic_checks=checks)
    row = bench.run().runs["one[agent]"]
    assert row["outcome"] == "passed"
    assert (row["model_id"], row["own_agent"]) == ("my-agent-3", True)
    assert row["cost_usd"]["run"] == 0.25
    assert (row["usage"]["input_tokens"], row["usage"]["output_tokens"]) == (7, 3)


def test_an_agent_without_model_id_goes_by_its_name(bench):
    agent(bench, "def my_solver(case): return 'Paris'", returns="my_solver")
    bench.case("one")
    assert bench.run().runs["one[agent]"]["model_id"] == "my_solver"


def test_an_agents_exception_is_an_error_with_its_own_frames(bench):
    agent(bench, "def deep(): raise ValueError('out of maps')\ndef agent(case): return deep()")
    bench.case("one")
    bench.case("two")
    finished = bench.run()
    assert finished.exit == 1
    assert finished.outcomes == {"one[agent]": "error", "two[agent]": "error"}
    assert "ValueError: out of maps" in finished.runs["one[agent]"]["message"]
    assert "def deep(): raise ValueError('out of maps')" in finished.text
    for internal in ("pytest_agentbench/", "asyncio/", "agentbench-engine"):
        assert internal not in finished.text


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_exception_that_ends_processes_is_an_error_of_one_run(bench, kind):
    agent(bench, f"{kind} agent(case):\n    if 'Case' not in case.title: raise eval(case.title)\n    return 'Paris'")
    raised = ["SystemExit(3)", "KeyboardInterrupt()", "asyncio.CancelledError()", "StopIteration()", "GeneratorExit()"]
    for number, exception in enumerate(raised):
        bench.case(f"{number}bad", title=exception)
        bench.case(f"{number}good")
    finished = bench.run()
    assert finished.exit == 1
    for number, exception in enumerate(raised):
        assert finished.outcomes[f"{number}bad[agent]"] == "error"
        assert finished.outcomes[f"{number}good[agent]"] == "passed"
        assert exception.split("(")[0].split(".")[-1] in finished.runs[f"{number}bad[agent]"]["message"]


def test_a_wrong_return_value_is_the_agents_failure(bench):
    agent(bench, "def agent(case): return 42")
    bench.case("one")
    row = bench.run().runs["one[agent]"]
    assert (row["outcome"], row["status"]) == ("failed", "invalid")
    assert "returned int" in row["message"]


def test_a_failure_that_the_agent_reports_is_a_failure(bench):
    agent(bench, "def agent(case): return RunOutput(output='Paris', status='failed', error='gave up')")
    bench.case("one")
    row = bench.run().runs["one[agent]"]
    assert (row["outcome"], row["status"]) == ("failed", "failed")
    assert "gave up" in row["message"]


@pytest.mark.parametrize("value", ["'not callable'", "lambda: 'Paris'", "lambda case, context, third: 'Paris'"])
def test_a_runner_that_cannot_be_called_with_a_case_is_an_error(bench, value):
    agent(bench, "", returns=value)
    bench.case("one")
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "error"}
    assert "(case) or (case, context)" in finished.text


def test_a_run_over_its_time_limit_is_the_agents_failure(bench):
    bench.profile("brief", run_timeout_seconds=0.05)
    agent(bench, "async def agent(case): await asyncio.sleep(60)")
    bench.case("one")
    expected = [{"check_id": "slow", "declarative": {"kind": "status_is", "status": "timed_out"}}]
    bench.case("two", deterministic_checks=expected)
    finished = bench.run("--agentbench-run-profile", "brief")
    assert finished.outcomes == {"one[agent]": "failed", "two[agent]": "passed"}
    assert finished.runs["one[agent]"]["status"] == "timed_out"
    assert "run_timeout_seconds (0.05 s)" in finished.runs["one[agent]"]["message"]


def test_a_narrower_fixture_makes_its_runs_one_at_a_time(bench):
    agent(
        bench,
        "busy = []\n"
        "def agent(case):\n    busy.append(1)\n    assert len(busy) == 1\n    busy.pop()\n    return 'Paris'",
        scope="function",
    )
    for case_id in ("one", "two", "three"):
        bench.case(case_id)
    assert set(bench.run().outcomes.values()) == {"passed"}


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("session", ["up", "down"]),
        ("package", ["up", "down"]),
        ("module", ["up", "down"] * 2),
        ("function", ["up", "down"] * 4),
    ],
)
def test_a_fixture_is_torn_down_at_the_end_of_its_scope(bench, scope, expected):
    source = f"""
@pytest.fixture(scope="{scope}")
def agentbench_runner():
    note("lives", "up")
    alive = ["yes"]
    def add(case):
        assert alive
        return "Paris"
    yield add
    alive.clear()
    note("lives", "down")
"""
    bench.agent(HEAD + source)
    bench.questions(2)
    bench.questions(2, name="cases/more.jsonl")
    assert set(bench.run("-p", "no:randomly").outcomes.values()) == {"passed"}
    assert bench.lines("lives") == expected


def test_a_sub_folder_may_bring_its_own_agent(bench):
    agent(bench, "def outer(case): return 'Paris'", returns="outer")
    agent(bench, "def inner(case): return 'Rome'", returns="inner", folder="cases/special")
    bench.case("outside")
    bench.case("inside", folder="cases/special")
    bench.case("zebra")
    finished = bench.run("--model", "gpt4o")  # which needs no key: no case asks it
    rows = {name: (row["outcome"], row["message"]) for name, row in finished.runs.items()}
    assert [rows[f"{name}[gpt4o]"][0] for name in ("outside", "inside", "zebra")] == ["passed", "failed", "passed"]


def test_only_a_sub_folder_has_an_agent(bench):
    agent(bench, "def inner(case): return 'Paris'", returns="inner", folder="cases/special")
    bench.case("a_before")
    bench.case("inside", folder="cases/special")
    bench.case("zebra")
    finished = bench.run()
    assert finished.outcomes == {"a_before[none]": "skipped", "inside[agent]": "passed", "zebra[none]": "skipped"}


def test_each_agent_runs_its_own_cases_once(bench):
    for name in ("a", "b"):
        source = f"def agent(case):\n    note('runs.txt', '{name} ' + case.case_id)\n    return 'Paris'"
        agent(bench, source, folder=f"cases/{name}")
        for number in range(3):
            bench.case(f"{name}{number}", folder=f"cases/{name}")
    bench.run()
    assert sorted(bench.lines("runs.txt")) == [f"{name} {name}{number}" for name in "ab" for number in range(3)]


def test_an_agent_may_come_from_a_plugin(bench):
    agent(bench, "def agent(case): return 'Paris'")
    (bench.path / "conftest.py").rename(bench.path / "their_agent.py")
    bench.pytester.syspathinsert()
    bench.agent("pytest_plugins = ['their_agent']\n")
    bench.case("one")
    assert bench.run().outcomes == {"one[agent]": "passed"}


def test_an_agent_may_depend_on_other_fixtures(bench):
    bench.agent(
        HEAD
        + """
@pytest.fixture(scope="session")
def city(tmp_path_factory):
    yield "Paris"
    note("closed.txt", "closed")

@pytest.fixture(scope="session")
def agentbench_runner(city):
    return lambda case: city

@pytest.fixture(autouse=True)
def around(request):
    yield
    note("around.txt", request.node.name)
"""
    )
    bench.case("one")
    bench.case("two")
    assert bench.run().outcomes == {"one[agent]": "passed", "two[agent]": "passed"}
    assert bench.lines("closed.txt") == ["closed"]
    assert bench.lines("around.txt") == ["one[agent]", "two[agent]"]


@pytest.mark.slow
def test_a_broken_fixture_is_an_error_of_each_case(bench):
    bench.agent(HEAD + "@pytest.fixture(scope='session')\ndef agentbench_runner():\n    raise OSError('no disk')\n")
    bench.case("one")
    bench.case("two")
    finished = bench.run()
    assert finished.outcomes == {"one[agent]": "error", "two[agent]": "error"}
    assert "no disk" in finished.runs["two[agent]"]["message"]


def test_a_broken_teardown_makes_the_run_an_error(bench):
    agent(bench, "def agent(case): return 'Paris'\n@pytest.fixture(autouse=True)\ndef around():\n    yield\n    1 / 0")
    bench.case("one")
    finished = bench.run()
    assert finished.exit == 1
    assert finished.outcomes == {"one[agent]": "error"}


def test_logs_of_a_run_are_shown_under_its_own_item(bench):
    agent(
        bench,
        "async def agent(case):\n"
        "    logging.getLogger('mine').warning('thinking about %s', case.case_id)\n"
        "    await asyncio.sleep(0)\n"
        "    logging.getLogger('mine').error('done with %s', case.case_id)\n"
        "    return 'Rome'",
    )
    for number in range(4):
        bench.case(f"case{number}")
    text = bench.run("--tb=short").text
    for number in range(4):
        section = text.split(f"case{number}[agent] ____")[1].split(" ____")[0]
        assert f"thinking about case{number}" in section
        assert f"done with case{number}" in section
        assert text.count(f"thinking about case{number}") == 1


def test_logs_of_a_plain_functions_thread_belong_to_its_run(bench):
    agent(bench, "def agent(case):\n    logging.getLogger().error('in %s', case.case_id)\n    return 'Rome'")
    bench.case("one")
    text = bench.run().text
    assert "Captured log run" in text
    assert text.count("in one") == 1


STUCK = """
started = threading.Event()
def agent(case):
    if case.case_id.startswith("stuck"):
        started.set()
        threading.Event().wait()
    started.wait()
    return "Rome"
"""


@pytest.mark.slow
def test_a_stuck_function_does_not_keep_the_session_after_x(bench):
    agent(bench, STUCK)
    bench.case("first")
    bench.case("stuck")
    finished = bench.spawn("-x", timeout=20)
    assert finished.exit == 1
    assert finished.outcomes == {"first[agent]": "failed"}


@pytest.mark.slow
def test_a_stuck_function_meets_its_time_limit_and_the_session_ends(bench):
    bench.profile("brief", run_timeout_seconds=0.2)
    agent(bench, STUCK)
    bench.case("first")
    bench.case("stuck")
    finished = bench.spawn("--agentbench-run-profile", "brief", timeout=20)
    assert finished.runs["stuck[agent]"]["status"] == "timed_out"
