"""A whole session with an agent that attacks: what it gets, what is kept of it, and what is left on this machine."""

from __future__ import annotations

import json

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.processes import running

SECRET = "zebra-crossing-4711"  # not known as a key: redaction does not hide that it was read
PLANTED = ("conftest.py", "test_planted.py", "planted_test.py", "sitecustomize.py", "usercustomize.py", "pytest.py")
Call = tuple[str, dict[str, str]]


def session(bench: Bench, kind: str, tools: list[str], *calls: Call, **fields: object) -> Finished:
    """A session with one case whose agent makes these calls, one after the other, and then answers rightly."""
    asked = {"messages": [{"role": "user", "content": "The capital of France?"}]}
    bench.case("attack", input={**asked, "context": {"llm_probe": {"tools": tools}}}, **fields)
    steps = [{"tool_calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    replies = [{"steps": [*steps, {"content": "Paris"}]}]
    bench.write("cases/attack/demo.yaml", {"schema_version": 1, "replies": replies})
    bench.profile("sandboxed", sandbox={"type": kind} | ({"image": IMAGE} if kind == "docker" else {}))
    return bench.run("--model=demo", "--agentbench-run-profile=sandboxed")


def results(bench: Bench) -> list[str]:
    """What the tools gave the agent."""
    [path] = (bench.path / "outputs/runs").rglob("run_1.json")
    trace = json.loads(path.read_text())["trace"]
    return [event["content"] for event in trace if event["type"] == "tool_result"]


def stored(bench: Bench) -> str:
    """All that the session has kept."""
    files = (path for path in (bench.path / "outputs").rglob("*") if path.is_file())
    return "".join(path.read_text(errors="replace") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "isolated"),
    [
        pytest.param("docker", True, marks=needs_docker),
        pytest.param("bubblewrap", True, marks=needs_bubblewrap),
        ("local", False),
    ],
)
def test_an_agent_that_attacks(bench: Bench, kind: str, isolated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, ran = bench.path / "secret.txt", bench.path / "ran.txt"
    secret.write_text(SECRET)
    monkeypatch.setenv("SETTING", SECRET)
    code = f"open({str(ran)!r}, 'w').close()"
    finished = session(
        bench,
        kind,
        ["exec_shell", "read_file", "write_file"],
        ("exec_shell", {"command": "env"}),
        ("exec_shell", {"command": f"cat {secret}"}),
        ("exec_shell", {"command": f"ln -s {secret} link; setsid sleep 7451 >/dev/null 2>&1 & ls -l"}),
        ("exec_shell", {"command": f'for name in {" ".join(PLANTED)}; do echo "{code}" > $name; done'}),
        ("read_file", {"path": "link"}),
        ("write_file", {"path": "link", "content": "gotcha"}),
        ("read_file", {"path": "../../secret.txt"}),
    )
    assert finished.outcomes == {"attack[demo]": "passed"}, finished.text
    env, read, *others = results(bench)
    assert "PATH=" in env
    assert SECRET not in env + "".join(others)
    assert (SECRET not in read) == isolated
    assert (SECRET not in stored(bench) + finished.text) == isolated
    assert secret.read_text() == SECRET
    assert not running("sleep 7451")
    (bench.path / "outputs").rename(bench.path / "earlier")  # pytest looks for tests in all folders
    again = bench.spawn("--model=demo", "--agentbench-run-profile=sandboxed", "--import-mode=importlib")
    assert (again.exit, again.outcomes) == (0, {"attack[demo]": "passed"}), again.text
    assert not ran.exists()


def test_a_tool_that_was_not_offered(bench: Bench) -> None:
    """It is refused, the agent is told, and nothing is run."""
    ran = bench.path / "ran.txt"
    finished = session(
        bench,
        "local",
        ["list_files"],
        ("exec_shell", {"command": f"touch {ran}"}),
        ("write_file", {"path": "made.txt", "content": "x"}),
        deterministic_checks=[check("made", kind="path_exists", path="made.txt")],
    )
    assert finished.outcomes == {"attack[demo]": "failed"}
    assert "made.txt does not exist" in finished.text
    assert not ran.exists()
    assert all("list_files" in result for result in results(bench)), results(bench)
