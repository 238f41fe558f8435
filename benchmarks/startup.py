"""What a session of one case and the command cost: `python benchmarks/startup.py [--json PATH] [--rounds N]`.

CPU (user and system, of a process and those that it waits for) against plain pytest with one test, the median of 7
processes that alternate, without other plugins and with those that are installed, as `pytest` loads them; how many of
our modules a session imports; and in how many of our files functions run, which is what somebody has to read who
follows one case.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

MOST_TIMES, MOST_MODULES, MOST_FILES = 2.0, 150, 70
MOST_HELP, MOST_LIST = 0.2, 2.5
ROUNDS = 7
CASES = Path(__file__).parents[1] / "cases"
OPTIONS = ("-q", "-p", "no:cacheprovider")
OURS = (*OPTIONS, "--agentbench-output=outputs", "--agentbench-no-reuse")
INSTALLED = ", with what is installed"
"""Ends the names of sessions with all plugins of the environment: 0.45 s of plain pytest's were 1.9 s once."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With what Python compiles kept, as it is where people run tests: without it, 40 % of a session is compiling, of plain
pytest's too."""
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Without the other plugins that happen to be installed: some take longer to import than pytest."""

TEST = "def test_sum():\n    assert 1 + 1 == 2\n"
AGENT = """import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: "2"
"""
CASE = """schema_version: 1
case_id: sum
title: A sum
runner:
  type: llm_probe
input:
  messages:
    - role: user
      content: What is 1 + 1?
deterministic_checks:
  - check_id: answer
    declarative:
      kind: regex_match
      pattern: ^2$
"""

PLAIN = "plain pytest"
COMMAND = "import sys; from pytest_agentbench.cli import main; sys.exit(main())"
COUNTED = """
import inspect, json, sys, threading, pytest

called = set()

def note(frame, event, argument):
    if event == "call":
        called.add(frame.f_code)

