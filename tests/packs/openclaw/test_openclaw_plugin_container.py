"""The container of OpenClaw's runs: its isolation from the agent, its end, and supported engines and images."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from openclaw_sessions import REPORT, Project, events, openclaw_project, shell, steps
from openclaw_tiers import IN_DOCKER, SLOW_STUB, Tier
from support.bench import LEAN, Bench, check
from support.docker_here import needs_docker
from support.fault_endpoint import FaultEndpoint
from support.openclaw_here import stub_image
from support.other_user import NOBODY, needs_root
from support.podman_here import PodmanLacks, podman

from pytest_agentbench.records.run import WORKSPACE_NOTE

WRITE_ALL = """
cd /run/agentbench
for each in *; do
    for attempt in "tee $each" "tee -a $each" "rm -f $each" "mv $each x" "ln $each /tmp/x" "chmod 777 $each"; do
        echo forged | $attempt >/dev/null 2>&1 && echo "done: $attempt"
    done
done
for attempt in "touch new" "mkdir new" "rmdir ." "mount -o remount,rw ." "umount ." "mknod /workspace/disk b 8 0"; do
    $attempt 2>/dev/null && echo "done: $attempt"
done
ls -A; find / -name '*.sock' -not -path '/proc/*' 2>/dev/null
"""
ODD = """
ln -s /etc/passwd absolute; ln -s ../../../../../../../../etc/passwd climbing; ln -s / root; ln -s missing dangling
ln -s loop loop; ln -s . here; ln -s /run/agentbench/openclaw.json ours; mkfifo pipe; echo x > one; ln one two
ln -s ../agentbench-other/.lock session; rm -f style.txt; ln -s /etc/passwd style.txt; chmod 0 one
echo x > "$(printf 'new\\nline')"; echo x > "$(printf 'bad\\377name')"; echo x > '<b>bold'
mkdir closed; echo x > closed/x; chmod 0 closed; ln -s /etc "$OPENCLAW_STATE_DIR/etc"; ln -s /etc "$HOME/etc"
"""
SETUID = "cp /bin/sh shell; chmod 6755 shell; chmod 7777 .; stat -c %a shell"
ANY = (check("any", kind="final_response_present"),)


@pytest.fixture(params=[IN_DOCKER])
def project(request: pytest.FixtureRequest, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    with openclaw_project(request.param, bench, monkeypatch) as project:
        yield project


def by_docker_program(below: Path) -> Tier:
    """Return the stub programs in containers made by docker's own program."""
    return Tier(below, {"image": stub_image(), "docker_cli": shutil.which("docker")}, time_out=2, many=4)


BY_DOCKER_PROGRAM = pytest.param(by_docker_program, id="docker-program", marks=[pytest.mark.slow, needs_docker])


def labelled(below: Path) -> list[str]:
    """Return the ids of all docker containers of sessions in that folder."""
    with closing(docker.from_env()) as client:
        found = client.api.containers(all=True, filters={"label": "pytest-agentbench.session"})
    return [each["Id"] for each in found if each["Labels"]["pytest-agentbench.session"].startswith(str(below))]


def one_run(project: Project, *calls: dict[str, Any], **case: Any) -> dict[str, Any]:
    """Return the artifact of a successful run whose agent makes these calls."""
    project.case("one", "Produce report.md.", **{"checks": ANY, **case})
    project.script("one", steps(*calls))
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert list((project.tier.below / "t").glob("agentbench-*/*")) == []
    return project.artifact("one")


def test_the_container_cannot_change_files_mounted_from_the_host(project: Project) -> None:
    artifact = one_run(project, shell(WRITE_ALL))
    said = events(artifact, "tool_result")[0]["content"].splitlines()
    assert said == ["model.sock", "openclaw.json", "relay.mjs", "/run/agentbench/model.sock"]
    assert artifact["changes"] == []


