"""What the runner `openclaw` adds to OpenClaw: `python benchmarks/openclaw.py [--quick] [--only stub|real]`.

Needs a docker daemon (DOCKER_HOST) with `agentbench-test:1`, and for `real` the image of `agentbench openclaw image`.
The peer is the bare call, `docker run --rm IMAGE openclaw agent ...`, with a workspace, an openclaw.json and a model as
in a run of ours; that model answers in another container, whose loopback it shares. The two take turns. What a session
needs before its first run (pytest, the look at image and configuration) is not counted. `stub` has a small program in
place of OpenClaw, so that our own share is not lost in OpenClaw's ups and downs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tables import Measured, Section, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.docker_here import IMAGE, docker_lacks
from support.openclaw_here import OPENCLAW_IMAGE, openclaw_lacks, stub_image

MODEL, PORT = "gpt-4o", 18790
REPORT = {"path": "report.md", "content": "# Report\n"}
TEXT = "Write report.md."
ENDPOINT = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        function = {"name": "write", "arguments": sys.argv[2]}
        call = {"index": 0, "id": "c1", "type": "function", "function": function}
        delta, reason = {"tool_calls": [call]}, "tool_calls"
        if any(message["role"] == "tool" for message in body["messages"]):
            delta, reason = {"content": "Done."}, "stop"
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
        ends = {"index": 0, "delta": {}, "finish_reason": reason}
        choices = [[{"index": 0, "delta": delta, "finish_reason": None}], [ends], []]
        events = [{**chunk, "choices": each} for each in choices]
        events[-1]["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        sent = "".join(f"data: {json.dumps(event)}\\n\\n" for event in events).encode() + b"data: [DONE]\\n\\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
"""
"""A model that calls `write` once and is done; its arguments are a port and the call's."""


@dataclass(frozen=True)
class Load:
    """How much is measured: rounds of `runs` runs one after the other, and `many` runs, `at_once` at a time."""

    rounds: int
    runs: int
    many: int
    at_once: int


