"""Sessions whose agents run commands: in which sandbox, what is kept of it, and what is left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import docker
import pytest
from support.bench import Bench, Finished, check
from support.docker_here import IMAGE, needs_docker


def case(bench: Bench, name: str, *commands: str, **fields: Any) -> None:
    """A case whose agent runs these commands, one after the other, and then answers."""
    asked = {"messages": [{"role": "user", "content": "Go on."}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
    bench.case(name, input=asked, **fields)
    steps = [{"tool_calls": [{"name": "exec_shell", "arguments": {"command": each}}]} for each in commands]
    replies = [{"steps": [*steps, {"content": "Paris"}]}]
    bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": replies})


def run(bench: Bench, *options: str, profile: dict[str, Any] | None = None, **sandbox: Any) -> Finished:
    bench.profile("sandboxed", sandbox=sandbox, **(profile or {}))
    return bench.run("--model=demo", "--agentbench-run-profile=sandboxed", "-rs", *options)


def artifacts(bench: Bench) -> list[dict[str, Any]]:
    paths = sorted((bench.path / "outputs/runs").rglob("run_1.json"))
    return [json.loads(path.read_text()) for path in paths]


def results(artifact: dict[str, Any]) -> list[str]:
    """What the agent's commands wrote."""
    shown = [event["content"] for event in artifact["trace"] if event["type"] == "tool_result"]
    return [content.removesuffix("[exit code 0]").strip() for content in shown]


def containers(below: Path) -> list[dict[str, Any]]:
    client = docker.from_env()
    try:
        found = client.api.containers(all=True, filters={"label": "pytest-agentbench.session"})
    finally:
        client.close()
    return [each for each in found if each["Labels"]["pytest-agentbench.session"].startswith(str(below))]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of the session, so that what it leaves can be told from other sessions'."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@needs_docker
@pytest.mark.slow
def test_commands_run_in_a_container_of_the_run(bench: Bench, temporary: Path) -> None:
    for number in range(3):
        made = check("made", kind="path_exists", path="made.txt")
        case(bench, f"case-{number}", "ls | wc -l", "echo x > made.txt", deterministic_checks=[made])
    finished = run(bench, type="auto", image=IMAGE)
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    for artifact in artifacts(bench):
        assert results(artifact)[0] == "0"  # a workspace of its own, in which nobody was before
        assert artifact["sandbox"]["kind"] == "docker"
        assert artifact["sandbox"]["image"] == IMAGE
        assert artifact["sandbox"]["image_id"].startswith("sha256:")
    assert containers(temporary) == []


@needs_docker
@pytest.mark.slow
def test_each_run_has_a_container_and_none_is_made_in_vain(bench: Bench, temporary: Path) -> None:
    for number in range(6):
        case(bench, f"case-{number}", "true", "true")
    begun = int(time.time())
    finished = run(bench, profile={"policy": {"max_concurrency": 2}}, type="docker", image=IMAGE)
    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    assert len(made_since(begun, temporary)) == 6


def made_since(begun: int, below: Path) -> list[dict[str, Any]]:
    """The daemon's events of containers that sessions below a folder made."""
    client = docker.from_env()
    filters = {"event": "create", "type": "container", "label": "pytest-agentbench.session"}
    try:
        found = client.events(since=begun, until=int(time.time()) + 1, filters=filters, decode=True)
        made = [dict(each["Actor"]["Attributes"]) for each in found]
    finally:
        client.close()
    return [each for each in made if each["pytest-agentbench.session"].startswith(str(below))]


@needs_docker
@pytest.mark.slow
def test_a_run_is_reused_until_what_its_container_is_made_of_changes(bench: Bench, temporary: Path) -> None:
    case(bench, "one", "cat /made", sandbox={"dockerfile": "image/Dockerfile"})
    folder = bench.path / "cases/one/image"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY made /made\n")
    (folder / "made").write_text("first")
    assert run(bench, type="docker").outcomes == {"one[demo]": "passed"}
    assert "1 reused" in run(bench, type="docker").text
    [before] = artifacts(bench)
    (folder / "made").write_text("second")
    assert run(bench, type="docker").outcomes == {"one[demo]": "passed"}
    [after] = artifacts(bench)
    forget(before["sandbox"]["image"], after["sandbox"]["image"])
    assert (results(before), results(after)) == (["first"], ["second"])