def test_programs_of_the_agent_are_unprivileged_on_the_host(project: Project) -> None:
    """They belong to nobody, in a closed folder; unpacked ones are ordinary files."""
    project.case("one", "Produce report.md.")
    project.script("one", steps(shell(SETUID)))
    finished = project.run("--agentbench-keep-workspaces")
    assert finished.outcomes == {"one[demo]": "failed"}, finished.text
    [kept] = project.tier.below.rglob("shell")
    assert kept.stat().st_uid not in (0, os.getuid())
    assert kept.parent.parent.stat().st_mode & 0o077 == 0
    artifact = project.artifact("one")
    with tarfile.open(project.bench.path / "outputs" / artifact["workspace"]) as archive:
        assert [each.mode for each in archive if each.name.endswith("shell")] == [0o755]


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_special_files_in_the_workspace_are_reported_and_not_followed(project: Project) -> None:
    artifact = one_run(project, shell(ODD))
    changes = {each["path"]: each for each in artifact["changes"]}
    links = {path: each["after"]["target"] for path, each in changes.items() if each["after"]["kind"] == "link"}
    assert links == {
        "absolute": "/etc/passwd",
        "climbing": "../../../../../../../../etc/passwd",
        "root": "/",
        "dangling": "missing",
        "loop": "loop",
        "here": ".",
        "ours": "/run/agentbench/openclaw.json",
        "session": "../agentbench-other/.lock",
        "style.txt": "/etc/passwd",
    }
    assert changes.keys() - links.keys() >= {"new\nline", "bad\\xffname", "<b>bold", "pipe", "closed/x"}
    secret = Path("/etc/passwd").read_bytes().splitlines()[0]
    assert [name for name, content in project.stored() if secret in content] == []
    with tarfile.open(project.bench.path / "outputs" / artifact["workspace"]) as archive:
        assert all(each.isfile() or each.isdir() for each in archive)


@pytest.mark.parametrize("project", [SLOW_STUB], indirect=True)
@pytest.mark.parametrize(
    ("making", "told"),
    [
        ("for i in $(seq 10000); do : > f$i; done", ("more_changes", 9_000)),
        ("for i in $(seq 300); do mkdir d; cd d; done; echo x > f", ("not_compared", "its folders are nested deeper")),
    ],
    ids=["many", "deep"],
)
def test_a_workspace_that_is_too_large_to_be_told(project: Project, making: str, told: tuple[str, Any]) -> None:
    note = one_run(project, shell(making))["metadata"][WORKSPACE_NOTE]
    name, expected = told
    assert note[name] >= expected if isinstance(expected, int) else str(note[name]).startswith(expected)


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_an_agent_that_fills_the_disk_is_stopped(project: Project) -> None:
    project.profile(sandbox={"type": "auto", "workspace_mb": 5})
    project.case("full", "Produce report.md.")
    project.script("full", steps(REPORT, shell("head -c 20000000 /dev/zero > big; sleep 60"), says="Never said."))
    finished = project.run()
    assert finished.outcomes == {"full[demo]": "failed"}, finished.text
    artifact = project.artifact("full")
    assert (artifact["status"], artifact["error"]["code"]) == ("failed", "sandbox_limit"), artifact["error"]
    assert "limit of disk" in artifact["error"]["message"]
    assert project.tier.containers() == []


def test_an_agent_that_starts_too_many_processes_is_refused_them(project: Project) -> None:
    project.profile(sandbox={"type": "auto", "processes": 40})
    many = "for i in $(seq 100); do sleep 15 & done 2>&1; echo after"
    artifact = one_run(project, shell(f"sh -c '{many}' < /dev/null"), shell("echo again"))
    first, second = (each["content"] for each in events(artifact, "tool_result"))
    assert "annot fork" in first
    assert "after" not in first or "annot fork" in second


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_a_container_that_somebody_else_removes_is_no_failure_of_the_agent(project: Project) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if project.tier.isolates:
            subprocess.run(["docker", "rm", "--force", *labelled(project.tier.below)], check=True, capture_output=True)
        else:
            engine = project.tier.settings["docker_cli"]
            for each in Path(engine).parent.glob("containers/*"):
                subprocess.run([engine, "rm", "--force", each.name], check=True)
        return {"role": "assistant", "content": "Done."}

    project.case("gone", "Produce report.md.", checks=ANY)
    with FaultEndpoint(answer=answer) as endpoint:
        project.bench.models({"model_id": "gpt", "base_url": endpoint.base_url, "api_key_env": "none"})
        finished = project.run(model="gpt")
    row = finished.runs["gone[gpt]"]
    assert row["outcome"] == "error", finished.text
    assert re.search("no such container|marked for removal", row["message"], re.IGNORECASE)
    assert project.tier.containers() == []


