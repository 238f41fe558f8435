"""Measure what a session costs, and fail where it became worse: `python benchmarks/check.py [--quick | --record]`.

Without an option it measures all parts (ten minutes) and fails where a figure is 15 % worse than in the newest record
of `results/`, the second time too. `--record` writes the record of this commit and the tables of docs/performance.md;
with `--only` it measures some parts anew into that record. `--quick` (a minute) measures fewer items in one round, and
fails if a figure is over twice its target: machines and their other load make no such difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import gateway
import metrics
import reuse
import throughput
from processes import ROUNDS, Bench, Places, Scenario, add_options, open_places
from record import RESULTS, Line, Record, newest_record, record_of_this_commit, renew_page, table
from startup import INSTALLED, PLAIN

SESSIONS = {
    ("a case of a callable", "CPU"): 2.0,
    (f"a case of a callable{INSTALLED}", "CPU"): 2.0,
    ("a case of a callable", "modules"): 150,
    ("cases/rubric_judge", "files"): 70,
}
"""What sessions of `startup.py` may take: CPU in plain pytest's, modules imported, files whose functions run."""
WIDE = 2.0
"""The quick form judges by so many times the targets."""


def session(bench: Bench) -> Iterator[Line]:
    """Sessions of one case, by `startup.py`; of processes this short more rounds are cheap."""
    found = bench.folder / "startup.json"
    rounds = max((2 * bench.rounds + 1) // bench.scale, 1)
    command = (sys.executable, str(Path(__file__).with_name("startup.py")), f"--json={found}", f"--rounds={rounds}")
    subprocess.run(command, stdout=subprocess.DEVNULL)  # it fails where a target is missed: here that is a line
    for each in json.loads(found.read_text(encoding="utf-8"))["sessions"]:
        name, cpu, least = each["name"], each["cpu_seconds"], each["plain_seconds"]
        if name.startswith(PLAIN):
            continue
        yield Line(f"{name}: CPU", cpu, "s", least, "plain pytest, one test", SESSIONS.get((name, "CPU")))
        for what, meaning in (("modules", "imported"), ("files", "whose functions run")):
            if each.get(what):
                yield Line(f"{name}: {what} {meaning}", len(each[what]), what, target=SESSIONS.get((name, what)))


@dataclass(frozen=True)
class Part:
    """A part of a record. `quick` divides its items in the quick form, to which it does not belong where that is 0."""

    scenario: Scenario
    quick: int = 0


PARTS = {
    "run": Part(throughput.SCENARIOS["run"], quick=4),
    "threads": Part(throughput.SCENARIOS["threads"]),
    "memory": Part(throughput.SCENARIOS["memory"], quick=2),
    "junit": Part(throughput.SCENARIOS["junit"]),
    "disk": Part(throughput.SCENARIOS["disk"], quick=5),
    "disk_small": Part(throughput.SCENARIOS["disk_small"]),
    "failures": Part(throughput.SCENARIOS["failures"], quick=4),
    "failures_disk": Part(throughput.SCENARIOS["failures_disk"]),
    "files": Part(throughput.SCENARIOS["files"], quick=1),
    "http": Part(throughput.SCENARIOS["http"], quick=2),
    "wait": Part(throughput.SCENARIOS["wait"]),
    "stream": Part(throughput.SCENARIOS["stream"]),
    "passed": Part(gateway.SCENARIOS["passed"]),
    "translated": Part(gateway.SCENARIOS["translated"]),
    "workers": Part(reuse.SCENARIOS["workers"]),
    "session": Part(Scenario(session), quick=2),
    "start": Part(throughput.SCENARIOS["start"], quick=1),
    "collect": Part(throughput.SCENARIOS["collect"], quick=10),
    "reused": Part(reuse.SCENARIOS["reused"], quick=10),
    "growth": Part(reuse.SCENARIOS["growth"]),
    "rouge": Part(metrics.SCENARIOS["rouge"], quick=10),
    "benchmark": Part(metrics.SCENARIOS["benchmark"]),
}

Problem = Callable[[str, Line], str | None]
"""What is wrong with a line of a part."""


def widen(part: str, line: Line) -> Line:
    """Return the line with the target of the quick form.

    Wall time is other programs' too, so it is judged only where most of it is waiting; the rest has a line of CPU.
    """
    judged = part == "http" or ": wall" not in line.name
    return replace(line, target=WIDE * line.target if judged and line.target is not None else None)


def misses_its_target(part: str, line: Line) -> str | None:
    """Return the problem of a line that takes more than it may."""
    return f"{line.judged:.3g}, at most {line.target:g}" if line.met is False else None


def is_worse_than(last: Record | None, part: str, line: Line) -> str | None:
    """Return the problem of a line that the last record has a better one of."""
    if last is None:
        return None
    for earlier in last.parts.get(part, ()):
        if earlier.name == line.name and line.is_worse_than(earlier):
            return f"{line.judged:.3g}, {earlier.judged:.3g} at {last.commit}"
    return None


def measure_part(places: Places, name: str, *, rounds: int, quick: bool) -> list[Line]:
    """Return the lines of a part, and say how long it took."""
    begun = time.monotonic()
    print(f"{name} ...", end="", file=sys.stderr, flush=True)
    lines = places.measure(PARTS[name].scenario, rounds=rounds, scale=PARTS[name].quick if quick else 1)
    print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return [widen(name, line) for line in lines] if quick else lines


def check(places: Places, names: Sequence[str], problem: Problem, *, rounds: int, quick: bool) -> list[str]:
    """Print the parts' tables and return the problems of their lines that a second measurement confirms."""
    problems = []
    for name in names:
        lines = measure_part(places, name, rounds=1 if quick else rounds, quick=quick)
        if any(problem(name, line) for line in lines):
            lines = measure_part(places, name, rounds=rounds, quick=quick)
        print(table(lines), flush=True)
        problems += [f"{line.name}: {said}" for line in lines if (said := problem(name, line))]
    return problems


def record(places: Places, names: Sequence[str], *, rounds: int) -> list[str]:
    """Write the record of this commit and the page, and return what is worse than in the record before."""
    made = record_of_this_commit(RESULTS, rounds)
    last = newest_record(RESULTS, but=made.commit)
    for name in names:
        made = made.with_part(name, measure_part(places, name, rounds=rounds, quick=False))
        made.write(RESULTS)
    lines = [(name, line) for name in PARTS for line in made.parts.get(name, ())]
    print(table(line for _, line in lines))
    renew_page(newest_record(RESULTS))
    return [f"{line.name}: {said}" for name, line in lines if (said := is_worse_than(last, name, line))]


def main() -> int:
    """Print what was measured; return 1 where it is worse than it may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="fewer items, judged by twice the targets")
    how.add_argument("--record", action="store_true", help="write the record of this commit, and docs/performance.md")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    add_options(parser)
    args = parser.parse_args()
    names = args.only or [name for name, part in PARTS.items() if part.quick or not args.quick]
    if args.quick and (slow := [name for name in names if not PARTS[name].quick]):
        parser.error(f"--quick: found {', '.join(slow)}, which the quick form leaves out")
    rounds = args.rounds or ROUNDS
    with open_places(args.disk) as places:
        if args.record:
            problems = record(places, names, rounds=rounds)
        else:
            problem = misses_its_target if args.quick else partial(is_worse_than, newest_record(RESULTS))
            problems = check(places, names, problem, rounds=rounds, quick=args.quick)
    print("", *problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
