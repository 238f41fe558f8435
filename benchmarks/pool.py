"""Measure suites of slow runs in one pool: `python benchmarks/pool.py` runs 10 suites of 6 runs of 60 seconds.

An agent that only waits stands for a slow one, so that the figures show the cost of the session alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENT = """
import asyncio

import pytest


async def agent(case):
    await asyncio.sleep({seconds})
    return case.reference


@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""


def make_suites(folder: Path, suites: int, runs: int, seconds: float) -> None:
    """Write a file of questions for each suite, and the agent."""
    (folder / "conftest.py").write_text(AGENT.format(seconds=seconds), encoding="utf-8")
    for suite in range(1, suites + 1):
        file = folder / "cases" / f"suite_{suite}.jsonl"
        file.parent.mkdir(exist_ok=True)
        rows = ({"id": f"q{run}", "question": f"Question {run}?", "answer": "yes"} for run in range(1, runs + 1))
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def measure(suites: int, runs: int, seconds: float) -> float:
    """Return the seconds of a session in which all runs may be in flight at once. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        make_suites(Path(folder), suites, runs, seconds)
        command = [sys.executable, "-m", "pytest", "cases", "-q", "-p", "no:cacheprovider"]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, f"--agentbench-concurrency={suites * runs}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
    if done.returncode != 0 or f"{suites * runs} passed" not in done.stdout:
        raise RuntimeError(f"the session failed:\n{done.stdout}{done.stderr}")
    return took


def main() -> None:
    """Measure one session and print its time next to the sum of its runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", type=int, default=10)
    parser.add_argument("--runs", type=int, default=6, help="of each suite")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    args = parser.parse_args()
    took = measure(args.suites, args.runs, args.seconds)
    total = args.suites * args.runs * args.seconds
    print(f"{args.suites} suites of {args.runs} runs of {args.seconds:g} s: {took:.1f} s in one pool")
    print(f"one suite after the other, its runs at once: {args.suites * args.seconds:.1f} s or more")
    print(f"one run after the other: {total:.1f} s or more")


if __name__ == "__main__":
    main()