def forget(*images: str) -> None:
    client = docker.from_env()
    for image in images:
        client.images.remove(image, force=True)
    client.close()


@needs_docker
@pytest.mark.slow
def test_a_stored_run_is_reused_where_there_is_no_docker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    case(bench, "one", "true")
    assert run(bench, type="docker", image=IMAGE).outcomes == {"one[demo]": "passed"}
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.path}/none.sock")
    again = run(bench, type="docker", image=IMAGE)
    assert again.outcomes == {"one[demo]": "passed"}
    assert "1 reused" in again.text


def test_no_docker_is_a_skip_before_the_model_is_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.path}/none.sock")
    case(bench, "one", "true")
    finished = run(bench, type="docker", image=IMAGE)
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "no docker daemon answers at" in finished.text
    assert artifacts(bench) == []


@needs_docker
@pytest.mark.slow
def test_an_image_that_cannot_be_had_is_a_skip_before_the_model_is_asked(bench: Bench, temporary: Path) -> None:
    case(bench, "one", "true")
    finished = run(bench, type="docker", image="127.0.0.1:1/none:1")
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "cannot be pulled" in finished.text
    assert artifacts(bench) == []


def test_a_case_that_needs_containers_is_not_run_without(bench: Bench) -> None:
    case(bench, "one", "true", sandbox={"image": IMAGE})
    finished = run(bench, type="local")
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "the case needs containers" in finished.text


def test_a_compose_file_that_asks_for_too_much_is_an_error_of_the_case(bench: Bench) -> None:
    bench.write("cases/one/services.yaml", "services:\n  a: {image: 'a:1', privileged: true}\n")
    case(bench, "one", "true", sandbox={"compose": "services.yaml"})
    finished = bench.run("--model=demo")
    assert finished.exit != 0
    assert "services.yaml:2:" in finished.text
    assert "services.a.privileged" in finished.text


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        ({"image": "debian:latest"}, "sandbox.image: found 'debian:latest', expected a pinned image"),
        ({"dockerfile": "image/Dockerfile"}, "image/Dockerfile:1:1: found 'debian', expected a pinned image"),
    ],
    ids=["named", "built upon"],
)
def test_a_floating_image_of_a_case(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, needs: dict[str, str], problem: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.path}/none.sock")
    bench.write("cases/one/image/Dockerfile", "FROM debian\n")
    case(bench, "one", "true", sandbox=needs)
    refused = run(bench, type="docker")
    assert refused.outcomes == {"one[demo]": "error"}
    assert problem in refused.text
    allowed = run(bench, profile={"allow_floating_image": True}, type="docker")
    assert allowed.outcomes == {"one[demo]": "skipped"}


@needs_docker
@pytest.mark.slow
def test_ctrl_c_removes_the_containers(bench: Bench, temporary: Path) -> None:
    """Those that run a command, those of runs to come, and those that are just being made."""
    for number in range(6):
        case(bench, f"case-{number}", "touch begun; sleep 300")
    bench.profile("sandboxed", sandbox={"type": "docker", "image": IMAGE}, policy={"max_concurrency": 3})
    command = [sys.executable, "-m", "pytest", "--model=demo", "--agentbench-run-profile=sandboxed"]
    with subprocess.Popen(command, cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as session:
        try:
            deadline = time.monotonic() + 60
            while len(list(temporary.glob("agentbench-*/*/begun"))) < 3:
                assert session.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert len(containers(temporary)) > 3
            session.send_signal(signal.SIGINT)
            shown = session.communicate(timeout=60)[0].decode()
        finally:
            session.kill()
    assert "KeyboardInterrupt" in shown
    assert containers(temporary) == []
