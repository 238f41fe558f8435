"""What a case costs, as ratios to peers in the same run: `python benchmarks/throughput.py [--quick] [--only NAME]`.

Every side of a scenario is a process of its own; the sides alternate over several rounds and the best of each counts,
for other programs only ever add to a cost. CPU (user and system) and peak memory are the child's, from `os.wait4`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest", "-q")
PLAIN = (*PYTEST, "-p", "no:agentbench")
OURS = (*PYTEST, "--agentbench-output={fresh}")
COLLECT = ("--collect-only", "-qq")

AGENT = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    {kind} add(case):
        return str(int(case.messages[-1].content.split()[2]) + 1)

    return add
"""

PLAIN_TESTS = """
import json, pathlib
import pytest

ROWS = [json.loads(line) for line in pathlib.Path(__file__).with_name("items.jsonl").open()]

@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_row(row):
    assert str(int(row["question"].split()[2]) + 1) == row["answer"]
"""

PLAIN_COLLECTOR = """
import json
import pytest, yaml

class Item(pytest.Item):
    def __init__(self, *, case, **kw):
        super().__init__(**kw)
        self.case = case

    def runtest(self):
        assert self.case

class Rows(pytest.File):
    def collect(self):
        with self.path.open() as file:
            for line in file:
                case = json.loads(line)
                yield Item.from_parent(self, name=case["id"], case=case)

class Folder(pytest.File):
    def collect(self):
        case = yaml.load(self.path.read_bytes(), Loader=yaml.CSafeLoader)
        yield Item.from_parent(self, name=case["case_id"], case=case)

def pytest_collect_file(file_path, parent):
    kind = {".jsonl": Rows, ".yaml": Folder}.get(file_path.suffix)
    return kind and kind.from_parent(parent, path=file_path)
"""

GATHER = """
import asyncio, json, pathlib, sys
from openai import AsyncOpenAI

async def main(base_url, concurrency):
    client, free = AsyncOpenAI(base_url=base_url, api_key="none"), asyncio.Semaphore(concurrency)

    async def ask(row):
        async with free:
            messages = [{"role": "user", "content": row["question"]}]
            reply = await client.chat.completions.create(model="demo", messages=messages)
            assert reply.choices[0].message.content == row["answer"]

    await asyncio.gather(*(ask(json.loads(line)) for line in pathlib.Path("items.jsonl").open()))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

IMPORT = """
import pytest, time
begun = time.perf_counter()
import pytest_agentbench.plugin
print(time.perf_counter() - begun)
"""

CASE = """schema_version: 1
case_id: {name}
title: The successor of {number}
runner:
  type: llm_probe
input:
  messages:
    - role: user
      content: What is {number} + 1?
deterministic_checks:
  - check_id: answer
    declarative:
      kind: regex_match
      pattern: ^{answer}$
tags: [smoke]
"""


@dataclass(frozen=True)
class Cost:
    """What one process took: seconds of CPU and of wall time, peak resident memory in MB, and what it printed."""

    cpu: float
    wall: float
    peak: float
    printed: str


@dataclass(frozen=True)
class Row:
    """A line of the table. `met` None: not judged."""

    scenario: str
    ours: str
    peer: str
    ratio: float | None
    target: str
    met: bool | None


Scenario = Callable[["Bench"], Iterator[Row]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Registers a scenario under its function's name."""
    SCENARIOS[function.__name__] = function
    return function


