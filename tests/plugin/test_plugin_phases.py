"""The output of hooks, fixtures and runs appears in the phase or at the item that it belongs to."""

from __future__ import annotations

import json

import pytest

COUNT = 40
AGENT = """
import logging, sys, threading, warnings
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return agent

async def agent(case):
    {body}
    return "no" if case.case_id in ("rows.q7", "rows.q31") else "yes"
"""


def dataset(bench, body="pass", more=""):
    """A file of rows, whose items come one after another, and an agent that answers at once."""
    bench.agent(AGENT.format(body=body) + more)
    rows = [{"id": f"q{number}", "question": "Well?", "answer": "yes"} for number in range(COUNT)]
    bench.write("rows.jsonl", "\n".join(map(json.dumps, rows)))


def test_output_of_a_run_is_shown_by_its_item(bench):
    body = "print('said by', case.case_id); print('told by', case.case_id, file=sys.stderr)\n"
    body += "    logging.getLogger().warning('noted by %s', case.case_id)"
    dataset(bench, body)
    done = bench.run("--tb=short")
    assert done.outcomes["rows.q7[agent]"] == done.outcomes["rows.q31[agent]"] == "failed"
    for word in ("said", "told", "noted"):
        assert [line.split()[-1] for line in done.text.splitlines() if f"{word} by" in line] == ["rows.q7", "rows.q31"]
    for kind in ("stdout", "stderr", "log"):
        assert done.text.count(f"Captured {kind} run") == 2


def test_output_of_runs_is_printed_without_capture(bench):
    dataset(bench, "print('said by', case.case_id)")
    text = bench.run("-s").text
    assert sum("said by" in line for line in text.splitlines()) == COUNT
    assert "Captured stdout" not in text


@pytest.mark.slow
def test_a_run_that_prints_without_end_keeps_the_beginning(bench):
    dataset(bench, "[print('x' * 1000) for _ in range(1000)]; print('the end')")
    text = bench.run().text
    assert 2 * 60_000 < text.count("x") < 2 * 70_000
    assert "the end" not in text


def test_hooks_of_a_conftest_print_into_their_phase(bench):
    phases = ("setup", "call", "teardown")
    more = "".join(
        f"""
def pytest_runtest_{phase}(item):
    print("{phase} hook of", item.name)
    logging.getLogger().warning("{phase} log of %s", item.name)
"""
        for phase in phases
    )
    dataset(bench, more=more)
    text = bench.run("-rP").text
    for phase in phases:
        assert text.count(f"{phase} hook of") == text.count(f"{phase} log of") == COUNT
        assert text.count(f"Captured stdout {phase}") == text.count(f"Captured log {phase}") == COUNT
        for shown in text.split(f"Captured stdout {phase}")[1:]:
            assert shown.splitlines()[1].startswith(f"{phase} hook of")


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["function", "module"])
def test_fixtures_of_the_user_print_into_their_phases(bench, scope):
    more = f"""
@pytest.fixture(autouse=True, scope="{scope}")
def around(request):
    print("made")
    yield
    print("ended")
    logging.getLogger().warning("logged at the end")
    if "{scope}" == "module" or "rows.q39" in request.node.name:
        raise RuntimeError("no end")
"""
    dataset(bench, more=more)
    text = bench.run().text
    last = text[text.index("ERROR at teardown") :]
    assert "Captured stdout teardown" in last
    assert "ended" in last
    assert "logged at the end" in last
    assert "made" not in text.split("= ERRORS")[0]


@pytest.mark.slow
def test_a_runner_made_for_each_item_prints_into_its_own_phases(bench):
    more = """
@pytest.fixture
def agentbench_runner(request):
    print("made for", request.node.name)
    yield agent
    print("ended for", request.node.name)
"""
    dataset(bench, more=more)
    done = bench.run()
    for word in ("made", "ended"):
        told = [line.split()[-1] for line in done.text.splitlines() if f"{word} for" in line]
        assert told == ["rows.q7[agent]", "rows.q31[agent]"]


@pytest.mark.parametrize("options", [(), ("-x",)], ids=["last", "failed"])
def test_the_runners_end_is_captured_with_the_last_item(bench, options):
    more = """
@pytest.fixture(scope="session")
def agentbench_runner():
    yield agent
    print("good bye")
    logging.getLogger().warning("logged at the end")
    raise RuntimeError("no end")
"""
    dataset(bench, more=more)
    text = bench.run(*options).text
    assert "good bye" in text[text.index("Captured stdout teardown") :]
    assert "logged at the end" in text[text.index("Captured log teardown") :]


@pytest.mark.slow
def test_exceptions_that_nobody_could_catch_are_warnings(bench):
    body = """
    class Late:
        def __del__(self):
            raise ValueError("too late for " + case.case_id)
    if case.case_id == "rows.q20":
        Late()
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
"""
    dataset(bench, body)
    text = bench.run().text
    assert "ValueError: too late for rows.q20" in text
    assert "PytestUnhandledThreadExceptionWarning" in text


def test_a_log_file_has_what_fixtures_log(bench):
    more = """
def pytest_runtest_logreport(report):
    if report.when == "call":
        logging.getLogger().warning("reported")

@pytest.fixture(autouse=True, scope="module")
def around():
    logging.getLogger().warning("made")
    yield
    logging.getLogger().warning("ended")
"""
    dataset(bench, more=more)
    bench.run("--log-file=log.txt")
    assert [word in (bench.path / "log.txt").read_text() for word in ("made", "ended")] == [True, True]


def test_most_items_are_not_guarded(bench):
    """Streams are put in place only for items that wait, and at both ends of a file."""
    more = """
def pytest_configure(config):
    capture = config.pluginmanager.get_plugin("capturemanager")
    resume, seen = capture.resume_global_capture, []

    def count():
        seen.append(1)
        resume()

    def tell():
        with open("resumed.txt", "w") as file:
            file.write(str(len(seen)))

    capture.resume_global_capture = count
    config.add_cleanup(tell)
"""
    dataset(bench, more=more)
    bench.run()
    assert int((bench.path / "resumed.txt").read_text()) < 3 * COUNT / 2


GUARDS = ["capture", "logging", "unraisableexception", "threadexception"]


@pytest.mark.parametrize(
    "plugins", [GUARDS, *(pytest.param([plugin], marks=pytest.mark.slow) for plugin in GUARDS)], ids=" ".join
)
def test_a_session_without_a_plugin_that_guards_phases(bench, plugins):
    dataset(bench, "print('said by', case.case_id)")
    done = bench.run(*(f"-pno:{plugin}" for plugin in plugins))
    assert len(done.outcomes) == COUNT
    assert [*done.outcomes.values()].count("failed") == 2
