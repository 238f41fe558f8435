"""What ends the engine though nobody asked it to end, and what agents break: errors of items, never skips."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest
from support.bench import HEAD, LEAN, Bench
from support.fault_endpoint import FaultEndpoint

OUTSET = HEAD + "import ctypes, signal, sys\n"
ENDS = {
    "stops its loop": "asyncio.get_running_loop().stop()",
    "stops it from a thread": "asyncio.get_running_loop().call_soon_threadsafe(asyncio.get_running_loop().stop)",
    "leaves in a callback": "asyncio.get_running_loop().call_soon(sys.exit)",
    "raises KeyboardInterrupt in a task": "asyncio.create_task(interrupted())",
}
"""What ends the loop; all that is pending is lost with it."""
TRIES = {
    "closes its loop": "asyncio.get_running_loop().close()",
    "leaves": "sys.exit()",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "kills its thread": "ctypes.pythonapi.PyThreadState_SetAsyncExc(THREAD, ctypes.py_object(SystemExit))",
    "cancels every task": "[task.cancel() for task in asyncio.all_tasks()]",
    "replaces the policy": (
        "asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()); asyncio.set_event_loop(None); raise OSError"
    ),
}
"""What has no say over the others' runs that come after it."""
AGENT = (
    OUTSET
    + """
async def interrupted():
    raise KeyboardInterrupt

async def agent(case):
    if case.case_id.endswith("q2"):
        THREAD = ctypes.c_ulong(threading.get_ident())
        {does}
    await asyncio.sleep(0.01)
    return "Paris"
"""
)
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("does", ENDS.values(), ids=ENDS)
def test_an_agent_that_ends_the_engine_is_an_error_of_every_pending_item(bench: Bench, does: str) -> None:
    bench.agent(AGENT.format(does=does))
    bench.questions(6)
    finished = bench.run("-pno:unraisableexception", "--agentbench-concurrency=3")
    assert finished.exit == 1
    assert len(finished.outcomes) == 6
    assert set(finished.outcomes.values()) <= {"passed", "error"}
    errors = [row["message"] for row in finished.runs.values() if row["outcome"] == "error"]
    assert len(errors) >= 4
    assert all("the engine died: " in message and "many.q2" in message for message in errors)


@pytest.mark.parametrize("does", TRIES.values(), ids=TRIES)
def test_an_agent_that_tries_to_breaks_what_runs_beside_it_at_most(bench: Bench, does: str) -> None:
    bench.agent(AGENT.format(does=does))
    bench.questions(6)
    finished = bench.run("-pno:unraisableexception", "--agentbench-concurrency=2")
    assert finished.exit == 1
    outcomes = [*finished.outcomes.values()]
    assert outcomes[2] == "error"
    assert (outcomes[:1], outcomes[4:]) == (["passed"], ["passed"] * 2)
    assert set(outcomes) == {"passed", "error"}


CLOSING = [
    "sys.stdout.close()",
    "sys.stderr.close()",
    "sys.__stdout__.close()",
    "sys.stdout.buffer.close()",
    "sys.stdout.detach()",
]


def test_an_agent_that_closes_a_stream_breaks_its_own_item_only(bench: Bench) -> None:
    bench.agent(
        HEAD
        + f"""
import sys

async def agent(case):
    number = int(case.case_id.rpartition("q")[2])
    if number % 2 == 0:
        exec({CLOSING}[number // 2])
    print("here I am")
    return "Paris"
"""
    )
    bench.questions(10)
    finished = bench.run()
    assert [*finished.outcomes.values()] == ["error", "passed"] * 5
    for number in range(0, 10, 2):
        assert "the stream is the whole session's" in finished.runs[f"cases/many.q{number}[agent]"]["message"]
    assert not sys.stdout.closed
    finished.result.assert_outcomes(passed=5, errors=5)


IN_ONE_CASE = """
async def agent(case):
    if case.case_id.endswith("q2"):
        {does}
    return "Paris"
"""


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_an_agent_that_closes_the_terminals_descriptor_takes_no_summary(bench: Bench, capture: str) -> None:
    bench.agent(HEAD + IN_ONE_CASE.format(does="os.close(1)"))
    bench.questions(5)
    finished = bench.spawn(f"--capture={capture}", "--agentbench-concurrency=1")
    assert finished.exit == 0
    finished.result.assert_outcomes(passed=5)
    assert "5 runs: 5 passed" in finished.text


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["serial", "xdist"])
def test_an_agent_that_blocks_the_loop_is_named_with_the_time(bench: Bench, workers: tuple[str, ...]) -> None:
    bench.agent(HEAD + "def wait():\n    time.sleep(1.6)\n" + IN_ONE_CASE.format(does="wait()"))
    bench.questions(6)
    finished = bench.spawn(*workers)
    assert finished.exit == 0
    [warning] = finished.report["session"]["warnings"]
    found = re.match(r"cases/many\.q2 blocked the event loop for (\d\.\d) s at (.*), in agent: ", warning)
    assert found is not None, warning
    assert float(found[1]) >= 1.4
    path, line = found[2].rsplit(":", 1)
    assert bench.path.joinpath(path).read_text().splitlines()[int(line) - 1].strip() == "wait()"


@pytest.mark.slow
def test_few_open_files_bound_what_is_in_flight(bench: Bench) -> None:
    bench.questions(150, answer="ok")
    with FaultEndpoint(latency=0.05, answer=lambda body: {"role": "assistant", "content": "ok"}) as endpoint:
        bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none"})
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *LEAN, "-q", "--model=local", "--agentbench-concurrency=300"],
            cwd=bench.path,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),
        )
    assert done.returncode == 0, done.stdout
    assert "150 passed" in done.stdout
    assert (
        "warning: 48 runs are made at once, not 300: this process may have no more than 256 files open" in done.stdout
    )
