"""`agentbench doctor` as a process, with a separate environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.listener import listening

KEY = "zebra-crossing-4711"
RUN = "import sys; from pytest_agentbench.cli import main; sys.exit(main())"
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


class Project:
    """A folder with configuration, and the doctor's word on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyproject.toml").touch()

    def write(self, name: str, /, **fields) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"schema_version": 1, **fields}))

    def case(self, case_id: str, *tools: str, runner: str = "llm_probe", **own: str) -> None:
        self.write(
            f"{case_id}/test.yaml",
            case_id=case_id,
            title=case_id,
            runner={"type": runner, **own},
            input={"messages": [{"role": "user", "content": "?"}], "context": {"llm_probe": {"tools": [*tools]}}},
            deterministic_checks=[{"check_id": "any", "declarative": {"kind": "final_response_present"}}],
        )

    def judge(self, base_url: str) -> None:
        """A judge with a key, and the profile that asks it."""
        entry = {"model_id": "careful", "base_url": base_url, "api_key_env": "JUDGE_KEY"}
        self.write("models.yaml", models=[entry])
        self.write(
            "evaluation_profiles/p.yaml",
            evaluation_profile_id="p",
            title="p",
            judges=[{"judge_id": "j", "type": "llm_probe", "model": "careful"}],
            judge_runs=[{"judge_run_id": "r", "judge_id": "j"}],
        )

    def agent(self, name: str, program: str) -> None:
        """An adapter of the project's own."""
        said = {"name": name, "title": name, "licence": "MIT", "install": {"pypi": f"{name}==1.0.0"}}
        self.write(f"agents/{name}/agent.yaml", **said, dialects=["chat"], argv=[program, "{message}"], answer={})

    def profile(self, **sandbox) -> None:
        self.write("run_profiles/p.yaml", run_profile_id="p", title="p", sandbox=sandbox)

    def openclaw(self, **block) -> None:
        """Add a case of the runner openclaw, with a profile that chooses its OpenClaw."""
        self.case("claw", runner="openclaw")
        settings = {"agent_id": "writer", "timeout_seconds": 60, "image": IMAGE, **block}
        self.write("run_profiles/p.yaml", run_profile_id="p", title="p", openclaw=settings)

    def doctor(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.agentbench("doctor", *arguments, **environ)

    def agentbench(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST", "TMPDIR") if name in os.environ}
        command = [sys.executable, "-c", RUN, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=keep | environ, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@contextmanager
def endpoint() -> Iterator[str]:
    """An endpoint on loopback that lists its models for KEY only, and quotes the key that it got."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            found = 404 if self.path != "/v1/models" else 200 if given == f"Bearer {KEY}" else 401
            self.send_response(found, given)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


def line(done: subprocess.CompletedProcess[str], about: str) -> str:
    """Return the only line of the output about a part."""
    found = [each for each in done.stdout.splitlines() if f"  {about}: " in each]
    assert len(found) == 1, done.stdout + done.stderr
    return found[0].strip()


@pytest.mark.slow
def test_where_nothing_is_needed_nothing_is_missing(project):
    project.case("plain")
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 cases can run" in done.stdout
    assert "docker: no docker daemon answers at /nowhere/docker.sock" in done.stdout
    assert done.stdout.endswith("Everything that is needed here works.\n")


@pytest.mark.slow
def test_a_case_that_would_be_skipped_is_named_with_a_remedy(project):
    project.case("plain")
    project.case("shell", "exec_shell")
    project.profile(type="docker", image="some:1")
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 1
    assert "1 of 2 cases can run" in done.stdout
    said = line(done, "skipped: shell")
    assert said.startswith("MISSING")
    assert "start docker, or set DOCKER_HOST" in said


@pytest.mark.slow
def test_sandboxes_of_other_distributions_are_named_with_their_isolation(project, tmp_path):
    info = tmp_path / "site" / "farms-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: farms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pytest_agentbench.packs]\nfarms = farms:PACK\n")
    (info.parent / "farms.py").write_text(
        "from pytest_agentbench import Pack, SandboxProvider as Base\n"
        "Barn, Farm, Ruin = Base(), Base(), Base()\n"
        "Farm.isolation = 'container'\n"
        "from pytest_agentbench import SandboxSession\n"
        "from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox\n"
        "class Session(SandboxSession):\n"
        "    async def start(self, request):\n"
        "        return LocalSandbox(request.workspace, request.spec.limits)\n"
        "Farm.open = Session\n"
        "Ruin.problem = lambda: 'it fell down; build it again'\n"
        "PACK = Pack('farms', sandboxes={'farm': Farm, 'barn': Barn, 'ruin': Ruin})\n"
    )
    project.case("shell", "exec_shell")
    project.profile(type="ruin")
    done = project.doctor(**NO_DOCKER, PYTHONPATH=str(info.parent))
    assert line(done, "farm") == "ok       farm: isolation: container; --live runs a command in it"
    assert line(done, "barn") == "ok       barn: isolation: none; --live runs a command in it"
    assert line(done, "local").startswith("ok       local: isolation: none; ran a command in ")
    assert "ruin: it fell down; build it again" in line(done, "skipped: shell")
    live = project.doctor("--live", **NO_DOCKER, PYTHONPATH=str(info.parent))
    assert line(live, "farm").startswith("ok       farm: isolation: container; ran a command in ")
    assert "sandbox barn: open: NotImplementedError" in line(live, "barn")
    assert "run a command in the sandbox farm" in live.stderr


@pytest.mark.slow
def test_a_folder_without_cases_is_reported(project):
    assert line(project.doctor(**NO_DOCKER), "files").startswith("-        files: none to look at below ")


@pytest.mark.slow
def test_a_password_in_the_url_of_an_endpoint_is_not_shown(project):
    entry = {"model_id": "proxied", "base_url": "http://me:hunterhunter@127.0.0.1:9/v1", "api_key_env": "none"}
    project.write("models.yaml", models=[entry])
    done = project.doctor(**NO_DOCKER)
    assert "http://[redacted]@127.0.0.1:9/v1" in line(done, "proxied")
    assert "hunter" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_search_without_backend(project):
    project.case("asks-the-web", "web_search")
    assert "AGENTBENCH_SEARXNG_URL" in line(project.doctor(), "skipped: asks-the-web")
    assert project.doctor(AGENTBENCH_SEARXNG_URL="http://127.0.0.1:9").returncode == 0


@pytest.mark.slow
def test_a_judge_that_answers(project):
    project.case("plain")
    with endpoint() as base_url:
        project.judge(base_url)
        done = project.doctor("--live", JUDGE_KEY=KEY)
        assert done.returncode == 0, done.stdout + done.stderr
        assert line(done, "judge careful").startswith("ok")
        assert f"--live: GET {base_url}/models with the key in JUDGE_KEY" in done.stderr


@pytest.mark.slow
def test_a_judge_with_a_wrong_key_is_missing(project):
    with endpoint() as base_url:
        project.judge(base_url)
        done = project.doctor("--live", JUDGE_KEY="another-key-0815")
    assert done.returncode == 1
    assert "refuses the key in JUDGE_KEY (HTTP 401)" in line(done, "judge careful")


@pytest.mark.slow
def test_a_judge_without_key_and_one_that_is_not_there(project):
    with endpoint() as base_url:
        project.judge(base_url)
        done = project.doctor()
        assert done.returncode == 1
        assert "JUDGE_KEY is not set" in line(done, "judge careful")
    done = project.doctor("--live", JUDGE_KEY=KEY)
    assert done.returncode == 1
    assert "cannot be reached" in line(done, "judge careful")


@pytest.mark.slow
def test_a_model_that_no_judge_needs_fails_nothing(project):
    project.write("models.yaml", models=[{"model_id": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "none"}])
    done = project.doctor("--live")
    assert done.returncode == 0
    assert line(done, "m").startswith("no")


@pytest.mark.slow
def test_a_judge_that_no_model_has_needs_no_key(project):
    project.judge("http://127.0.0.1:9/v1")
    project.write("models.yaml", models=[{"model_id": "m", "requested_model": "m", "scripted": True, "judge": "m"}])
    done = project.doctor()
    assert done.returncode == 0
    assert "JUDGE_KEY" not in done.stdout


@pytest.mark.slow
def test_the_profile_of_pytests_configuration_is_examined_alone(project):
    for name in ("one", "two"):
        project.write(f"run_profiles/{name}.yaml", run_profile_id=name, title=name)
    assert "profile one" in project.doctor().stdout
    (project.folder / "pytest.ini").write_text("[pytest]\nagentbench_profile = two\n")
    done = project.doctor()
    assert "profile two" in done.stdout
    assert "profile one" not in done.stdout
    assert "profile one" in project.doctor("--profile", "one").stdout


@pytest.mark.slow
def test_no_value_of_a_key_is_shown(project):
    with endpoint() as base_url:
        project.judge(f"{base_url}/{KEY}")
        for arguments in (("--live",), ("--json", "--live")):
            done = project.doctor(*arguments, JUDGE_KEY=KEY)
            assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_programs_of_mcp_servers(project):
    project.write(
        "run_profiles/p.yaml",
        run_profile_id="p",
        title="p",
        mcp_servers={"here": {"command": "sh"}, "gone": {"command": "no-such-program", "args": ["x"]}},
    )
    done = project.doctor()
    assert done.returncode == 1
    assert line(done, "p/here").startswith("ok")
    assert "the program no-such-program is not installed" in line(done, "p/gone")


@pytest.mark.slow
def test_a_store_that_cannot_be_written(project):
    (project.folder / "file").touch()
    done = project.doctor("--output", "file/outputs")
    assert done.returncode == 1
    assert "Not a directory" in line(done, "store")
    assert not (project.folder / "outputs").exists()  # nothing is made by looking


@pytest.mark.slow
def test_only_the_profile_that_is_named(project):
    project.case("shell", "exec_shell")
    project.profile(type="docker", image="some:1")
    project.write("run_profiles/trusting.yaml", run_profile_id="trusting", title="t", sandbox="local")
    assert project.doctor(**NO_DOCKER).returncode == 1
    done = project.doctor("--profile", "trusting", **NO_DOCKER)
    assert done.returncode == 0, done.stdout
    assert "commands of agents run on this machine without isolation" in done.stdout
    done = project.doctor("--profile", "nowhere")
    assert done.returncode == 1
    assert "there is no run profile 'nowhere'" in done.stderr


@pytest.mark.slow
def test_json(project):
    project.case("shell", "exec_shell")
    project.profile(type="docker", image="some:1")
    found = json.loads(project.doctor("--json", **NO_DOCKER).stdout)
    assert found["works"] is False
    lacking = [each for each in found["findings"] if each["needed"] and each["works"] is False]
    assert [each["name"] for each in lacking] == ["skipped: shell"]


@pytest.mark.slow
@needs_docker
def test_docker_is_tried_and_no_image_is_pulled(project):
    project.case("shell", "exec_shell")
    project.profile(type="auto", image=IMAGE)
    done = project.doctor("--live")
    assert done.returncode == 0, done.stdout
    assert "ran a command in" in line(done, f"image {IMAGE}")
    assert "takes docker" in done.stdout
    project.profile(type="docker", image="no/such-image:1")
    assert "is not on this machine" in line(project.doctor(), "image no/such-image:1")


@pytest.mark.slow
@needs_bubblewrap
def test_bubblewrap_is_tried(project):
    project.case("shell", "exec_shell")
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 0, done.stdout
    assert "ran a command in" in line(done, "bubblewrap")
    assert "takes bubblewrap" in done.stdout


@pytest.mark.slow
@needs_docker
def test_an_openclaw_case_that_can_run(project):
    project.openclaw()
    done = project.doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 cases can run" in done.stdout
    assert line(done, f"image {IMAGE}").startswith("ok")


@pytest.mark.slow
@needs_docker
def test_an_openclaw_image_that_is_still_to_be_built(project):
    project.openclaw(image="localhost/nobody-built-this:1")
    done = project.doctor()
    assert done.returncode == 1
    assert "0 of 1 cases can run" in done.stdout
    for about in ("skipped: claw", "image localhost/nobody-built-this:1"):
        said = line(done, about)
        assert said.startswith("MISSING")
        assert "build it with `agentbench openclaw image`" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "no docker daemon answers at /nowhere/docker.sock"),
        ({"docker_cli": "no-such-engine"}, "there is no program 'no-such-engine'"),
    ],
)
def test_an_openclaw_case_without_an_engine(project, block, said):
    project.openclaw(**block)
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 1
    assert line(done, "skipped: claw").startswith("MISSING")
    assert done.stdout.count(said) == 2, "of the engine itself, and of the case"


@pytest.mark.slow
def test_an_openclaw_case_under_a_profile_that_names_no_agent(project):
    project.case("claw", runner="openclaw")
    project.profile(type="auto")
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 1
    assert "add `openclaw: {agent_id: ..., image: name:tag" in line(done, "skipped: claw")


@pytest.mark.slow
def test_agents_that_are_not_here(project):
    project.profile(type="local")
    project.agent("mine", "no-such-agent")
    project.case("in-docker", runner="agent", agent="codex")
    project.case("installed", runner="agent", agent="mine", sandbox="bubblewrap")
    project.case("misspelt", runner="agent", agent="codx", sandbox="local")
    done = project.doctor(**NO_DOCKER)
    assert done.returncode == 1
    assert "no docker daemon answers at /nowhere/docker.sock" in line(done, "skipped: in-docker")
    assert "the program no-such-agent is not installed" in line(done, "skipped: installed")
    assert "there is no agent 'codx'; did you mean 'codex'?" in line(done, "skipped: misspelt")


@needs_docker
@pytest.mark.slow
def test_an_agent_without_its_image_is_missing(project):
    project.agent("mine", "mine")
    project.case("one", runner="agent", agent="mine")
    said = "there is no image of mine here; build it: agentbench agents image mine"
    assert said in line(project.doctor(), "skipped: one")


@pytest.mark.slow
def test_looking_starts_and_sends_nothing_that_a_file_names(project):
    """Of `doctor`, `validate` and `list`. With --live the doctor lists its requests before it sends them."""
    ran, engine = project.folder / "ran", project.folder / "tools" / "engine"
    engine.parent.mkdir()
    engine.write_text(f"#!/bin/sh\nenv > {ran}\n")
    engine.chmod(0o755)
    project.openclaw(docker_cli="../tools/engine")
    project.write("agents/writer/agent.yaml", agent_id="writer", title="w")
    server = {"command": "../tools/engine", "cwd": "."}
    with listening() as listener:
        project.judge(f"{listener.url}/v1")
        project.write("servers.yaml", servers={"Here": server, "There": {"url": listener.url}})
        looks = [("validate", "."), ("list", "."), ("doctor",), ("doctor", "--json")]
        for words in looks:
            project.agentbench(*words, JUDGE_KEY=KEY, **NO_DOCKER)
            assert not ran.exists(), words
            assert listener.said == [], words
        done = project.doctor(JUDGE_KEY=KEY, **NO_DOCKER)
        assert "--live starts it to see" in line(done, f"container engine {engine}")
        assert "--live asks the endpoint" in line(done, "judge careful")
        assert "Not tried without --live: 2 of the above." in done.stdout
        live = project.doctor("--live", JUDGE_KEY=KEY, **NO_DOCKER)
    assert f"--live: run `{engine} version`" in live.stderr
    assert "with the key in JUDGE_KEY" in live.stderr
    assert len(listener.said) == 1
    assert KEY not in ran.read_text()
