"""What a run left behind is kept with it, and looked at again where a stored run is judged anew."""

from __future__ import annotations

import json
import tarfile

import pytest
from support.bench import HEAD, check
from support.small_disk import small_disk

WRITING = (
    HEAD
    + """
def agent(case, context):
    note("runs.txt", case.case_id)
    left = case.metadata.get("left")
    if left is not None:
        context.workspace.write_text("answer.txt", case.metadata.get("text", "It is Paris."))
        context.workspace.write_text("/tmp/scratch", "Lutetia")
    if left == "link":
        (context.workspace.path / "link").symlink_to("answer.txt")
    if left == "much":
        with (context.workspace.path / "hole").open("wb") as file:
            file.truncate(65 * 2**20)
    return "Paris"
"""
)
ANSWER = check("written", kind="file_contains", path="answer.txt", text="Paris")


@pytest.fixture
def project(bench):
    bench.agent(WRITING)
    return bench


def runs(project, *args) -> list[str]:
    """The cases that a session has run."""
    before = len(project.lines("runs.txt"))
    project.finished = project.run(*args)
    return project.lines("runs.txt")[before:]


def stored(project):
    [path] = (project.path / "outputs/runs").rglob("run_1.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_files_are_checked_again_without_another_run(project):
    project.case("one", metadata={"left": "files"}, deterministic_checks=[ANSWER])
    assert runs(project) == ["one"]
    assert project.finished.outcomes == {"one[agent]": "passed"}
    scratch = check("scratch", kind="file_contains", path="/tmp/scratch", text="Lutetia")
    project.case("one", metadata={"left": "files"}, deterministic_checks=[ANSWER, scratch])
    assert runs(project) == []
    assert project.finished.outcomes == {"one[agent]": "passed"}
    more = check("more", kind="file_contains", path="answer.txt", text="Rome")
    project.case("one", metadata={"left": "files"}, deterministic_checks=[ANSWER, scratch, more])
    assert runs(project) == []
    assert project.finished.outcomes == {"one[agent]": "failed"}
    assert "answer.txt in the workspace does not hold the text" in project.finished.text
    assert runs(project, "--agentbench-rejudge") == []


@pytest.mark.slow
def test_the_archive_is_stored_next_to_the_run(project):
    project.case("one", metadata={"left": "files"}, deterministic_checks=[ANSWER])
    runs(project)
    run = stored(project)
    [archive] = (project.path / "outputs/runs").rglob("*.tar")
    assert archive.relative_to(project.path / "outputs").as_posix() == run["workspace"]
    assert archive.parent.name == "run_1.artifacts"
    with tarfile.open(archive) as members:
        assert sorted(members.getnames()) == [".tmp", ".tmp/scratch", "answer.txt"]
    assert runs(project, "--agentbench-no-reuse") == ["one"]
    assert len(list((project.path / "outputs/runs").rglob("*.tar"))) == 1  # not that of the run that is no more


def test_a_run_without_files_keeps_nothing(project):
    project.case("one")
    runs(project)
    assert stored(project)["workspace"] is None
    assert not list((project.path / "outputs/runs").rglob("*.artifacts"))
    project.case("one", deterministic_checks=[check("none", kind="path_exists", path="answer.txt")])
    assert runs(project) == []
    assert project.finished.outcomes == {"one[agent]": "failed"}


def test_secrets_are_not_kept(project, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2")
    project.case("one", metadata={"left": "files", "text": "key: hunter2-hunter2"})
    runs(project)
    [archive] = (project.path / "outputs/runs").rglob("*.tar")
    assert b"hunter2" not in archive.read_bytes()
    assert b"key: [redacted]" in archive.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_a_run_with_lost_files_is_repeated(project, damage):
    project.case("one", metadata={"left": "files"}, deterministic_checks=[ANSWER])
    runs(project)
    [archive] = (project.path / "outputs/runs").rglob("*.tar")
    content = archive.read_bytes()
    if damage == "missing":
        archive.unlink()
    else:
        archive.write_bytes(content[:1024] if damage == "cut" else content.replace(b"Paris", b"Rome!"))
    assert runs(project) == []  # nobody looks at them
    assert runs(project, "--agentbench-rejudge") == ["one"]
    assert project.finished.outcomes == {"one[agent]": "passed"}
    assert not project.finished.runs["one[agent]"]["reused"]
    [warning] = project.finished.report["session"]["warnings"]
    assert "missing or damaged), so one was run again" in warning
    assert runs(project, "--agentbench-rejudge") == []


@pytest.mark.slow
def test_a_workspace_without_room_does_not_affect_others(project, tmp_path, monkeypatch):
    for case_id, size in (("big", 200_000), ("small", 30_000)):
        text = "It is Paris." + "x" * size
        project.case(case_id, metadata={"left": "files", "text": text}, deterministic_checks=[ANSWER])
    runs(project)
    with small_disk(tmp_path / "small", "100k"):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "small"))
        assert runs(project, "--agentbench-rejudge", "--agentbench-concurrency=1") == []
    assert project.finished.outcomes == {"big[agent]": "error", "small[agent]": "passed"}
    assert "no room to restore a workspace" in project.finished.runs["big[agent]"]["message"]


