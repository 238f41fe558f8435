"""The inputs of an OpenClaw run: its agent, the agent's identity, and the initial workspace."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.agent_code import CodeReader
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.job import Plan
from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.packs.openclaw.container import OpenClawAgent
from pytest_agentbench.packs.openclaw.runs import OpenClawRuns, make_openclaw_spec
from pytest_agentbench.records.case import Case, Model, RunnerSpec
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.runners.kinds import RunRequest, SessionParts
from pytest_agentbench.store.artifacts import Store
from pytest_agentbench.workspaces.containers.daemon import docker_problem
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

MODEL = Model(model_id="m", requested_model="m", api_key_env=None)
AGENT = {
    "schema_version": 1,
    "agent_id": "writer",
    "title": "Writer",
    "openclaw": {"identity": {"name": "W"}, "agent": {"id": "the-writer", "prompt": "You write."}},
}
BLOCK = {"agent_id": "writer", "image": "openclaw:1", "timeout_seconds": 60}


class Project:
    """A config root with agents, and the objects that a session makes from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agent()
        self.put("writer", "AGENTS.md", "# Mine\n")
        self.put("writer", "bin/tool", "#!/bin/sh\n")

    def agent(self, name: str = "writer", **fields: Any) -> None:
        path = self.root / "agents" / name / "agent.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({**AGENT, "agent_id": name, **fields}))
        (path.parent / "workspace").mkdir(exist_ok=True)

    def put(self, agent: str, name: str, text: str) -> Path:
        path = self.root / "agents" / agent / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plan(self, agents: dict[str, str] | None = None, **profile: Any) -> Plan:
        fields = {"schema_version": 1, "run_profile_id": "p", "title": "P", "openclaw": BLOCK, **profile}
        run_profile, evaluation = RunProfile.model_validate(fields), EvaluationProfile.default()
        model_store = Store(self.root / "outputs").of_model(None, run_profile, evaluation, "m", ())
        root = ConfigRoot(self.root)
        assigned = [
            {"agent_id": agent, "case_selection": {"include_case_ids": [case]}}
            for case, agent in (agents or {}).items()
        ]
        suite = SuiteFile.model_validate(
            {"schema_version": 1, "suite_id": "s", "title": "S", "openclaw": {"agent_assignments": assigned}}
        )
        return Plan(root, None, "m", run_profile, evaluation, judges={}, model_store=model_store, suite=suite)

    def case(self, **fields: Any) -> Case:
        path = self.root / "c/test.yaml"
        return Case(case_id="c", title="C", path=path, runner=RunnerSpec(type="openclaw"), **fields)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[[], OpenClawRuns]]:
    """Return the shared state of the runs of one session."""
    opened: list[Workspaces] = []

    def begin() -> OpenClawRuns:
        opened.append(Workspaces())
        identities = Identities(lambda: CodeReader(tmp_path, time.time_ns()), warn=pytest.fail)
        return OpenClawRuns(SessionParts(Sandboxes(opened[-1]), identities.template, asyncio.to_thread))

    yield begin
    for workspaces in opened:
        workspaces.close()


def identity(runs: OpenClawRuns, plan: Plan, case: Case) -> dict[str, Any]:
    return dict(runs.prepare(request_of(plan, case)).identity["openclaw"])


def request_of(plan: Plan, case: Case) -> RunRequest:
    return RunRequest(case, MODEL, {}, plan.root, plan.run_profile, plan.suite)


def agent_of(runs: OpenClawRuns, plan: Plan, case_id: str) -> OpenClawAgent:
    case = Case(case_id=case_id, title="C", path=Path("test.yaml"), runner=RunnerSpec(type="openclaw"))
    return runs.agent(request_of(plan, case))


def fragments(**fields: Any) -> dict[str, Any]:
    return {**AGENT["openclaw"], **fields}


@pytest.mark.parametrize(
    "change",
    [
        lambda project: project.put("writer", "AGENTS.md", "# Mine!\n"),
        lambda project: project.put("writer", "deep/down/more.md", ""),
        lambda project: project.put("writer", "bin/tool", "#!/bin/sh\n").chmod(0o755),
        lambda project: (project.root / "agents/writer/workspace/bin/tool").unlink(),
        lambda project: (project.root / "agents/writer/workspace/link").symlink_to("AGENTS.md"),
        lambda project: project.agent(openclaw=fragments(agent={"id": "the-writer", "prompt": "You draw."})),
        lambda project: project.agent(openclaw=fragments(agent={"prompt": "You write."})),
        lambda project: project.agent(openclaw=fragments(agents_defaults={"thinkingDefault": "low"})),
        lambda project: project.agent(openclaw=fragments(model_defaults={"primary_params": {"max_tokens": 9}})),
    ],
)
def test_any_change_of_the_agent_is_another_run(project, session, change) -> None:
    before = identity(session(), project.plan(), project.case())
    change(project)
    assert identity(session(), project.plan(), project.case()) != before


