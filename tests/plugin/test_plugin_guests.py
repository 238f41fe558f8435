"""Sessions on a project into which a folder of somebody else's was put: what it asks for beyond a guest's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, case_yaml
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.config.grants import decide_trust

VENDOR = "cases/vendor"


def says_paris(_: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "Paris"}


def write_profile(bench: Bench, root: str, name: str, **fields: Any) -> Path:
    profile = {"schema_version": 1, "run_profile_id": name, "title": name, **fields}
    return bench.write(f"{root}/run_profiles/{name}.yaml", profile)


def write_models(bench: Bench, root: str, **models: str) -> None:
    entries = [{"model_id": name, "base_url": url, "api_key_env": "none"} for name, url in models.items()]
    bench.write(f"{root}/models.yaml", {"schema_version": 1, "models": entries})


def shell_case(bench: Bench, folder: str, name: str, command: str) -> None:
    """A case whose agent runs a command and then answers."""
    asked = {"messages": [{"role": "user", "content": "Go on."}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
    bench.case(name, folder=folder, input=asked)
    steps = [{"tool_calls": [{"name": "exec_shell", "arguments": {"command": command}}]}, {"content": "Paris"}]
    bench.write(f"{folder}/{name}/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})


@pytest.fixture
def project(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    bench.case("own")
    bench.case("theirs", folder=VENDOR)
    return bench


def outcomes(finished: Finished) -> dict[str, str]:
    return {name.partition("[")[0]: outcome for name, outcome in finished.outcomes.items()}


@pytest.mark.slow
def test_a_guests_models_take_over_no_model_of_the_user(project: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultEndpoint(answer=says_paris) as users, FaultEndpoint(answer=says_paris) as theirs:
        write_models(project, "cases", mine=users.base_url)
        write_models(project, VENDOR, **{"mine": theirs.base_url, "gpt-4o": theirs.base_url})
        finished = project.run("--model=mine")
        assert outcomes(finished) == {"own": "passed", "theirs": "passed"}, finished.text
        assert len(users.requests) == 2

        monkeypatch.setenv("OPENAI_BASE_URL", users.base_url)  # which the user's file does not have
        monkeypatch.setenv("OPENAI_API_KEY", "sk-users")
        finished = project.run("--model=gpt-4o", "cases")
        assert "found 'gpt-4o', which only a guest's file declares" in finished.text
        assert f"{project.path}/cases/models.yaml" in finished.text
        assert f"agentbench trust {project.path}/cases/vendor" in finished.text
        assert outcomes(finished) == {"own": "passed"}
        assert theirs.requests == []

        finished = project.run("--model=gpt-4o", f"--agentbench-trust={VENDOR}", VENDOR)
        assert outcomes(finished) == {"theirs": "passed"}, finished.text


@pytest.mark.slow
def test_a_guests_profile_replaces_none_of_the_users(project: Bench) -> None:
    shell_case(project, "cases", "mine", "echo mine")
    shell_case(project, "cases", "own", "echo own")
    shell_case(project, VENDOR, "attack", f"touch {project.path}/escaped")
    write_profile(project, "cases", "safe", sandbox="auto")
    theirs = write_profile(project, VENDOR, "safe", sandbox="local")
    finished = project.run("--model=demo", "--agentbench-run-profile=safe")
    assert not (project.path / "escaped").exists()
    assert re.search(rf"{theirs}:\d+:\d+: sandbox.type: found 'local', expected at most 'auto'", finished.text)
    assert f"according to {project.path}/cases/run_profiles/safe.yaml" in finished.text
    assert outcomes(finished) == {"own": "passed", "mine": "passed"}
    assert finished.exit == 1

    write_profile(project, VENDOR, "safe", sandbox={"type": "auto", "memory_mb": 64})
    finished = project.run("--model=demo", "--agentbench-run-profile=safe", "--collect-only", "-q")
    assert "attack[demo]" in finished.text


BARN = """
from pytest_agentbench import SandboxProvider, SandboxSession
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox

