"""Projects, and the processes that are measured in them: what the scripts here share.

Every side of a scenario is a process of its own. The sides take turns over several rounds, so that what else the
machine does meets all of them, and the median of each counts. CPU (user and system) and peak memory are the child's
and of those that it waited for, from `os.wait4`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from record import Line, table

PYTEST = (sys.executable, "-m", "pytest", "-q")
PLAIN = (*PYTEST, "-p", "no:agentbench")
OURS = (*PYTEST, "--agentbench-output={fresh}")
AGENTBENCH = (sys.executable, "-c", "import sys; from pytest_agentbench.cli import main; sys.exit(main())")
ROUNDS = 3
MOST_BYTES = 1_000_000_000
"""What scenarios may write to memory."""

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


@dataclass(frozen=True)
class Cost:
    """What one process took: seconds of CPU and of wall time, peak resident memory in MB, and what it printed."""

    cpu: float
    wall: float
    peak: float
    printed: str


class Bench:
    """A folder for projects and outputs, a fresh one for every process, and the processes.

    `scale` divides counts of items; `disk` is the file system that the folder is in.
    """

    def __init__(self, folder: Path, bytecode: Path, *, rounds: int, scale: int) -> None:
        self.folder, self.rounds, self.scale = folder, rounds, scale
        self.disk = find_file_system(folder)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OPENAI_", "PYTHON"))}
        self.environ["PYTHONPYCACHEPREFIX"] = str(bytecode)  # as installed, and the checkout stays clean
        self._runs = 0

    def project(self, name: str, files: dict[str, str]) -> Path:
        """Return a folder with these files, and a pytest.ini."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        for path, text in {"pytest.ini": "[pytest]\n", **files}.items():
            (folder / path).write_text(text, encoding="utf-8")
        return folder

    @property
    def output(self) -> Path:
        """The output folder of the last process that had a fresh one."""
        return self.folder / f"output-{self._runs}"

    def run(self, argv: Sequence[str], cwd: Path) -> Cost:
        """Run a process to its end, `{fresh}` being a folder of its own; SystemExit with its output where it fails."""
        if self.disk == "tmpfs":  # where memory is short; on a disk, what is deleted makes what comes next slower
            shutil.rmtree(self.output, ignore_errors=True)
        else:
            os.sync()  # what others wrote is not this process's to wait for
        self._runs += 1
        log = self.folder / f"{self._runs}.log"
        command = [argument.replace("{fresh}", str(self.output)) for argument in argv]
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
        """Return the medians of what each side took, over rounds in which all of them take their turn."""
        costs = [[self.run(argv, cwd) for argv, cwd in sides] for _ in range(self.rounds)]
        return [_median(side) for side in zip(*costs, strict=True)]

    def warm(self) -> None:
        """Write what Python compiles of the sessions that are measured; the first of them would pay for all."""
        one = {
            "items.jsonl": rows(1),
            "items.demo.yaml": script(1),
            "models.yaml": models(model_id="demo", scripted=True),
        }
        self.run(PLAIN, self.project("warm-plain", {"items.jsonl": rows(1), "test_rows.py": PLAIN_TESTS}))
        self.run((*OURS, "--model=demo", "--junit-xml={fresh}/junit.xml"), self.project("warm-demo", one))
        agent = {"items.jsonl": rows(1), "conftest.py": AGENT.format(kind="async def")}
        self.run(OURS, self.project("warm-agent", agent))


def _median(costs: Sequence[Cost]) -> Cost:
    cpu, wall, peak = (median(taken) for taken in zip(*((c.cpu, c.wall, c.peak) for c in costs), strict=True))
    return Cost(cpu, wall, peak, costs[0].printed)