@pytest.mark.parametrize("project", [SLOW_STUB, IN_DOCKER], indirect=True)
def test_ctrl_c_ends_the_container(project: Project) -> None:
    project.case("waits", "Produce report.md.")
    project.script("waits", {"steps": [{"tool_calls": [REPORT]}, {"content": "Late.", "latency_seconds": 600}]})
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "--agentbench-run-profile=contained"]
    with subprocess.Popen(command, cwd=project.bench.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as session:
        deadline = time.monotonic() + 120
        while not any(each.is_file() for each in project.tier.below.rglob("report.md")):
            assert session.poll() is None, session.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        session.send_signal(signal.SIGINT)
        said = session.communicate(timeout=60)[0].decode()
    assert session.returncode == 2, said
    assert project.tier.containers() == []
    assert list((project.tier.below / "t").iterdir()) == []


@pytest.mark.parametrize("project", [IN_DOCKER, BY_DOCKER_PROGRAM], indirect=True)
def test_settings_baked_into_an_image_do_not_affect_the_run(project: Project) -> None:
    baked = [
        'ENTRYPOINT ["false"]',
        "USER 1234",
        "WORKDIR /etc",
        'VOLUME ["/tmp", "/workspace"]',
        "HEALTHCHECK --interval=1s CMD touch /workspace/healthy",
        "ENV HOME=/root OPENCLAW_STATE_DIR=/etc OPENCLAW_CONFIG_PATH=/etc/none NO_COLOR=",
    ]
    with project_image(project, *baked):
        artifact = one_run(project, REPORT, shell("env; pwd; sleep 1.5"))
    said = events(artifact, "tool_result")[1]["content"].splitlines()
    assert {"HOME=/tmp/home", "OPENCLAW_STATE_DIR=/tmp/openclaw", "NO_COLOR=1", "/workspace"} <= set(said)
    assert [each["path"] for each in artifact["changes"]] == ["report.md"]
    assert labelled(project.tier.below) == []


@pytest.mark.parametrize(
    ("baked", "outcome", "said"),
    [
        ("RUN rm /usr/local/bin/node", "skipped", "has no `node`, which the runner openclaw needs"),
        ("RUN rm /usr/local/bin/openclaw", "skipped", "has no `openclaw`, which the runner openclaw needs"),
        ("RUN rm /bin/sh", "error", "its image needs `sh` and `sleep`"),
        ("ENV PATH=/nowhere", "error", "its image needs `sh` and `sleep`"),
    ],
    ids=["node", "openclaw", "sh", "path"],
)
def test_an_image_that_lacks_a_program(project: Project, baked: str, outcome: str, said: str) -> None:
    project.case("one", "Produce report.md.")
    project.script("one", steps(REPORT))
    with project_image(project, baked):
        finished = project.run()
    assert finished.outcomes == {"one[demo]": outcome}, finished.text
    assert said in finished.text
    assert project.tier.containers() == []


@pytest.mark.parametrize("project", [SLOW_STUB], indirect=True)
@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        (None, "skipped", "there is no program"),
        ("exit 125", "skipped", "does not work here: `engine version` printed: exit code 125"),
        ("echo nonsense", "skipped", "`engine --version`: found 'nonsense', expected podman or docker"),
        ("echo podman version 5", "error", "engine system service: podman version 5"),
    ],
    ids=["folder", "fails", "nonsense", "serves-nothing"],
)
def test_an_engine_that_does_not_work(project: Project, program: str | None, outcome: str, said: str) -> None:
    engine = project.tier.below / "broken"
    if program is None:
        engine.mkdir()
    else:
        engine.write_text(f"#!/bin/sh\n{program}\n")
        engine.chmod(0o755)
    project.profile(openclaw={"docker_cli": str(engine)})
    project.case("one", "Produce report.md.")
    project.script("one", steps(REPORT))
    finished = project.run()
    assert finished.outcomes == {"one[demo]": outcome}, finished.text
    assert said in finished.text.replace(str(engine), "engine")