class Barn(SandboxSession):
    async def start(self, request):
        return LocalSandbox(request.workspace, request.spec.limits)

class Barns(SandboxProvider):
    def open(self):
        return Barn()

def pytest_agentbench_sandboxes():
    return {"barn": Barns()}
"""


@pytest.mark.parametrize("sandbox", ["local", "barn"])
def test_a_guests_commands_never_run_without_isolation(project: Bench, sandbox: str) -> None:
    """The user's own profile may run the user's there."""
    project.write("conftest.py", BARN)
    for folder, name in (("cases", "mine"), (VENDOR, "attack")):
        shell_case(project, folder, name, f"touch {project.path}/{name}")
    write_profile(project, "cases", "here", sandbox=sandbox, execution_policy={"stop_on_runner_error": False})
    write_profile(project, VENDOR, "other")
    finished = project.run("--model=demo", "--agentbench-run-profile=here", "-k", "mine or attack")
    assert outcomes(finished) == {"mine": "passed", "attack": "error"}
    assert f"runs without isolation (sandbox: {sandbox}), expected a sandbox" in finished.text
    assert [(project.path / name).exists() for name in ("mine", "attack")] == [True, False]


@pytest.mark.parametrize("option", ["--agentbench-run-profile=theirs", "--agentbench-evaluation-profile=theirs"])
def test_a_profile_of_a_guest_cannot_permit_more_than_the_default(project: Bench, option: str) -> None:
    project.profile("other")
    write_profile(project, VENDOR, "theirs", allow_outside_paths=True, network={"allow_private": ["127.0.0.1"]})
    policy = {"allow_local_python_hooks": True, "network_access": "allow", "redact_secrets": False}
    evaluation = {"evaluation_profile_id": "theirs", "title": "x", "security_policy": policy}
    project.write(f"{VENDOR}/evaluation_profiles/theirs.yaml", {"schema_version": 1, **evaluation})
    finished = project.run("--model=demo", option)
    named = [*policy] if "evaluation" in option else ["allow_outside_paths", "network.allow_private"]
    for field in named:
        assert f"{field}: found" in finished.text
    assert not finished.outcomes  # the user's root has no profile of that name


def test_a_guests_files_name_no_program(project: Bench) -> None:
    """And none of it takes the user's own cases down."""
    project.models()
    project.write(f"{VENDOR}/models.yaml", {"schema_version": 1})
    server = {"command": "touch", "args": [str(project.path / "escaped")], "sandbox": "local"}
    project.write(f"{VENDOR}/deep/servers.yaml", {"schema_version": 1, "servers": {"x": server}})
    project.case("named", folder=f"{VENDOR}/deep", mcp_servers=["x"])
    project.case("inline", folder=VENDOR, mcp_servers={"y": {"command": "touch", "args": ["z"]}})
    project.write(f"{VENDOR}/hook/check.py", "raise SystemExit\n")
    hook = {"check_id": "h", "python_hook": {"path": "check.py", "callable_name": "f"}}
    project.case("hook", folder=VENDOR, deterministic_checks=[hook])
    project.write(f"{VENDOR}/docker/Dockerfile", "FROM x\n")
    project.case("docker", folder=VENDOR, sandbox={"dockerfile": "Dockerfile"})
    project.write(f"{VENDOR}/rows/mine.py", f"open({str(project.path / 'escaped')!r}, 'w')\nclass B: pass\n")
    project.write(
        f"{VENDOR}/rows/dataset.yaml", {"schema_version": 1, "name": "r", "files": ["r.jsonl"], "benchmark": "mine:B"}
    )
    project.rows(f"{VENDOR}/rows/r.jsonl", {"id": "q", "question": "x?", "answer": "Paris"})
    project.agent()
    finished = project.run()
    for found in ("the MCP servers 'x'", "the server 'touch'", "a Python hook", "'Dockerfile'", "the class 'mine:B'"):
        assert f"found {found}" in finished.text, finished.text
    assert outcomes(finished) == {"own": "passed", "theirs": "passed"}
    assert not (project.path / "escaped").exists()