@pytest.mark.slow
def test_files_that_no_check_looks_at_may_be_lost(project):
    project.case("one", metadata={"left": "files"})
    runs(project)
    [archive] = (project.path / "outputs/runs").rglob("*.tar")
    archive.unlink()
    assert runs(project, "--agentbench-rejudge") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("looked_at", "again"),
    [("answer.txt", False), ("link", True), ("./link", True), ("link/below", True), ("linked", False)],
)
def test_a_check_of_what_could_not_be_kept_runs_the_case_again(project, looked_at, again):
    seen = check("seen", kind="path_exists", path=looked_at)
    project.case("one", metadata={"left": "link"}, deterministic_checks=[seen])
    runs(project)
    first = project.finished.outcomes
    assert stored(project)["metadata"] == {"agentbench.workspace": {"left_out": ["link"]}}
    assert runs(project, "--agentbench-rejudge") == (["one"] if again else [])
    assert project.finished.outcomes == first


@pytest.mark.slow
def test_a_workspace_that_is_too_large_is_not_kept(project):
    project.case("one", metadata={"left": "much"}, deterministic_checks=[ANSWER])
    runs(project)
    assert stored(project)["workspace"] is None
    assert stored(project)["metadata"] == {"agentbench.workspace": {"not_kept": "it is larger than 64 MB"}}
    assert runs(project) == []
    assert runs(project, "--agentbench-rejudge") == ["one"]
    assert project.finished.outcomes == {"one[agent]": "passed"}


@pytest.mark.slow
def test_a_hook_looks_at_the_files_again(project):
    profile = {"schema_version": 1, "evaluation_profile_id": "hooks", "title": "Hooks"}
    policy = {"security_policy": {"allow_local_python_hooks": True}}
    project.write("cases/evaluation_profiles/hooks.yaml", {**profile, **policy})
    source = "from pathlib import Path\n\ndef check(artifact, context):\n    return {0}\n"
    looks = "'Paris' in Path(context.workspace, 'answer.txt').read_text()"
    hook = {"check_id": "mine", "python_hook": {"path": "hook.py", "callable_name": "check"}}
    project.write("cases/one/hook.py", source.format(looks))
    project.case("one", metadata={"left": "files"}, deterministic_checks=[hook])
    assert runs(project, "--agentbench-evaluation-profile=hooks") == ["one"]
    assert runs(project, "--agentbench-evaluation-profile=hooks", "--agentbench-rejudge") == []
    assert project.finished.outcomes == {"one[agent]": "passed"}, project.finished.text


@pytest.mark.slow
def test_a_hand_written_test_finds_the_files_of_a_stored_run(project):
    project.case("one", metadata={"left": "files"})
    source = "import pytest\n\n@pytest.mark.agentbench('one')\ndef test_it(agentbench_run, agentbench_workspace):\n"
    source += "    assert agentbench_workspace.read_text('answer.txt') == 'It is Paris.'\n"
    source += "    assert agentbench_workspace.read_text('/tmp/scratch') == 'Lutetia'\n"
    project.write("test_marked.py", source)
    assert runs(project, "test_marked.py") == ["one"]
    assert runs(project, "test_marked.py") == []
    assert project.finished.outcomes == {"test_it[agent]": "passed"}
    [archive] = (project.path / "outputs/runs").rglob("*.tar")
    archive.unlink()
    assert runs(project, "test_marked.py") == ["one"]
    assert project.finished.outcomes == {"test_it[agent]": "passed"}


def test_a_run_that_is_cancelled_while_its_files_are_kept_is_not_lost(bench):
    bench.agent(
        HEAD
        + """
async def agent(case, context):
    note("runs.txt", case.case_id)
    context.workspace.write_text("answer.txt", "It is Paris.")
    if os.path.exists("cancel"):
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
    return "Paris"
"""
    )
    bench.case("one")
    bench.write("cancel", "")
    assert runs(bench) == ["one"]
    assert bench.finished.outcomes == {"one[agent]": "error"}
    assert stored(bench)["metadata"] == {"agentbench.workspace": {"not_kept": "the session was stopped"}}
    (bench.path / "cancel").unlink()
    assert runs(bench) == []
    assert bench.finished.outcomes == {"one[agent]": "passed"}


def test_an_agent_cannot_say_what_was_kept(bench):
    bench.agent(
        HEAD
        + """
def agent(case, context):
    note("runs.txt", case.case_id)
    return RunOutput(output="Paris", metadata={"agentbench.workspace": {"not_kept": "so there"}, "own": 1})
"""
    )
    bench.case("one", deterministic_checks=[check("none", kind="path_exists", path="test.yaml")])
    runs(bench)
    assert stored(bench)["metadata"] == {"own": 1}
    assert runs(bench, "--agentbench-rejudge") == []