@pytest.mark.parametrize("project", [BY_DOCKER_PROGRAM], indirect=True)
def test_dockers_own_program_makes_the_container_and_ends_it(project: Project) -> None:
    slow_and_fast(project)
    assert labelled(project.tier.below) == []


@pytest.mark.slow
@needs_docker
def test_podman_makes_the_container_and_ends_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with podman() as program:
            image = Path(program).parent / "stub.tar"
            subprocess.run(["docker", "save", "--output", image, stub_image()], check=True)
            subprocess.run([program, "load", "--quiet", "--input", image], check=True, capture_output=True)

            def tier(below: Path) -> Tier:
                return Tier(below, {"image": stub_image(), "docker_cli": program}, time_out=4, many=1)

            with openclaw_project(tier, bench, monkeypatch) as project:
                slow_and_fast(project)
            listed = subprocess.run([program, "ps", "--all", "--quiet"], check=True, capture_output=True, text=True)
            assert listed.stdout == ""
    except PodmanLacks as lacks:
        pytest.skip(f"podman cannot run here: {lacks}")


@needs_root
def test_an_ordinary_user_of_docker(project: Project) -> None:
    """A user who may use the daemon's socket. The container's user is the same."""
    project.case("one", "Produce report.md.")
    project.script("one", steps(REPORT, shell("id -u; mkdir closed; chmod 0 closed /tmp/home")))
    below, socket = project.tier.below, Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    for folder in (below, below / "t", project.bench.path):
        shutil.chown(folder, NOBODY, NOBODY)
    group = socket.stat().st_gid
    # Python and this folder may lie where only root may read
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={group}"]
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "--agentbench-run-profile=contained"]
    env = {**os.environ, "HOME": str(below)}
    done = subprocess.run([*become, *command], cwd=project.bench.path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    artifact = project.artifact("one")
    assert events(artifact, "tool_result")[1]["content"] == f"{NOBODY}\n"
    assert [each["path"] for each in artifact["changes"]] == ["closed", "report.md"]
    assert project.tier.containers() == []
    assert list((below / "t").iterdir()) == []


def slow_and_fast(project: Project) -> None:
    """Run a session in which one run takes too long and another succeeds."""
    project.profile(seconds=project.tier.time_out)
    project.case("fast", "Produce report.md.")
    project.script("fast", steps(REPORT))
    project.case("slow", "Produce report.md.", checks=(check("timed-out", kind="status_is", status="timed_out"),))
    project.script("slow", {"steps": [{"tool_calls": [REPORT]}, {"content": "Late.", "latency_seconds": 600}]})
    finished = project.run()
    assert finished.outcomes == {"fast[demo]": "passed", "slow[demo]": "passed"}, finished.text
    assert [each["path"] for each in project.artifact("slow")["changes"]] == ["report.md"]


class project_image:
    """Replace the profile's image by the stub's with these lines after its FROM, for the block."""

    def __init__(self, project: Project, *lines: str) -> None:
        self._project, self._lines = project, lines

    def __enter__(self) -> None:
        folder = self._project.tier.below / "image"
        folder.mkdir()
        (folder / "Dockerfile").write_text("\n".join([f"FROM {stub_image()}", *self._lines]))
        self._tag = f"agentbench-test-openclaw:{os.getpid()}-{time.monotonic_ns()}"
        with closing(docker.from_env()) as client:
            client.images.build(path=str(folder), tag=self._tag, rm=True)
        self._project.profile(openclaw={"image": self._tag})

    def __exit__(self, *error: object) -> None:
        with closing(docker.from_env()) as client:
            client.images.remove(self._tag)