@pytest.mark.slow
def test_of_roots_beside_each_other_the_first_that_is_asked_for_is_the_users(project: Bench) -> None:
    for root, asks in (("one", {"sandbox": "local"}), ("two", {"allow_outside_paths": True})):
        project.write(f"{root}/a/test.yaml", case_yaml(root))
        write_profile(project, root, "wide", **asks)
    project.agent()
    for asked in (("one", "two"), ("two", "one")):
        finished = project.run("--agentbench-run-profile=wide", *asked)
        assert outcomes(finished) == {asked[0]: "passed"}, finished.text
        assert f"agentbench trust {project.path}/{asked[1]}" in finished.text
    finished = project.run("--agentbench-run-profile=wide", "--ignore=cases")
    assert "name your own config root as the only path or by agentbench_configs" in finished.text
    assert (
        "configuration root: none, several folders may be yours (one, two); name yours as the only path"
        in finished.text
    )
    assert not finished.outcomes


def test_a_guests_ids_take_no_case_of_the_user_down(project: Bench) -> None:
    project.profile("any")
    project.agent()
    project.case("own", folder="a_vendor")
    project.write("a_vendor/models.yaml", {"schema_version": 1})
    for ini in ("", "agentbench_configs = cases\n"):
        project.write("pytest.ini", f"[pytest]\n{ini}")
        finished = project.run("a_vendor", "cases")
        assert finished.report is not None
        assert [row["outcome"] for row in finished.report["runs"]] == ["passed"] * 3, finished.text


@pytest.mark.slow
def test_a_grant_holds_for_workers_and_ends_with_an_edited_file(project: Bench) -> None:
    from pytest_agentbench.cli import main

    project.profile("wide")
    theirs = write_profile(project, VENDOR, "wide", sandbox="local")
    project.agent()
    assert main(["trust", str(project.path / VENDOR)]) == 0
    finished = project.spawn("--agentbench-run-profile=wide", "-n2")
    assert outcomes(finished) == {"own": "passed", "theirs": "passed"}, finished.text
    theirs.write_text(theirs.read_text() + "allow_outside_paths: true\n")
    finished = project.run("--agentbench-run-profile=wide")
    assert "its grant ended: run_profiles/wide.yaml has changed" in finished.text
    assert outcomes(finished) == {"own": "passed"}
    project.write("pytest.ini", f"[pytest]\nagentbench_trust = {VENDOR}\n")
    finished = project.run("--agentbench-run-profile=wide")
    assert outcomes(finished) == {"own": "passed", "theirs": "passed"}


@pytest.mark.slow
def test_a_session_that_records_in_a_granted_folder_does_not_end_the_grant(
    project: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its cassettes nor by bytecode of the folder's conftest; a planted cassette does."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    project.write(f"{VENDOR}/conftest.py", "import pytest\n")
    guest = project.path / VENDOR
    (guest / "suites").mkdir(exist_ok=True)
    with FaultEndpoint(answer=says_paris) as users:
        write_models(project, "cases", mine=users.base_url)
        assert main(["trust", str(guest)]) == 0
        for _ in range(2):
            finished = project.run("--model=mine", "--agentbench-cassettes=record", "--agentbench-no-reuse", "cases")
            assert outcomes(finished) == {"own": "passed", "theirs": "passed"}, finished.text
            assert decide_trust(project.path).covers(str(guest)), decide_trust(project.path).ended
        assert not (guest / "__pycache__").exists()
        cassette = guest / "theirs/cassettes/mine-r1.yaml"
        cassette.write_text(cassette.read_text().replace("Paris", "Lyon"))
        project.run("--model=mine", "--agentbench-cassettes=auto", "--agentbench-no-reuse", "cases")
        assert decide_trust(project.path).ended[0][1] == "theirs/cassettes/mine-r1.yaml is new"
        assert not decide_trust(project.path).covers(str(guest))
