"""Sandboxes of a plugin: own settings in run profiles, a case's image, the case itself, and failures."""

from __future__ import annotations

import pytest
from support.bench import HEAD

from pytest_agentbench import RunArtifact

FARM = (
    HEAD
    + """
from pathlib import Path
from pytest_agentbench import SandboxProvider, SandboxSession, SandboxSettings
from pytest_agentbench.workspaces.sandboxes.host import LocalSandbox

class FarmSettings(SandboxSettings):
    host: str
    port: int = 7

class LostSandbox(LocalSandbox):
    async def exec(self, argv, **options):
        if Path("lost").exists():
            raise ConnectionResetError("the farm hung up")
        return await super().exec(argv, **options)

class FarmSession(SandboxSession):
    async def start(self, request):
        spec = request.spec
        own = spec.settings
        note("started.txt", f"{request.role} {request.case.case_id} {own.host}:{own.port} {spec.image}")
        sandbox = LostSandbox(request.workspace, spec.limits)
        sandbox.kind = spec.kind
        return sandbox

class Farm(SandboxProvider):
    settings = FarmSettings
    takes = frozenset({"image"})

    def open(self):
        return FarmSession()

def pytest_agentbench_sandboxes():
    return {"farm": Farm()}

async def agent(case, context):
    sandbox = await context.sandbox()
    return (await sandbox.exec(["echo", "Paris"], seconds=20)).output
"""
)


@pytest.fixture
def project(bench):
    bench.agent(FARM)
    bench.profile("away", sandbox={"type": "farm", "host": "barn"})
    # A tool that runs commands: only then is the sandbox a part of the run's identity
    bench.case(
        "one",
        sandbox={"image": "farm:1"},
        input={
            "messages": [{"role": "user", "content": "The capital of France?"}],
            "context": {"llm_probe": {"tools": ["exec_shell"]}},
        },
    )
    return bench


def run(bench, *args):
    return bench.run("--agentbench-run-profile", "away", *args)


def test_a_provider_gets_the_profiles_own_settings_the_image_and_the_case(project):
    assert run(project).outcomes == {"one[agent]": "passed"}
    assert project.lines("started.txt") == ["run one barn:7 farm:1"]


def test_a_run_in_it_can_be_read_without_its_provider(project):
    run(project)
    [path] = (project.path / "outputs/runs").rglob("run_1.json")
    assert RunArtifact.model_validate_json(path.read_text()).sandbox.kind == "farm"


def test_a_changed_setting_of_the_provider_makes_the_run_again(project):
    run(project)
    assert run(project).runs["one[agent]"]["reused"]
    project.profile("away", sandbox={"type": "farm", "host": "stable"})
    assert not run(project).runs["one[agent]"]["reused"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "barn", "stalls": 3}, "sandbox.stalls: unknown field"),
        ({"host": "barn", "port": "seven"}, "sandbox.port: found 'seven'"),
        ({}, "sandbox.host: missing"),
    ],
    ids=["unknown", "wrong", "missing"],
)
def test_wrong_settings_of_a_provider_are_errors_at_their_place(project, settings, message):
    project.profile("away", sandbox={"type": "farm", **settings})
    finished = run(project)
    assert message in finished.text
    assert "run_profiles/away.yaml:" in finished.text


def test_a_type_alone_names_the_settings_that_it_lacks(project):
    project.profile("away", sandbox="farm")
    finished = run(project)
    assert "host" in finished.text
    assert "run_profiles/away.yaml:" in finished.text


def test_a_case_with_a_dockerfile_is_skipped_by_a_provider_that_takes_images_only(project):
    project.write("cases/one/Dockerfile", "FROM farm:1\n")
    project.case("one", sandbox={"dockerfile": "Dockerfile"}, setup="true")
    finished = run(project, "-rs")
    assert finished.outcomes == {"one[agent]": "skipped"}
    assert "`sandbox: farm`, which takes image only" in finished.text


def test_a_lost_connection_of_the_provider_is_an_error_and_no_failure_of_the_agent(project):
    project.write("lost", "")
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "sandbox farm: exec: ConnectionResetError: the farm hung up" in finished.text


OLD_SANDBOX = """
class LostSandbox:
    def __init__(self, workspace, limits):
        self.workspace = workspace

    async def exec(self, argv, **options): ...

    async def open(self, argv, **options): ...

    async def stop(self): ...
"""


def test_an_attribute_of_a_provider_by_its_old_name_is_an_error_with_its_new_name(project):
    project.agent(FARM.replace("    takes = ", "    isolates_like = 'docker'\n    takes = "))
    text = run(project).text
    assert "conftest.py adds the sandbox 'farm' as one with the attribute 'isolates_like' of an earlier" in text
    assert "write `isolation` instead: 'container' for 'docker'" in text


def test_a_sandbox_with_open_and_without_spawn_is_an_error_with_the_new_name(project):
    project.agent(FARM.replace("class FarmSession", f"{OLD_SANDBOX}\nclass FarmSession"))
    finished = run(project)
    assert finished.outcomes == {"one[agent]": "error"}
    assert "LostSandbox has the method `open` of an earlier version; rename it to `spawn`" in finished.text


SOURCE = """
from pytest_agentbench import Case, CaseSource, OpenedSource, SourceCase, SourceFiles
from pytest_agentbench.records.case import Message, RunnerSpec

class OpenedList(OpenedSource):
    def rows(self, subject=None):
        for number, sandbox in enumerate(self.path.read_text().split(), 1):
            make = lambda number=number, sandbox=sandbox: Case(
                case_id=f"list.{number}", title="t", path=self.path, line=number, report_only=True,
                runner=RunnerSpec(type="command", command=["cat"], sandbox=sandbox),
                messages=(Message(role="user", content="Paris?"),),
            )
            yield SourceCase(f"list.{number}", (), self.path, number, make)

class Lists(CaseSource):
    def holds_cases(self, path, head):
        return True

    def open(self, path, request):
        return OpenedList(path)

def pytest_agentbench_case_sources():
    return {"list": SourceFiles(Lists(), ["*.list"], ["f"])}
"""


def test_a_program_runs_in_a_plugins_sandbox_and_an_unknown_one_is_an_error_of_the_case(project):
    project.agent(FARM.replace("def agentbench_runner", "def unused") + SOURCE)
    project.write("cases/few.list", "farm\nfram\n")
    finished = run(project, "cases/few.list", "--model", "demo")
    assert finished.outcomes == {"list.1[demo]": "passed", "list.2[demo]": "error"}
    assert (
        "few.list:2:1: runner.sandbox: found 'fram', expected 'docker', 'bubblewrap', 'local' or 'farm'"
        in finished.text
    )