threading.setprofile(note)
sys.setprofile(note)
status = pytest.main(sys.argv[2:])
sys.setprofile(None)
import pytest_agentbench
home = pytest_agentbench.__path__[0]
modules = [name for name in sys.modules if name.split(".")[0] == "pytest_agentbench"]
# Bodies of modules and classes have no locals of their own and run at import: they are not what a case runs through
files = {code.co_filename[len(home) + 1:] for code in called if code.co_filename.startswith(home + "/")
         and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")}
with open(sys.argv[1], "w") as file:
    json.dump({"status": int(status), "modules": sorted(modules), "files": sorted(files)}, file)
"""


@dataclass(frozen=True)
class Session:
    """What a session or a command costs: seconds of CPU, and of plain pytest's; modules and files of ours."""

    name: str
    cpu_seconds: float
    plain_seconds: float
    modules: Sequence[str]
    files: Sequence[str]

    @property
    def times(self) -> float:
        """Return how many times plain pytest's CPU."""
        return self.cpu_seconds / self.plain_seconds


def measure_cpu(command: Sequence[str], folder: Path, *, installed: bool = False) -> float:
    """Return the seconds of CPU that a process takes, with all plugins that are installed. CalledProcessError where it
    fails.
    """
    with open(folder / "printed.txt", "w+") as printed:
        env = {**ENVIRONMENT, **({} if installed else ALONE), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            printed.seek(0)
            raise subprocess.CalledProcessError(process.returncode, command, printed.read())
    return usage.ru_utime + usage.ru_stime


def count_ours(arguments: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """Return the `modules` of ours that a session imports and the `files` of ours whose functions it runs."""
    measure_cpu([sys.executable, "-c", COUNTED, "counted.json", *arguments], folder)
    return json.loads((folder / "counted.json").read_text())


def make_project(folder: Path) -> dict[str, tuple[str, ...]]:
    """Write the projects, and return the arguments of each session by its name: the first is plain pytest's."""
    (folder / "plain").mkdir()
    (folder / "plain" / "test_sum.py").write_text(TEST)
    (folder / "one" / "sum").mkdir(parents=True)
    (folder / "one" / "conftest.py").write_text(AGENT)
    (folder / "one" / "sum" / "test.yaml").write_text(CASE)
    shutil.copytree(CASES, folder / "cases")
    (folder / "pytest.ini").write_text("[pytest]\n")
    alone = (*OURS, "-p", "agentbench")
    return {
        PLAIN: (*OPTIONS, "plain"),
        "a case of a callable": (*alone, "one"),
        "cases/rubric_judge": (*alone, "--model=demo", "--agentbench-profile=standard", "cases/rubric_judge"),
        f"{PLAIN}{INSTALLED}": (*OPTIONS, "-p", "no:agentbench", "plain"),
        f"a case of a callable{INSTALLED}": (*OURS, "one"),
    }


def measure_sessions(folder: Path, rounds: int) -> list[Session]:
    """Return what each session and each command costs."""
    sessions = make_project(folder)
    agentbench = [sys.executable, "-c", COMMAND]
    programs = {name: [sys.executable, "-m", "pytest", *arguments] for name, arguments in sessions.items()}
    programs["agentbench --help"] = [*agentbench, "--help"]
    programs["agentbench list cases"] = [*agentbench, "list", "cases"]
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(1 + rounds):
        for name, program in programs.items():
            taken[name].append(measure_cpu(program, folder, installed=name.endswith(INSTALLED)))
    cpu = {name: median(seconds[1:]) for name, seconds in taken.items()}  # the first one writes what Python compiles
    found = []
    for name in programs:
        installed = name.endswith(INSTALLED)
        ours: dict[str, list[str]] = {"modules": [], "files": []}
        if name in sessions and not name.startswith(PLAIN) and not installed:
            ours = count_ours(sessions[name], folder)
        plain = cpu[f"{PLAIN}{INSTALLED}" if installed else PLAIN]
        found.append(Session(name, cpu[name], plain, ours["modules"], ours["files"]))
    return found


def judge(session: Session) -> list[tuple[str, float, float]]:
    """Return (what, how much, at most) of each promise that the session is about."""
    if session.name.startswith("a case of a callable"):
        modules = [("modules of ours", len(session.modules), MOST_MODULES)] if session.modules else []
        return [("times plain pytest's CPU", session.times, MOST_TIMES), *modules]
    if session.name == "cases/rubric_judge":
        return [("files of ours whose functions run", len(session.files), MOST_FILES)]
    if session.name.startswith("agentbench "):
        most = MOST_HELP if session.name.endswith("--help") else MOST_LIST
        return [("times plain pytest's CPU", session.times, most)]
    return []


def main() -> int:
    """Print the table. The exit status is 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="write all figures, with the names of modules and files"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each session (default: %(default)s)")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        sessions = measure_sessions(Path(folder), args.rounds)
    print("| session | CPU | times plain pytest | modules of ours | files whose functions run |")
    print("|---|---:|---:|---:|---:|")
    for each in sessions:
        counts = f"{len(each.modules)} | {len(each.files)}" if each.modules else " | "
        print(f"| {each.name} | {each.cpu_seconds:.3f} s | {each.times:.2f} | {counts} |")
    about = f"CPython {platform.python_version()}, {os.cpu_count()} cores, pytest {version('pytest')}"
    print(f"\n{about}; median of {args.rounds}.")
    promised = [(each.name, *promise) for each in sessions for promise in judge(each)]
    for name, what, much, most in promised:
        print(f"{'met   ' if much <= most else 'MISSED'} {name}: {much:.4g} {what}, at most {most:g}")
    if args.json is not None:
        args.json.write_text(json.dumps({"about": about, "sessions": [asdict(each) for each in sessions]}, indent=1))
    return int(any(much > most for _, _, much, most in promised))


if __name__ == "__main__":
    sys.exit(main())