class Bench:
    """A folder for projects and outputs, a fresh one for every process, and the processes."""

    def __init__(self, folder: Path, *, rounds: int, scale: int) -> None:
        self.folder, self.rounds, self.scale = folder, rounds, scale
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OPENAI_", "PYTHON"))}
        self.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")  # as installed, and the checkout stays clean
        self._runs = 0

    def project(self, name: str, files: dict[str, str]) -> Path:
        """A folder with these files, and a pytest.ini."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for path, text in {"pytest.ini": "[pytest]\n", **files}.items():
            (folder / path).write_text(text, encoding="utf-8")
        return folder

    def run(self, argv: Sequence[str], cwd: Path) -> Cost:
        """One process to its end, `{fresh}` being a folder of its own; SystemExit with its output where it fails."""
        self._runs += 1
        log = self.folder / f"{self._runs}.log"
        command = [argument.replace("{fresh}", str(self.folder / f"output-{self._runs}")) for argument in argv]
        with log.open("wb") as stdout:
            begun = time.perf_counter()
            process = subprocess.Popen(command, cwd=cwd, env=self.environ, stdout=stdout, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        printed = log.read_text(encoding="utf-8", errors="replace")
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-1000:]}")
        bytes_of_maxrss = 1 if sys.platform == "darwin" else 1024
        return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * bytes_of_maxrss / 1e6, printed)

    def alternate(self, *sides: tuple[Sequence[str], Path]) -> list[Cost]:
        """The least that each side took, over rounds in which all of them take their turn."""
        costs = [[self.run(argv, cwd) for argv, cwd in sides] for _ in range(self.rounds)]
        return [_least(side) for side in zip(*costs, strict=True)]


def _least(costs: Sequence[Cost]) -> Cost:
    cpu, wall, peak = (min(c.cpu for c in costs), min(c.wall for c in costs), max(c.peak for c in costs))
    return Cost(cpu, wall, peak, costs[0].printed)


def rows(count: int) -> str:
    """A JSONL dataset of sums."""
    items = ({"id": f"q{n}", "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count))
    return "".join(json.dumps(item) + "\n" for item in items)


def script(count: int) -> str:
    """What the scripted model answers to `rows(count)`; JSON is YAML."""
    return json.dumps({"schema_version": 1, "answers": {f"q{n}": str(n + 1) for n in range(count)}})


def models(**entry: object) -> str:
    """A models.yaml of one model."""
    return json.dumps({"schema_version": 1, "models": [entry]})


@scenario
def run(bench: Bench) -> Iterator[Row]:
    """10,000 JSONL items: users' callables, the scripted model, JUnit; CPU an item and peak memory."""
    count = 10_000 // bench.scale
    plain = bench.project("plain", {"items.jsonl": rows(count), "test_rows.py": PLAIN_TESTS})
    own, threaded = (
        bench.project(name, {"items.jsonl": rows(count), "conftest.py": AGENT.format(kind=kind)})
        for name, kind in (("own", "async def"), ("threaded", "def"))
    )
    demo = {"items.jsonl": rows(count), "items.demo.yaml": script(count)}
    scripted = bench.project("scripted", demo | {"models.yaml": models(model_id="demo", scripted=True)})
    junit = "--junit-xml={fresh}/junit.xml"
    sides = [(PLAIN, plain), (OURS, own), (OURS, threaded), ((*OURS, "--model=demo"), scripted), ((*OURS, junit), own)]
    peer, *costs = bench.alternate(*sides)
    names = ("an `async def` agent", "a `def` agent", "`--model demo`", "the `async def` agent, JUnit")
    for name, cost, limit in zip(names, costs, (0.8, 0.8, 2.5), strict=False):
        each = 1000 * cost.cpu / count
        yield Row(
            f"{count:,} items, {name}: CPU an item",
            f"{each:.2f} ms",
            f"{1000 * peer.cpu / count:.2f} ms (plain pytest)",
            cost.cpu / peer.cpu,
            f"≤ {limit} ms",
            each <= limit,
        )
    for name, cost, limit in zip(names, costs, (250, 250, 250, 300), strict=True):
        yield Row(
            f"{count:,} items, {name}: peak memory",
            f"{cost.peak:.0f} MB",
            f"{peer.peak:.0f} MB (plain pytest)",
            cost.peak / peer.peak,
            f"< {limit} MB",
            cost.peak < limit,
        )


@scenario
def wait(bench: Bench) -> Iterator[Row]:
    """2,000 items on a loopback endpoint that takes 200 ms, 200 at once."""
    count, at_once = 2_000 // bench.scale, 200 // bench.scale
    source = bench.project("endpoint", {"items.jsonl": rows(count), "items.demo.yaml": script(count)})
    with endpoint(source, latency=0.2) as base_url:
        entry = models(model_id="slow", requested_model="demo", base_url=base_url, api_key_env="none")
        ours = bench.project("ahead", {"items.jsonl": rows(count), "models.yaml": entry})
        bare = bench.project("bare", {"items.jsonl": rows(count), "gather.py": GATHER})
        argv = (*OURS, "--model=slow", f"--agentbench-concurrency={at_once}")
        gather = (sys.executable, "gather.py", base_url, str(at_once))
        mine, peer = bench.alternate((argv, ours), (gather, bare))
    name = f"{count:,} items of 200 ms, {at_once} at once"
    yield _ratio(f"{name}: wall", mine.wall, peer.wall, "asyncio.gather", 1.3)
    each, theirs = (1000 * cost.cpu / count for cost in (mine, peer))
    yield Row(f"{name}: CPU an item", f"{each:.2f} ms", f"{theirs:.2f} ms (asyncio.gather)", each / theirs, "", None)