@pytest.mark.parametrize(
    "profile",
    [
        {"openclaw": {**BLOCK, "image": "openclaw:2"}},
        {"sandbox": {"type": "auto", "network": "allow"}},
        {"sandbox": {"type": "auto", "memory_mb": 4096}},
    ],
)
def test_another_container_is_another_run(project, session, profile) -> None:
    before = identity(session(), project.plan(), project.case())
    assert identity(session(), project.plan(**profile), project.case()) != before


def test_settings_without_effect_on_a_run_are_not_in_its_identity(project, session) -> None:
    before = identity(session(), project.plan(), project.case())
    project.agent(title="Other", tags=["a"], description="x", metadata={"y": 1}, openclaw=fragments(identity={}))
    (project.root / "agents/writer/workspace/AGENTS.md").chmod(0o640)  # what others may is the umask's
    (project.root / "agents/writer/notes.txt").write_text("beside the workspace")
    profile = {"openclaw": {**BLOCK, "timeout_seconds": 9, "docker_cli": "podman"}, "sandbox": "bubblewrap"}
    assert identity(session(), project.plan(**profile), project.case()) == before


def test_the_time_limit_counts_where_the_case_expects_to_reach_it(project, session) -> None:
    check = {"check_id": "late", "declarative": {"kind": "status_is", "status": "timed_out"}}
    case = project.case(checks=(Check.model_validate(check),))
    later = project.plan(openclaw={**BLOCK, "timeout_seconds": 61})
    assert identity(session(), project.plan(), case) != identity(session(), later, case)


def test_a_case_gets_the_agent_that_the_suite_assigns_to_it_else_the_profiles(project, session) -> None:
    project.agent("other", openclaw={})
    runs, plan = session(), project.plan({"c": "other"})
    assert (agent_of(runs, plan, "c").openclaw_id, agent_of(runs, plan, "d").openclaw_id) == ("other", "the-writer")
    assert agent_of(runs, plan, "c").workspace == project.root / "agents/other/workspace"


@pytest.mark.parametrize("name", ["agents/writer", "./agents/writer/agent.yaml"])
def test_an_agent_may_be_named_by_its_path(project, session, name) -> None:
    plan = project.plan(openclaw={**BLOCK, "agent_id": name})
    assert agent_of(session(), plan, "c").openclaw_id == "the-writer"


def test_an_agent_that_is_not_there_is_named(project, session) -> None:
    with pytest.raises(ConfigError, match="there is no agent 'writter'; did you mean 'writer'"):
        agent_of(session(), project.plan({"c": "writter"}), "c")


def test_a_profile_without_openclaw_says_what_to_add(project, session) -> None:
    plan = project.plan(openclaw=None)
    with pytest.raises(UnavailableError, match=r"run profile 'p' has neither; add `openclaw: \{agent_id: ..., image"):
        agent_of(session(), plan, "c")
    with pytest.raises(UnavailableError, match="--agentbench-run-profile"):
        make_openclaw_spec(Sandboxes(Workspaces()), plan.run_profile)


@pytest.mark.skipif(docker_problem() is not None, reason=docker_problem() or "")
def test_the_container_has_the_limits_of_a_sandbox_of_any_type(project) -> None:
    sandbox = {"type": "bubblewrap", "network": "allow", "memory_mb": 99, "processes": 7}
    spec = make_openclaw_spec(Sandboxes(Workspaces()), project.plan(sandbox=sandbox).run_profile)
    assert (spec.kind, spec.image, spec.network, spec.cli) == ("docker", "openclaw:1", True, None)
    assert (spec.limits.memory_bytes, spec.limits.processes) == (99 * 2**20, 7)


def test_an_engine_that_is_not_there_is_named(project) -> None:
    profile = project.plan(openclaw={**BLOCK, "docker_cli": "no-such-engine"}).run_profile
    with pytest.raises(UnavailableError, match="'no-such-engine'"):
        make_openclaw_spec(Sandboxes(Workspaces()), profile)


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def begun(runs: OpenClawRuns, plan: Plan, over: Path | None = None, *, prompt_file: bool = False) -> dict[str, str]:
    """Return the initial files of a run's workspace."""
    with runs.folder(agent_of(runs, plan, "c"), over, prompt_file) as folder:
        return contents(folder)


