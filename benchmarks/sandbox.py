"""What sandboxes cost: `python benchmarks/sandbox.py [--image NAME] [--quick] [--only NAME]`.

The sides of a scenario take turns over several rounds and the best of each counts, for other programs only ever add to
a cost. Docker's scenarios need a daemon (DOCKER_HOST) that has the image, with `sh`; bubblewrap's need `bwrap`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tables import Measured, Section, print_table

from pytest_agentbench.records.case import SandboxSettings
from pytest_agentbench.workspaces.containers.daemon import docker_problem
from pytest_agentbench.workspaces.sandboxes.base import Sandbox, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.bubblewrap import bubblewrap_problem
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

T = TypeVar("T")

COMMAND = ["sh", "-c", "echo done"]
CONCURRENCY = 8


def main() -> None:
    """Measures, and prints the table of docs/sandboxes.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="agentbench-test:1")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds: for a look, not for the page")
    parser.add_argument("--only", choices=["bubblewrap", "container", "session"])
    given = parser.parse_args()
    docker, bubblewrap = docker_problem(), bubblewrap_problem()
    sections = {
        "bubblewrap": Section(lambda: exec_in_bubblewrap(20 if given.quick else 100), bubblewrap),
        "container": Section(lambda: one_container(given.image, 5 if given.quick else 20), docker),
        "session": Section(lambda: session(given.image, 24 if given.quick else 100, 1 if given.quick else 3), docker),
    }
    print_table(sections, given.only, more="ratio")


def exec_in_bubblewrap(count: int) -> Iterator[Measured]:
    """One command, against a bare subprocess."""

    async def measure(sandboxes: Sandboxes) -> tuple[float, float]:
        spec = sandboxes.spec(SandboxSettings(type="bubblewrap"))
        sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
        ours, bare = [], []
        for _ in range(count):
            ours.append(await seconds(lambda: sandbox.exec(COMMAND, seconds=20)))
            bare.append(await seconds(bare_subprocess))
        await sandbox.stop()
        return statistics.median(ours), statistics.median(bare)

    ours, bare = in_session(measure)
    yield Measured(
        "a command in bubblewrap, median",
        f"{1000 * ours:.1f} ms",
        f"{1000 * bare:.1f} ms (subprocess)",
        "",
        "< 30 ms more",
        ours - bare < 0.030,
    )


async def bare_subprocess() -> None:
    """The command without any sandbox."""
    process = await asyncio.create_subprocess_exec(*COMMAND, stdout=subprocess.PIPE)
    await process.communicate()


def one_container(image: str, count: int) -> Iterator[Measured]:
    """A container of one run: made, one command, removed; and with it made ahead."""

    async def measure(sandboxes: Sandboxes) -> list[float]:
        spec = sandboxes.spec(SandboxSettings(type="docker", image=image))
        await sandboxes.prepare(spec)
        cold, warm, commands, ends = [], [], [], []
        for _ in range(count):
            sandbox, took = await started(sandboxes, spec)
            first = await seconds(lambda on=sandbox: on.exec(COMMAND, seconds=20))
            commands.append(await seconds(lambda on=sandbox: on.exec(COMMAND, seconds=20)))
            ends.append(await seconds(sandbox.stop))
            cold.append(took + first + ends[-1])
        for _ in range(count):
            sandboxes.expect(spec, 1)
            await asyncio.sleep(1)  # while a model would think
            sandbox, took = await started(sandboxes, spec)
            warm.append(took)
            await sandbox.stop()
        return [statistics.median(each) for each in (cold, warm, commands)]

    cold, warm, command = in_session(measure)
    yield Measured("a container: made, one command, removed", f"{cold:.2f} s", "", "", "< 0.6 s", cold < 0.6)
    yield Measured("waiting for one that was made ahead", f"{1000 * warm:.1f} ms", "", "", "< 30 ms", warm < 0.030)
    yield Measured("a command in it", f"{1000 * command:.0f} ms", "", "", "< 150 ms", command < 0.150)


def session(image: str, count: int, rounds: int) -> Iterator[Measured]:
    """A session of cases whose agent runs one command each, against as many `docker run`."""
    ours, bare = [], []
    with project(image, count) as folder:
        whole_session(folder, "first")  # writes bytecode, as an installation does
        for number in range(rounds):
            bare.append(bare_runs(image, count))
            ours.append(whole_session(folder, f"out-{number}"))
    ratio = min(ours) / min(bare)
    yield Measured(
        f"{count} cases with one command, {CONCURRENCY} at a time, the whole session",
        f"{min(ours):.1f} s",
        f"{min(bare):.1f} s (`docker run --rm`)",
        f"{ratio:.2f}",
        "≤ 1.3 ×",
        ratio <= 1.3,
    )


def bare_runs(image: str, count: int) -> float:
    """Seconds of as many `docker run` at the same concurrency."""
    command = ["docker", "run", "--rm", "--network", "none", image, *COMMAND]

    def one(_: int) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    begun = time.perf_counter()
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        list(threads.map(one, range(count)))
    return time.perf_counter() - begun


def whole_session(folder: Path, output: str) -> float:
    """Seconds of the session, from the start of its process to its end."""
    options = ["--model=demo", "--agentbench-run-profile=docker", f"--agentbench-output={output}", "-q"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    command = [sys.executable, "-m", "pytest", *options]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    took = time.perf_counter() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    return took


@contextmanager
def project(image: str, count: int) -> Iterator[Path]:
    """Cases whose scripted agent runs one command."""
    with tempfile.TemporaryDirectory(prefix="sandbox-benchmark-") as name:
        folder = Path(name)
        asked = {"messages": [{"role": "user", "content": "Go."}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
        checks = [{"check_id": "said", "declarative": {"kind": "final_response_present"}}]
        calls = [{"name": "exec_shell", "arguments": {"command": COMMAND[-1]}}]
        steps = [{"tool_calls": calls}, {"content": "Done."}]
        for number in range(count):
            case = {"case_id": f"case-{number}", "title": "One command", "runner": {"type": "llm_probe"}}
            case |= {"input": asked, "deterministic_checks": checks}
            write(folder / f"cases/case-{number}/test.yaml", case)
            write(folder / f"cases/case-{number}/demo.yaml", {"replies": [{"steps": steps}]})
        profile = {"run_profile_id": "docker", "title": "Docker", "sandbox": {"type": "docker", "image": image}}
        profile |= {"execution_policy": {"max_concurrency": CONCURRENCY}}
        write(folder / "cases/run_profiles/docker.yaml", profile)
        yield folder


def write(path: Path, content: dict[str, object]) -> None:
    """A YAML file, in JSON's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, **content}))


async def started(sandboxes: Sandboxes, spec: SandboxSpec) -> tuple[Sandbox, float]:
    """A fresh sandbox, and the seconds it took."""
    begun = time.perf_counter()
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
    return sandbox, time.perf_counter() - begun


async def seconds(act: Callable[[], Awaitable[object]]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    await act()
    return time.perf_counter() - begun


def in_session(measure: Callable[[Sandboxes], Awaitable[T]]) -> T:
    """What `measure` returns, with the sandboxes of a session of its own."""
    workspaces = Workspaces()

    async def whole() -> T:
        sandboxes = Sandboxes(workspaces)
        try:
            return await measure(sandboxes)
        finally:
            await sandboxes.close()

    try:
        return asyncio.run(whole())
    finally:
        workspaces.close()


if __name__ == "__main__":
    main()