@contextmanager
def endpoint(source: Path, *, latency: float) -> Iterator[str]:
    """`agentbench serve` in a process of its own, on a free port."""
    code = "import sys; from pytest_agentbench.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "serve", str(source), "--port=0", f"--latency={latency}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait()


@scenario
def collect(bench: Bench) -> Iterator[Row]:
    """100,000 JSONL rows and 10,000 `test.yaml` folders, only collected; the peer is the least that a plugin can do."""
    count = 100_000 // bench.scale
    ours = bench.project("many", {"items.jsonl": rows(count)})
    plain = bench.project("many-plain", {"items.jsonl": rows(count), "conftest.py": PLAIN_COLLECTOR})
    mine, peer = bench.alternate(((*OURS, *COLLECT), ours), ((*PLAIN, *COLLECT), plain))
    yield _ratio(f"collecting {count:,} JSONL rows", mine.wall, peer.wall, "trivial collector", 1.0)
    count = 10_000 // bench.scale
    ours = bench.project("folders", {})
    plain = bench.project("folders-plain", {"conftest.py": PLAIN_COLLECTOR})
    for number in range(count):
        text = CASE.format(name=f"case-{number}", number=number, answer=number + 1)
        for folder in (ours / f"case-{number}", plain / f"case-{number}"):
            folder.mkdir()
            (folder / "test.yaml").write_text(text, encoding="utf-8")
    mine, peer = bench.alternate(((*OURS, *COLLECT), ours), ((*PLAIN, *COLLECT), plain))
    yield _ratio(f"collecting {count:,} `test.yaml` folders", mine.wall, peer.wall, "trivial collector", 1.2)


@scenario
def start(bench: Bench) -> Iterator[Row]:
    """What a session without a case pays for: the import of the plugin after pytest's own."""
    here = bench.project("start", {})
    seconds = min(float(bench.run((sys.executable, "-c", IMPORT), here).printed) for _ in range(3 * bench.rounds))
    yield Row("importing the plugin after pytest", f"{1000 * seconds:.0f} ms", "", None, "< 50 ms", seconds < 0.05)


def _ratio(name: str, mine: float, peer: float, who: str, limit: float) -> Row:
    ratio = mine / peer
    return Row(name, f"{mine:.2f} s", f"{peer:.2f} s ({who})", ratio, f"≤ {limit:g} ×", ratio <= limit)


def table(found: Sequence[Row]) -> str:
    """Markdown."""
    lines = ["| scenario | ours | peer | ratio | target | met |", "|---|---:|---:|---:|---:|---|"]
    for row in found:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = "" if row.met is None else "yes" if row.met else "**no**"
        lines.append(f"| {row.scenario} | {row.ours} | {row.peer} | {ratio} | {row.target} | {met} |")
    return "\n".join(lines)


def parser_of(description: str | None, scenarios: Mapping[str, Scenario]) -> argparse.ArgumentParser:
    """The options that every script here has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items and one round, not judged")
    parser.add_argument("--only", choices=scenarios, help="one scenario")
    return parser


def measured(args: argparse.Namespace, scenarios: Mapping[str, Scenario], folder: str, rounds: int) -> list[Row]:
    """The rows of the scenarios that are asked for, in `rounds` rounds."""
    bench = Bench(Path(folder), rounds=rounds, scale=10 if args.quick else 1)
    chosen = [scenarios[args.only]] if args.only else scenarios.values()
    return [replace(row, met=None) if args.quick else row for each in chosen for row in each(bench)]


def conclude(found: Sequence[Row], packages: Sequence[str], how: str) -> int:
    """Prints the table and what it was made with; 1 where a target is missed."""
    print(table(found))
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"\n{python}, {os.cpu_count()} cores, {versions}; {how}")
    return 0 if all(row.met is not False for row in found) else 1


def compare(description: str | None, scenarios: Mapping[str, Scenario], packages: Sequence[str]) -> int:
    """A script's work: prints the table of its scenarios; 1 where a target is missed."""
    args = parser_of(description, scenarios).parse_args()
    rounds = 1 if args.quick else 3
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="agentbench-", dir=base) as folder:
        found = measured(args, scenarios, folder, rounds)
    where = "tmpfs" if base else tempfile.gettempdir()
    return conclude(found, packages, f"best of {rounds} rounds; files on {where}")


if __name__ == "__main__":
    sys.exit(compare(__doc__, SCENARIOS, ("pytest", "openai")))