def test_a_workspace_begins_with_the_agents_files_the_cases_and_what_is_missing(project, session) -> None:
    project.put("writer", "SOUL.md", "Calm.\n")
    over = project.root / "c/files"
    over.mkdir(parents=True)
    (over / "SOUL.md").write_text("Eager.\n")
    (over / "data.csv").write_text("1,2\n")
    runs, plan = session(), project.plan()
    made = begun(runs, plan, over, prompt_file=True)
    assert made.keys() == {"AGENTS.md", "IDENTITY.md", "SOUL.md", "TOOLS.md", "USER.md", "bin/tool", "data.csv"}
    assert made["AGENTS.md"] == "You write.\n\n# Mine\n"
    assert (made["SOUL.md"], made["data.csv"]) == ("Eager.\n", "1,2\n")
    assert "has no TOOLS.md" in made["TOOLS.md"]
    assert begun(runs, plan)["AGENTS.md"] == "# Mine\n"
    assert contents(agent_of(runs, plan, "c").workspace).keys() == {"AGENTS.md", "SOUL.md", "bin/tool"}


def test_the_same_files_begin_every_run(project, session) -> None:
    runs, plan = session(), project.plan()
    agent = agent_of(runs, plan, "c")
    with runs.folder(agent, None, prompt_file=True) as folder, runs.folder(agent, None, prompt_file=True) as again:
        assert folder == again
        assert begun(session(), plan, prompt_file=True) == contents(folder)


def test_the_folder_of_a_case_is_gone_once_no_run_has_it(project, session) -> None:
    """So that a session of many cases holds as many as run at once; an agent's own serves all of its runs."""
    over = project.root / "c/files"
    over.mkdir(parents=True)
    runs, plan = session(), project.plan()
    agent = agent_of(runs, plan, "c")
    with runs.folder(agent, over, prompt_file=False) as folder:
        with runs.folder(agent, over, prompt_file=False) as again:
            assert again == folder
        assert folder.is_dir()
    assert not folder.exists()
    with runs.folder(agent, over, prompt_file=False) as another, runs.folder(agent, None, prompt_file=False) as own:
        assert contents(another) == contents(own)
    assert own.is_dir()
    assert [each.name for each in own.parent.iterdir() if each.is_dir()] == [own.name]


def test_an_agent_that_changes_while_the_session_runs_is_refused(project, session) -> None:
    runs, plan = session(), project.plan()
    identity(runs, plan, project.case())
    project.put("writer", "AGENTS.md", "# Changed\n")
    with pytest.raises(ConfigError, match="was changed while the session ran"):
        begun(runs, plan)
    assert [each for each in Path(runs.parts.sandboxes.workspaces.session_folder()).iterdir() if each.is_dir()] == []


def test_a_prompt_file_that_is_a_link_is_an_error(project, session) -> None:
    path = project.put("writer", "AGENTS.md", "")
    path.unlink()
    path.symlink_to("/etc/passwd")
    runs, plan = session(), project.plan()
    with pytest.raises(ConfigError, match=r"workspace/AGENTS.md: the agent's prompt .* links are not followed"):
        begun(runs, plan, prompt_file=True)
    with runs.folder(agent_of(runs, plan, "c"), None, prompt_file=False) as folder:
        assert folder.joinpath("AGENTS.md").is_symlink()


def test_a_full_disk_is_no_fault_of_the_agent(project, session) -> None:
    """Found at the last file: the prompt's."""
    runs, plan = session(), project.plan()
    runs.parts.sandboxes.workspaces.session_folder()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    project.put("writer", "AGENTS.md", "x" * 4000)
    project.agent(openclaw={"agent": {"prompt": "y" * 4000}})
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limit[1]))
    try:
        with pytest.raises(SandboxError, match=r"no room for a copy of .*workspace: .*too large; set TMPDIR"):
            begun(runs, plan, prompt_file=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)


def test_an_agent_file_that_collides_with_a_case_folder_is_an_error(project, session) -> None:
    over = project.root / "c/files"
    (over / "AGENTS.md").mkdir(parents=True)
    with pytest.raises(ConfigError, match="c/files: this workspace template cannot be copied"):
        begun(session(), project.plan(), over)
