"""What the store and the workers cost, as ratios in one run: `python benchmarks/reuse.py [--quick] [--only NAME]`.

Measured like `throughput.py`: a process for every side, several rounds, the least of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from throughput import (
    AGENT,
    OURS,
    PLAIN,
    PLAIN_TESTS,
    PYTEST,
    Bench,
    Row,
    Scenario,
    compare,
    endpoint,
    models,
    rows,
    script,
)

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Registers a scenario under its function's name."""
    SCENARIOS[function.__name__] = function
    return function


def paid(bench: Bench, name: str, count: int) -> tuple[tuple[str, ...], Path]:
    """A session over `count` rows that are all in the store."""
    project = bench.project(name, {"items.jsonl": rows(count), "conftest.py": AGENT.format(kind="async def")})
    session = (*PYTEST, f"--agentbench-output={project / 'outputs'}")
    bench.run(session, project)
    return session, project


@scenario
def reused(bench: Bench) -> Iterator[Row]:
    """10,000 rows that are all in the store, against as many trivial tests."""
    count = 10_000 // bench.scale
    plain = bench.project("plain", {"items.jsonl": rows(count), "test_rows.py": PLAIN_TESTS})
    mine, peer = bench.alternate(paid(bench, "paid", count), (PLAIN, plain))
    for name, ours, theirs in (("wall", mine.wall, peer.wall), ("CPU", mine.cpu, peer.cpu)):
        ratio = ours / theirs
        peers = f"{theirs:.2f} s (plain pytest)"
        yield Row(f"{count:,} reused items: {name}", f"{ours:.2f} s", peers, ratio, "≤ 1.5 ×", ratio <= 1.5)


@scenario
def growth(bench: Bench) -> Iterator[Row]:
    """50,000 runs in one store: finding and reporting them, an item, against a fifth as many."""
    few, many = 10_000 // bench.scale, 50_000 // bench.scale
    small, large = bench.alternate(paid(bench, "few", few), paid(bench, "many", many))
    ratio = (large.wall / many) / (small.wall / few)
    ours, peer = f"{1000 * large.wall / many:.2f} ms", f"{1000 * small.wall / few:.2f} ms ({few:,} items)"
    yield Row(f"{many:,} reused items: wall an item", ours, peer, ratio, "≤ 1.2 ×", ratio <= 1.2)


@scenario
def workers(bench: Bench) -> Iterator[Row]:
    """2,000 items on a loopback endpoint that takes 200 ms, 200 at once: two workers against one process."""
    count, at_once = 2_000 // bench.scale, 200 // bench.scale
    source = bench.project("endpoint", {"items.jsonl": rows(count), "items.demo.yaml": script(count)})
    with endpoint(source, latency=0.2) as base_url:
        entry = models(model_id="slow", requested_model="demo", base_url=base_url, api_key_env="none")
        ours = bench.project("spread", {"items.jsonl": rows(count), "models.yaml": entry})
        lean = "-pno:hypothesispytest"  # this environment's, not a user's: each process would import it all at its end
        argv = (*OURS, lean, "--model=slow", f"--agentbench-concurrency={at_once}")
        two, one = bench.alternate(((*argv, "-n2"), ours), (argv, ours))
    ratio = two.wall / one.wall
    name = f"{count:,} items of 200 ms, {at_once} at once, -n 2: wall"
    yield Row(name, f"{two.wall:.2f} s", f"{one.wall:.2f} s (one process)", ratio, "≤ 1.2 ×", ratio <= 1.2)


if __name__ == "__main__":
    sys.exit(compare(__doc__, SCENARIOS, ("pytest", "pytest-xdist", "filelock")))
