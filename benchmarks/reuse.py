"""What the store and the workers cost, as ratios in one run: `python benchmarks/reuse.py [--quick] [--only NAME]`.

How it is measured: `processes.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from processes import OURS, PLAIN, PYTEST, Bench, Scenarios, compare, endpoint, models, parser_of, rows, script
from record import Line
from throughput import agent_project, plain_project

SCENARIOS = Scenarios()


def paid(bench: Bench, count: int) -> tuple[tuple[str, ...], Path]:
    """Make a session over `count` rows that are all in the store."""
    project = agent_project(bench, count)
    session = (*PYTEST, f"--agentbench-output={project / 'outputs'}")
    bench.run(session, project)
    return session, project


@SCENARIOS.add()
def reused(bench: Bench) -> Iterator[Line]:
    """10,000 rows that are all in the store, against as many trivial tests."""
    count = 10_000 // bench.scale
    mine, plain = bench.alternate(paid(bench, count), (PLAIN, plain_project(bench, count)))
    for what, ours, peer in (("wall", mine.wall, plain.wall), ("CPU", mine.cpu, plain.cpu)):
        yield Line(f"{count:,} reused items: {what}", ours, "s", peer, "plain pytest", 1.5)


@SCENARIOS.add()
def growth(bench: Bench) -> Iterator[Line]:
    """20,000 runs in one store: finding and reporting them, an item, against a fifth as many."""
    few, many = 4_000 // bench.scale, 20_000 // bench.scale
    small, large = bench.alternate(paid(bench, few), paid(bench, many))
    ours, peer = 1000 * large.wall / many, 1000 * small.wall / few
    yield Line(f"{many:,} reused items: wall an item", ours, "ms", peer, f"{few:,} items", 1.2)


@SCENARIOS.add()
def workers(bench: Bench) -> Iterator[Line]:
    """2,000 items on a loopback endpoint that takes 200 ms, 200 at once: two workers against one process."""
    count, at_once = 2_000 // bench.scale, 200 // bench.scale
    source = bench.project("endpoint", {"items.jsonl": rows(count), "items.demo.yaml": script(count)})
    with endpoint(source, latency=0.2) as base_url:
        entry = models(model_id="slow", requested_model="demo", base_url=base_url, api_key_env="none")
        ours = bench.project("spread", {"items.jsonl": rows(count), "models.yaml": entry})
        lean = "-pno:hypothesispytest"  # this environment's, not a user's: each process would import it all at its end
        argv = (*OURS, lean, "--model=slow", f"--agentbench-concurrency={at_once}")
        two, one = bench.alternate(((*argv, "-n2"), ours), (argv, ours))
    name = f"{count:,} items of 200 ms, {at_once} at once, -n 2: wall"
    yield Line(name, two.wall, "s", one.wall, "one process", 1.2)


if __name__ == "__main__":
    sys.exit(compare(parser_of(__doc__, SCENARIOS), SCENARIOS, ("pytest", "pytest-xdist", "filelock")))
