"""What workers, shards and machines bring and cost: `python benchmarks/scaling.py [--quick] [--only NAME]`.

How it is measured: `processes.py`. Nothing here has a target; `reuse.py` judges the one that workers have.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from processes import OURS, Bench, Cost, Scenarios, compare, endpoint, models, parser_of, rows, script
from record import Line

AGENT = """
import asyncio, time
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    async def add(case):
        {work}
        return str(int(case.messages[-1].content.split()[2]) + 1)

    return add
"""
WAITS = AGENT.format(work="await asyncio.sleep(0.2)")
COMPUTES = AGENT.format(work="until = time.thread_time() + 0.02\n        while time.thread_time() < until: pass")
INI = "[pytest]\ntestpaths = .\naddopts = --rsyncignore=*\n"

SCENARIOS = Scenarios()


def _line(name: str, mine: Cost, peer: Cost) -> Line:
    return Line(f"{name}: wall", mine.wall, "s", peer.wall, "one process")


@SCENARIOS.add()
def waiting(bench: Bench) -> Iterator[Line]:
    """2,000 runs of 200 ms, 200 at once over all workers: 2 seconds is the least."""
    count, at_once = 2_000 // bench.scale, 200 // bench.scale
    project = bench.project("waiting", {"items.jsonl": rows(count), "conftest.py": WAITS, "pytest.ini": INI})
    argv = (*OURS, f"--agentbench-concurrency={at_once}")
    one, two, four = bench.alternate((argv, project), ((*argv, "-n2"), project), ((*argv, "-n4"), project))
    yield _line(f"{count:,} runs of 200 ms, {at_once} at once, `-n 2`", two, one)
    yield _line("the same, `-n 4`", four, one)
    with ExitStack() as stack:
        ports = [stack.enter_context(socket_server(bench.folder)) for _ in range(2)]
        tx = [f"--tx=socket=127.0.0.1:{port}//chdir={project}" for port in ports]
        yield _line("the same, two socket servers", bench.run((*argv, "-d", *tx), project), one)
    parts = [bench.run((*argv, f"--agentbench-shard={part}/4"), project) for part in range(1, 5)]
    yield _line("the same, the slowest of 4 shards", max(parts, key=lambda cost: cost.wall), one)


@SCENARIOS.add()
def computing(bench: Bench) -> Iterator[Line]:
    """400 runs that compute for 20 ms each."""
    count = 400 // bench.scale
    project = bench.project("computing", {"items.jsonl": rows(count), "conftest.py": COMPUTES})
    one, two = bench.alternate((OURS, project), ((*OURS, "-n2"), project))
    yield _line(f"{count:,} runs that compute for 20 ms, `-n 2`", two, one)


@SCENARIOS.add()
def limits(bench: Bench) -> Iterator[Line]:
    """2,000 requests under `-n 2`: with limits that the controller is asked for, against none that are declared."""
    count = 2_000 // bench.scale
    source = bench.project("endpoint", {"items.jsonl": rows(count), "items.demo.yaml": script(count)})
    with endpoint(source, latency=0.05) as base_url:
        sides = []
        for name, declared in (("limited", {"max_concurrency": 100, "rpm": 600_000}), ("unlimited", {})):
            entry = models(model_id="m", requested_model="demo", base_url=base_url, api_key_env="none", limits=declared)
            project = bench.project(name, {"items.jsonl": rows(count), "models.yaml": entry})
            sides.append(((*OURS, "--model=m", "-n2", "--agentbench-concurrency=100"), project))
        mine, peer = bench.alternate(*sides)
    ours, theirs = (1000 * cost.cpu / count for cost in (mine, peer))
    name = f"{count:,} requests, `-n 2`, limits declared: CPU a request, all processes"
    yield Line(name, ours, "ms", theirs, "none declared")


@contextmanager
def socket_server(folder: Path) -> Iterator[int]:
    """execnet's socket server on a free port, where another machine would have it."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, "-u", "-m", "execnet.script.socketserver", f"127.0.0.1:{port}"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        server.stdout.readline()  # it listens
        yield port
    finally:
        server.kill()
        server.communicate()


if __name__ == "__main__":
    sys.exit(compare(parser_of(__doc__, SCENARIOS), SCENARIOS, ("pytest", "pytest-xdist")))