def find_file_system(folder: Path) -> str:
    """Return the kind of file system that a folder is in ("ext4"), as Linux tells it."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.system()}'s disk"
    place, found = folder.resolve(), [line.split()[1:3] for line in mounts]
    return max((len(point), at, kind) for at, (point, kind) in enumerate(found) if place.is_relative_to(point))[2]


def rows(count: int) -> str:
    """Return a JSONL dataset of sums."""
    items = ({"id": f"q{n}", "question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count))
    return "".join(json.dumps(item) + "\n" for item in items)


def script(count: int) -> str:
    """Return what the scripted model answers to `rows(count)`; JSON is YAML."""
    return json.dumps({"schema_version": 1, "answers": {f"q{n}": str(n + 1) for n in range(count)}})


def models(**entry: object) -> str:
    """Return a models.yaml of one model."""
    return json.dumps({"schema_version": 1, "models": [entry]})


@contextmanager
def endpoint(source: Path, *, latency: float) -> Iterator[str]:
    """Run `agentbench serve` in a process of its own, on a free port."""
    command = (*AGENTBENCH, "serve", str(source), "--port=0", f"--latency={latency}")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Scenario:
    """Lines that are measured together, in memory or on the ordinary disk."""

    measure: Callable[[Bench], Iterator[Line]]
    on_disk: bool = False


class Scenarios(dict[str, Scenario]):
    """A script's scenarios by name."""

    def add(self, *, on_disk: bool = False) -> Callable[[Callable[[Bench], Iterator[Line]]], None]:
        """Add a function under its name."""

        def add(function: Callable[[Bench], Iterator[Line]]) -> None:
            self[function.__name__] = Scenario(function, on_disk)

        return add


class Places:
    """A folder in memory and one on the ordinary disk."""

    def __init__(self, memory: Path, disk: Path) -> None:
        self._memory, self._disk = memory, disk
        self._benches = 0

    def measure(self, scenario: Scenario, *, rounds: int, scale: int) -> list[Line]:
        """Return what a scenario finds, in a folder of its own."""
        folder = (self._disk if scenario.on_disk else self._memory) / str(self._benches)
        bytecode = self._memory / "bytecode"
        if not bytecode.exists():
            (self._memory / "warm").mkdir()
            Bench(self._memory / "warm", bytecode, rounds=1, scale=1).warm()
        self._benches += 1
        folder.mkdir()
        bench = Bench(folder, bytecode, rounds=rounds, scale=scale)
        return [replace(line, disk=bench.disk) for line in scenario.measure(bench)]


def find_tmpfs() -> Path | None:
    """Return a folder in memory, or None. In containers there often is one that is too small: 64 MB."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free >= MOST_BYTES else None


@contextmanager
def open_places(disk: Path | None) -> Iterator[Places]:
    """Make both folders, the one on `disk` or in the current folder, and remove them in the end."""
    with (
        TemporaryDirectory(prefix="agentbench-", dir=find_tmpfs()) as memory,
        TemporaryDirectory(prefix=".agentbench-", dir=disk or Path.cwd()) as ordinary,
    ):
        yield Places(Path(memory), Path(ordinary))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to measure."""
    parser.add_argument("--rounds", type=int, metavar="N", help=f"processes of each side (default: {ROUNDS})")
    parser.add_argument("--disk", type=Path, metavar="DIR", help="a folder on the ordinary disk (default: this one)")


def parser_of(description: str | None, scenarios: Scenarios) -> argparse.ArgumentParser:
    """Return the options that every script here has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the items and one round, not judged")
    parser.add_argument("--only", choices=scenarios, help="one scenario")
    add_options(parser)
    return parser


def compare(parser: argparse.ArgumentParser, scenarios: Scenarios, packages: Sequence[str]) -> int:
    """Print the table of a script's scenarios; return 1 where a target is missed."""
    args = parser.parse_args()
    rounds, scale = (args.rounds or 1, 10) if args.quick else (args.rounds or ROUNDS, 1)
    chosen = [scenarios[args.only]] if args.only else scenarios.values()
    with open_places(args.disk) as places:
        found = [line for each in chosen for line in places.measure(each, rounds=rounds, scale=scale)]
    if args.quick:
        found = [replace(line, target=None) for line in found]
    print(table(found))
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"\n{python}, {os.cpu_count()} cores, {versions}; medians of {rounds} rounds")
    return int(any(line.met is False for line in found))