def main() -> None:
    """Measures, and prints the table of docs/openclaw.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs: for a look, not for the page")
    parser.add_argument("--only", choices=["stub", "real"])
    given = parser.parse_args()
    stub = Load(1, 4, 4, 4) if given.quick else Load(3, 8, 24, 4)
    real = Load(1, 1, 2, 2) if given.quick else Load(3, 2, 6, 2)
    sections = {
        "stub": Section(lambda: measure("stub", stub_image(), stub), docker_lacks()),
        "real": Section(lambda: measure("real", OPENCLAW_IMAGE, real), openclaw_lacks()),
    }
    print_table(sections, given.only, peer="bare `docker run`", more="more per run")


def measure(kind: str, image: str, load: Load) -> Iterator[Measured]:
    """What a run takes that follows another, and what many take side by side."""
    with tempfile.TemporaryDirectory(prefix="openclaw-benchmark-") as name, model() as loopback:
        folder = Path(name)
        project(folder, image, max(load.runs + 1, load.many))
        bare_call = Bare(folder, image, loopback)
        session(folder, 1, 1)  # writes bytecode, as an installation does
        ours, bare = [], []
        for _ in range(load.rounds):
            starts = [start for start, _ in session(folder, load.runs + 1, 1)]
            ours += [after - before for before, after in pairwise(starts)]
            bare += [seconds(lambda at=number: bare_call.run(at)) for number in range(load.runs)]
        more = statistics.median(ours) - statistics.median(bare)
        yield Measured(
            f"{kind}: from the start of a run to the start of the next, median of {len(ours)}",
            f"{statistics.median(ours):.2f} s",
            f"{statistics.median(bare):.2f} s",
            f"{more:+.2f} s",
            "< 1 s",
            more < 1,
        )
        yield many_at_once(kind, folder, bare_call, load)


def many_at_once(kind: str, folder: Path, bare_call: Bare, load: Load) -> Measured:
    """Runs side by side, from the first one's start to the last one's end."""
    spans = session(folder, load.many, load.at_once)
    ours = max(end for _, end in spans) - spans[0][0]
    with ThreadPoolExecutor(load.at_once) as threads:
        bare = seconds(lambda: list(threads.map(bare_call.run, range(load.many))))
    more = (ours - bare) / load.many
    scenario = f"{kind}: {load.many} runs, {load.at_once} at a time"
    return Measured(scenario, f"{ours:.1f} s", f"{bare:.1f} s", f"{more:+.2f} s", "< 1 s", more < 1)


def session(folder: Path, runs: int, at_once: int) -> list[tuple[float, float]]:
    """When each run of a session of so many runs began and ended, in seconds since the epoch, in order."""
    options = ["--model=demo", "--agentbench-run-profile=openclaw", "--agentbench-no-reuse", "-q", "-pno:cacheprovider"]
    paths = [f"cases/case-{number}" for number in range(runs)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    with tempfile.TemporaryDirectory(dir=folder) as output:
        options += [f"--agentbench-concurrency={at_once}", f"--agentbench-output={output}"]
        command = [sys.executable, "-m", "pytest", *paths, *options]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        stored = [json.loads(path.read_text()) for path in Path(output).rglob("run_1.json")]
    starts = [(datetime.fromisoformat(each["started_at"]).timestamp(), each["duration_seconds"]) for each in stored]
    return sorted((start, start + duration) for start, duration in starts)


class Bare:
    """The container call alone, as a shell script would make it."""

    def __init__(self, folder: Path, image: str, loopback: str) -> None:
        ref = f"agentbench/{MODEL}"
        provider = {"baseUrl": f"http://127.0.0.1:{PORT}/v1", "apiKey": "none", "api": "openai-completions"}
        provider |= {"models": [{"id": MODEL, "name": MODEL}]}
        defaults = {"workspace": "/workspace", "skipBootstrap": True, "model": {"primary": ref}, "models": {ref: {}}}
        agents = {"defaults": defaults, "list": [{"id": "writer", "model": ref}]}
        (folder / "control").mkdir()
        config = {"agents": agents, "models": {"providers": {"agentbench": provider}}}
        (folder / "control/openclaw.json").write_text(json.dumps(config))
        self._folder, self._image, self._loopback = folder, image, loopback

    def run(self, number: int) -> None:
        """One call, in a fresh workspace."""
        with tempfile.TemporaryDirectory(dir=self._folder) as workspace:
            command = ["docker", "run", "--rm", "--network", f"container:{self._loopback}", "--workdir", "/workspace"]
            for folder, place in ((workspace, "/workspace"), (self._folder / "control", "/run/agentbench:ro")):
                command += ["--volume", f"{folder}:{place}"]
            for variable in ("HOME=/tmp/home", "OPENCLAW_STATE_DIR=/tmp/openclaw", "NO_COLOR=1"):
                command += ["--env", variable]
            command += ["--env", "OPENCLAW_CONFIG_PATH=/run/agentbench/openclaw.json", self._image]
            command += ["openclaw", "agent", "--local", "--json", "--agent", "writer", "--timeout", "200"]
            done = subprocess.run([*command, "--session-id", f"s{number}", f"--message={TEXT}"], capture_output=True)
            assert done.returncode == 0, done.stderr.decode()
            assert Path(workspace, REPORT["path"]).read_text() == REPORT["content"]


@contextmanager
def model() -> Iterator[str]:
    """The name of a container in which the bare call's model answers."""
    arguments = ["python3", "-c", ENDPOINT, str(PORT), json.dumps(REPORT)]
    name = f"openclaw-benchmark-{os.getpid()}"
    with subprocess.Popen(
        ["docker", "run", "--rm", "--name", name, "--network", "none", IMAGE, *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as inside:
        try:
            assert inside.stdout is not None
            assert inside.stdout.readline() == "ready\n"
            yield name
        finally:
            subprocess.run(["docker", "rm", "--force", name], check=True, stdout=subprocess.DEVNULL)


def project(folder: Path, image: str, count: int) -> None:
    """Cases that a scripted model answers as the bare call's does."""
    calls = [{"name": "write", "arguments": REPORT}]
    steps = [{"tool_calls": calls}, {"content": "Done."}]
    checks = [{"check_id": "written", "declarative": {"kind": "file_exists", "path": REPORT["path"]}}]
    for number in range(count):
        case = {"case_id": f"case-{number}", "title": "Write a file", "runner": {"type": "openclaw"}}
        case |= {"input": {"messages": [{"role": "user", "content": TEXT}]}, "deterministic_checks": checks}
        write(folder / f"cases/case-{number}/test.yaml", case)
        write(folder / f"cases/case-{number}/demo.yaml", {"replies": [{"steps": steps}]})
    openclaw = {"agent_id": "writer", "image": image, "timeout_seconds": 200}
    profile = {"run_profile_id": "openclaw", "title": "OpenClaw", "openclaw": openclaw}
    write(folder / "cases/run_profiles/openclaw.yaml", profile)
    write(folder / "cases/agents/writer/agent.yaml", {"agent_id": "writer", "title": "Writer"})
    (folder / "cases/agents/writer/workspace").mkdir()


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def write(path: Path, content: dict[str, object]) -> None:
    """A YAML file, in JSON's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, **content}))


if __name__ == "__main__":
    main()
