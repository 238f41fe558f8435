"""The plugins that people use beside this one: a failing last item never ends in status 0, and passes stay passes.

They are installed apart (AGENTBENCH_TEST_PYTEST_PLUGINS, see CONTRIBUTING.md), and each session loads one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.bench import HEAD, LEAN, Bench

HOME = os.environ.get("AGENTBENCH_TEST_PYTEST_PLUGINS")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(HOME is None, reason="AGENTBENCH_TEST_PYTEST_PLUGINS names no environment with other plugins"),
]
LAST_FAILS = (
    HEAD
    + """
async def agent(case):
    note("asked.txt", case.case_id)
    return "Rome" if case.case_id.endswith("q2") and open("asked.txt").read().count("q2") < LUCKY else "Paris"

LUCKY = 1000
"""
)
"""The last of three cases fails, until its `LUCKY`th run passes."""
PLUGINS = {
    "rerunfailures": "--reruns 2",
    "pytest-retry": "--retries 2",
    "flaky": "--force-flaky --max-runs 3",
    "randomly": "-p randomly",
    "pytest_cov": "--cov=.",
    "html": "-p pytest_metadata.plugin -p pytest_html.fixtures --html=report.html",
    "sugar": "--force-sugar",
    "timeout": "--timeout 60",
    "pytest-split": "--splits 1 --group 1",
    "allure_pytest": "--alluredir=allure",
    "asyncio": "--asyncio-mode=auto",
    "anyio": "",
    "pytest_jsonreport": "-p pytest_metadata.plugin --json-report",
    "instafail": "--instafail",
    "pytest_order": "--indulgent-ordering",
    "pytest_mock": "",
    "env": "",
    "pytest-bdd": "--gherkin-terminal-reporter -v",
    "picked": "",
    "pytest-testmon": "--testmon",
    "clarity": "-vv",
    "icdiff": "-vv",
    "md": "--md report.md",
    "repeat": "",
    "flakefinder": "",
}
"""The plugins by the names of their entry points, with options that make them do something."""
DISTRIBUTIONS = ("load", "loadscope", "loadfile", "loadgroup", "worksteal", "no", "each")


def session(bench: Bench, *args: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any] | None]:
    """A session with only these plugins, and its report."""
    assert HOME is not None
    command = [str(Path(HOME) / "bin" / "python"), "-m", "pytest", *LEAN, "-p", "agentbench", *args]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=bench.path, env=environ, capture_output=True, text=True, check=False)
    path = bench.path / "outputs/report.json"
    return done, json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def is_told(done: subprocess.CompletedProcess[str], report: dict[str, Any] | None) -> None:
    """Asserts that the session says that two passed and one failed."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert report is not None
    assert {row["case_id"][-2:]: row["outcome"] for row in report["runs"]} == {
        "q0": "passed",
        "q1": "passed",
        "q2": "failed",
    }
    totals = report["totals"]
    assert (totals["runs"], totals["passed"], totals["failed"]) == (3, 2, 1)
    assert report["session"]["exit_status"] == 1


@pytest.fixture
def project(bench: Bench) -> Bench:
    bench.agent(LAST_FAILS)
    bench.questions(3)
    return bench


@pytest.mark.parametrize(("plugin", "options"), PLUGINS.items(), ids=PLUGINS)
def test_a_failing_last_item_fails_the_session_beside(project: Bench, plugin: str, options: str) -> None:
    is_told(*session(project, "-p", plugin, *options.split()))


@pytest.mark.parametrize("dist", DISTRIBUTIONS)
def test_a_failing_last_item_fails_the_session_distributed_by(project: Bench, dist: str) -> None:
    is_told(*session(project, "-p", "xdist", "--dist", dist, "--tx", "2*popen"))


@pytest.mark.parametrize("options", [["--reruns=2"], ["--reruns=2", "-p", "xdist", "-n2"]], ids=["serial", "xdist"])
def test_a_rerun_is_a_further_draw_that_no_figure_counts(project: Bench, options: list[str]) -> None:
    project.agent(LAST_FAILS.replace("1000", "3"))
    done, report = session(project, "-p", "rerunfailures", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report is not None
    assert (report["totals"]["passed"], report["totals"]["failed"], report["totals"]["pass_rate"]) == (2, 1, 2 / 3)
    [row] = [row for row in report["runs"] if "reruns" in row]
    assert (row["outcome"], row["repetition"]) == ("failed", 1)
    assert [(run["outcome"], run["repetition"]) for run in row["reruns"]] == [("failed", 2), ("passed", 3)]
    assert all((project.path / "outputs" / run["artifact"]).is_file() for run in row["reruns"])
    assert "many.q2[agent] failed, and failed, passed" in done.stdout
    again, repeated = session(project, "-p", "rerunfailures", *options)
    assert (again.returncode, len(project.lines("asked.txt"))) == (0, 5), "stored draws are taken from the store"
    assert repeated is not None
    assert repeated["totals"]["reused"] == 3


def test_a_run_without_a_verdict_is_repeated_and_counted(project: Bench) -> None:
    project.agent(
        HEAD
        + "def agent(case):\n    note('asked.txt')\n"
        + "    if len(open('asked.txt').readlines()) == 3:\n        raise ConnectionError('away')\n    return 'Paris'\n"
    )
    done, report = session(project, "-p", "rerunfailures", "--reruns=1", "--agentbench-concurrency=1")
    assert (done.returncode, report and report["totals"]["passed"]) == (0, 3), done.stdout
    assert report is not None
    [attempt] = [attempt for row in report["runs"] for attempt in row.get("reruns", ())]
    assert (attempt["outcome"], attempt["repetition"]) == ("error", 1)


@pytest.mark.parametrize(("plugin", "option"), [("repeat", "--count=3"), ("flakefinder", "--flake-finder")])
def test_plugins_that_multiply_tests_are_refused(project: Bench, plugin: str, option: str) -> None:
    done, report = session(project, "-p", plugin, option)
    assert (done.returncode, report) == (4, None)
    [line] = done.stderr.strip().splitlines()
    assert "use --agentbench-repetitions" in line


def test_a_marked_test_that_is_to_be_repeated_is_refused(project: Bench) -> None:
    project.case("capital")
    marks = '@pytest.mark.repeat(3)\n@pytest.mark.agentbench("capital")\n'
    project.write("test_it.py", f"import pytest\n\n{marks}def test_it(agentbench_run): pass\n")
    done, _ = session(project, "-p", "repeat")
    assert done.returncode == 4
    assert "test_it.py::test_it" in done.stderr
    assert "use --agentbench-repetitions" in done.stderr
