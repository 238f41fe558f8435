"""Runner `command`: a small agent of a case's workspace, in each sandbox that is here."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import needs_bubblewrap
from support.processes import running

AGENT = Path(__file__).parents[2] / "support" / "stub_agent.py"
SANDBOXES = ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)]
RUNNER = {
    "type": "command",
    "command": ["python3", "agent.py", "{message}"],
    "resume": ["python3", "agent.py", "--resume", "{message}"],
    "answer": {"from": "stdout_json", "path": "result.text"},
    "timeout_seconds": 60,
}
WRITES = [
    {"tool_calls": [{"name": "sh", "arguments": {"command": "echo hi > out.txt; cat out.txt"}}]},
    {"content": "Paris"},
]


def case(bench: Bench, *texts: str, steps: Any = WRITES, **runner: Any) -> None:
    """A case with a turn for each text; the first is answered by the steps, others are echoed."""
    bench.case(
        "one",
        runner={name: value for name, value in {**RUNNER, **runner}.items() if value is not None},
        input={"turns": [{"role": "user", "content": text} for text in texts]},
        workspace="ws",
    )
    bench.write("cases/one/ws/agent.py", AGENT.read_text(encoding="utf-8"))
    replies = [{"when": texts[0], "steps": steps}, *({"when": text, "content": f"Paris, {text}"} for text in texts[1:])]
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": replies})


def artifact(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def run(bench: Bench, *options: str) -> Finished:
    return bench.run("--model", "demo", "cases", *options)


ASKS_ELSEWHERE = """python3 -c 'import urllib.request as web; web.urlopen("http://api.example.com/v1")'; true"""


@pytest.mark.slow
@needs_bubblewrap
def test_a_watched_network_records_attempts_to_reach_other_hosts(bench: Bench) -> None:
    calls = [{"name": "sh", "arguments": {"command": f"{ASKS_ELSEWHERE}; {ASKS_ELSEWHERE}"}}]
    case(bench, "Write it.", steps=[{"tool_calls": calls}, {"content": "Paris"}], sandbox="bubblewrap")
    bench.profile("watched", sandbox={"type": "bubblewrap", "network": "watch"})
    finished = run(bench, "--agentbench-run-profile=watched")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [hosts] = [each["data"]["hosts"] for each in artifact(bench)["trace"] if each.get("name") == "other_hosts"]
    assert hosts == {"api.example.com:80": 2}
    assert artifact(bench)["provider"]["usage_source"] == "gateway"


@pytest.mark.slow
def test_a_sandbox_that_cannot_watch_the_network_says_so_before_the_run(bench: Bench) -> None:
    case(bench, "Write it.", sandbox="local")
    bench.profile("watched", sandbox={"type": "local", "network": "watch"})
    finished = run(bench, "--agentbench-run-profile=watched", "-rs")
    said = "found watch, and local cannot record attempts to reach other hosts; use bubblewrap, or network: deny"
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert said in finished.text
    assert not [*bench.path.glob("outputs/runs/**/run_1.json")]


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_turns_of_a_command(bench: Bench, sandbox: str) -> None:
    case(bench, "Write it.", "and now?", sandbox=sandbox)
    finished = run(bench)
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    found = artifact(bench)
    kinds = [
        (each["type"], each.get("content")) for each in found["trace"] if each["type"] in ("message", "tool_result")
    ]
    assert kinds == [
        ("message", "Write it."),
        ("tool_result", "hi\n"),
        ("message", "Paris"),
        ("message", "and now?"),
        ("message", "Paris, and now?"),
    ]
    assert [each["turn"] for each in found["trace"] if each["type"] == "message"] == [1, 1, 2, 2]
    # The second turn's request holds the first turn
    requests = [e["data"]["messages"] for e in found["trace"] if e.get("name") == "request"]
    assert requests == [1, 3, 5]
    assert [each["path"] for each in found["changes"]] == ["out.txt"]
    assert found["provider"]["usage_source"] == ("gateway" if sandbox == "bubblewrap" else "gateway_partial")


@pytest.mark.slow
@needs_bubblewrap
def test_a_program_below_tmp_keeps_its_home_from_turn_to_turn(bench: Bench) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        program = Path(folder) / "remember"
        program.write_text('#!/bin/sh\necho "$1" >> "$HOME/turns.txt"; cat "$HOME/settings.txt" "$HOME/turns.txt"\n')
        program.chmod(0o755)
        command = [str(program), "{message}"]
        case(
            bench,
            "first",
            "second",
            sandbox="bubblewrap",
            command=command,
            resume=command,
            answer=None,
            files={"{home}/settings.txt": "colour: blue\n"},
        )
        run(bench)
    answers = [entry["content"] for entry in artifact(bench)["trace"] if entry.get("role") == "assistant"]
    assert answers == ["colour: blue\nfirst", "colour: blue\nfirst\nsecond"]


@pytest.mark.slow
def test_a_failed_command_fails_the_run_with_its_last_lines(bench: Bench) -> None:
    case(bench, "Please exit 7.", sandbox="local")
    run(bench)
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("failed", "agent_exit")
    assert "exit status 1; its last lines:\nit is broken" in found["error"]["message"]


@pytest.mark.slow
def test_a_command_without_an_answer_is_invalid(bench: Bench) -> None:
    case(bench, "Please say nothing.", sandbox="local")
    run(bench)
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("invalid", "no_answer")


@pytest.mark.slow
def test_an_outage_counts_before_the_answer_that_hides_it(bench: Bench) -> None:
    case(bench, "Write it.", steps=[*WRITES[:1], {"error": {"status": 500}}], sandbox="local", retries=0)
    finished = run(bench)
    assert finished.outcomes == {"one[demo]": "error"}
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("provider_error", "server_error")


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_program_finds_no_key_but_its_runs_token(bench: Bench, monkeypatch: pytest.MonkeyPatch, sandbox: str) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "MY_SECRET"):
        monkeypatch.setenv(name, "sk-of-a-person")
    looks = 'test -n "$OPENAI_API_KEY" && ! env | grep sk-of-a-person && ! grep -a sk-of-a-person /proc/self/environ'
    case(bench, "Look.", sandbox=sandbox, command=["sh", "-c", f"{looks} && echo none"], answer=None)
    run(bench)
    assert (artifact(bench)["status"], artifact(bench)["trace"][-1]["content"]) == ("success", "none")


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_command_that_takes_too_long_leaves_no_process(bench: Bench, sandbox: str) -> None:
    case(bench, "Please sleep for long.", sandbox=sandbox, timeout_seconds=1.5)
    began = time.monotonic()
    run(bench)
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("timed_out", "run_timeout")
    assert time.monotonic() - began < 20
    assert not running("sleep 611")


@pytest.mark.slow
def test_another_model_is_refused(bench: Bench) -> None:
    case(bench, "Write it.", sandbox="local", env={"STUB_MODEL": "gpt-9"})
    run(bench)
    found = artifact(bench)
    # The agent made an answer of the refusal, which is its own affair
    assert found["trace"][-1]["content"] == "[API Error: 404]"


@pytest.mark.slow
def test_a_readings_session_and_file(bench: Bench) -> None:
    case(
        bench,
        "Write it.",
        sandbox="local",
        command=["sh", "-c", 'python3 agent.py "$0" > said.json', "{message}"],
        answer={"from": "file", "file": "{workspace}/said.json", "path": "result.text"},
    )
    assert run(bench).outcomes == {"one[demo]": "passed"}


@pytest.mark.slow
def test_texts_are_no_templates_and_no_shell(bench: Bench) -> None:
    text = "{key} $(touch bad) 'x' -- {workspace}"
    case(bench, text, steps=[{"content": "Paris"}], sandbox="local")
    assert run(bench).outcomes == {"one[demo]": "passed"}
    assert artifact(bench)["changes"] == []


@pytest.mark.parametrize(
    ("runner", "said"),
    [
        ({"command": ["python3", "{mesage}"]}, "runner.command[1]: unknown name {mesage}; did you mean 'message'?"),
        ({"command": None}, "runner.command: missing; add it"),
        ({"command": "python3 agent.py"}, "runner.command: found 'python3 agent.py', expected a list; write ["),
        ({"sandbox": "vm"}, "runner.sandbox: found 'vm', expected 'docker', 'bubblewrap' or 'local'"),
        ({"answer": {"from": "stdout_json"}}, "runner.answer.path: missing; add its path in the JSON of stdout_json"),
        ({"answer": {"from": "file"}}, "runner.answer: 'from: file' and 'file' belong together"),
        ({"files": {"{home}/{x}": "y"}}, "unknown name {x}"),
        ({"dialects": ["smoke"]}, "runner.dialects[0]: found 'smoke', expected 'chat', 'responses', 'messages' or"),
        (
            {"resume": None},
            "input.turns: found 2 turns and no `resume` in the runner; add the command that continues a session",
        ),
    ],
)
def test_errors_in_a_case_contain_their_place(bench: Bench, runner: dict[str, Any], said: str) -> None:
    case(bench, "one", "two", **runner)
    finished = bench.run("--model", "demo", "--collect-only", "cases")
    [line] = [line for line in finished.text.splitlines() if "test.yaml:" in line and said in line][:1]
    place = line.strip().removeprefix(str(Path(bench.path, "cases/one/test.yaml:")))
    assert all(part.isdecimal() for part in place.split(":")[:2]), line


@pytest.mark.parametrize(
    ("runner", "said"),
    [
        ({**RUNNER, "sandbox": "bubblewrap"}, "runner.command: found a command in a folder that is not trusted"),
        (
            {"type": "agent", "agent": "codex", "sandbox": "local"},
            "runner.sandbox: found a program without isolation",
        ),
        ({"type": "agent", "agent": "codex", "image": "a:1"}, "runner.image: found the image 'a:1' in a folder that"),
        ({"type": "agent", "agent": "codex"}, None),
    ],
)
def test_a_guest_starts_agents_in_their_images_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, runner: dict[str, Any], said: str | None
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bench.path / "home"))
    bench.profile("own")
    bench.write("cases/vendor/run_profiles/theirs.yaml", {"schema_version": 1, "run_profile_id": "t", "title": "T"})
    bench.case("one", folder="cases/vendor", runner=runner)
    finished = bench.run("--model", "demo", "--collect-only", "cases")
    assert (finished.exit == 0) == (said is None), finished.text
    assert said is None or said in finished.text


def test_a_check_of_portable_tools_needs_a_runner_that_names_them(bench: Bench) -> None:
    bench.case("two", deterministic_checks=[check("sh", kind="tool_called", portable="shell")])
    bench.write("cases/two/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})
    finished = run(bench)
    assert finished.outcomes == {"two[demo]": "error"}
    assert "names no portable tools" in finished.text


BROKEN_FARM = """
from pytest_agentbench import SandboxProvider, SandboxSession

class Broken:
    kind = "farm"
    def __init__(self, workspace):
        self.workspace = workspace
    async def exec(self, *args, **more):
        raise ConnectionResetError("the farm hung up")
    async def stop(self):
        pass

class Session(SandboxSession):
    async def start(self, request):
        if {starts}:
            return Broken(request.workspace)
        raise ConnectionResetError("the farm hung up")

class Farm(SandboxProvider):
    isolation = "container"
    def open(self):
        return Session()

def pytest_agentbench_sandboxes():
    return {{"farm": Farm()}}
"""


@pytest.mark.parametrize("starts", [True, False])
def test_an_error_of_a_provider_is_not_blamed_on_the_gateway(bench: Bench, starts: bool) -> None:
    case(bench, "Write it.")
    bench.agent(BROKEN_FARM.format(starts=starts))
    bench.profile("farm", sandbox="farm")
    finished = run(bench, "--agentbench-run-profile=farm")
    assert finished.outcomes == {"one[demo]": "error"}, finished.text
    assert "ConnectionResetError: the farm hung up" in finished.text
    assert "cannot listen" not in finished.text
