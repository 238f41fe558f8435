"""The workflows of docs/ci.md are valid, and their commands do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs_pages import Project, blocks, problems

import pytest_agentbench

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ci.md").read_text(encoding="utf-8")
SCALING = (DOCS / "scaling.md").read_text(encoding="utf-8")
FILES = {block.argument: block.text for page in (SCALING, PAGE) for block in blocks(page) if block.what == "file"}
WORKFLOWS = [".github/workflows/agentbench.yml", ".github/workflows/nightly.yml", ".github/workflows/sharded.yml"]
ACTION = yaml.safe_load((DOCS.parent / "action.yml").read_text(encoding="utf-8"))
INITIAL = Path(pytest_agentbench.__file__).parent / "cli" / "project" / "ci.yml"
GH = """#!/usr/bin/env bash
# GitHub's program, as far as the workflow uses it: writes its arguments down; the comments are in comments.txt
printf '%s\\n' "$*" >>gh.txt
if [ "$2" = --paginate ]; then cat comments.txt; fi
"""


def validate(name: str, schema: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / Path(name).name
    file.write_text(FILES[name], encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        *((name, "vendor.github-workflows") for name in [*WORKFLOWS, ".github/workflows/action.yml"]),
        (".gitlab-ci.yml", "vendor.gitlab-ci"),
    ],
)
def test_the_files_are_what_ci_takes(name: str, schema: str, tmp_path: Path) -> None:
    done = validate(name, schema, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_action_is_what_github_takes() -> None:
    file = DOCS.parent / "action.yml"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert not [step for step in ACTION["runs"]["steps"] if "${{" in step.get("run", "")]
    used = {step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step}
    assert used <= set(re.findall(r"uses: (\S+)", "".join(FILES[name] for name in WORKFLOWS)))


@pytest.mark.slow
def test_the_release_workflow_is_what_github_takes_and_holds_no_token() -> None:
    file = DOCS.parent / ".github/workflows/release.yml"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = file.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "run: .ci/check_wheel dist" in text


@pytest.mark.slow
def test_the_action_runs_the_cases_and_comments(tmp_path: Path) -> None:
    with Project(tmp_path) as project:
        for name in ("cases/models.yaml", "cases/hello/test.yaml", "cases/hello/demo.yaml"):
            project.write(name, FILES[name])
        job = github_job(project)
        output = tmp_path / "output.txt"
        values = {
            "ARGUMENTS": "cases --model demo\n  --agentbench-fail-under 0.5",
            "REQUIREMENTS": "",
            "ACTION": "source",
            "GH_TOKEN": "t",
            "PULL_REQUEST": "7",
            "GITHUB_OUTPUT": str(output),
        }
        for step in ACTION["runs"]["steps"]:
            if "run" in step:
                status, printed = job.run(step["run"], **values)
                assert status == 0, printed
        assert (tmp_path / "outputs" / "report.html").is_file()
        assert output.read_text(encoding="utf-8") == f"report={tmp_path}/outputs/report.json\n"
        assert "pr comment 7 --body-file comment.md" in (tmp_path / "gh.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_workflow_puts_into_a_shell_what_others_write(name: str) -> None:
    """`${{ }}` in a script is text that is run; in `env` it is a value."""
    workflow = yaml.safe_load(FILES[name])
    scripts = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]
    assert "pull_request_target" not in FILES[name]
    assert workflow["permissions"]["contents"] == "read"


def test_no_job_installs_the_package_by_a_name_that_nobody_holds() -> None:
    lines = [line for file in FILES.values() for line in file.splitlines() if "pip install" in line]
    assert len(lines) >= 5
    assert not [line for line in lines if "pytest-agentbench" in line and " @ git+$AGENTBENCH_SOURCE" not in line]
    assert not [page.name for page in DOCS.rglob("*.md") if "pip install pytest-agentbench" in page.read_text()]


def test_all_workflows_use_the_same_versions_of_actions() -> None:
    text = "".join([*(FILES[name] for name in WORKFLOWS), INITIAL.read_text(encoding="utf-8")])
    used = set(re.findall(r"uses: (\S+)", text))
    assert used
    assert len({action.partition("@")[0] for action in used}) == len(used)


class Job:
    """Runs scripts of CI in the page's project; `pip` installs nothing, for everything is there."""

    def __init__(self, project: Project, **environ: str) -> None:
        self.folder = project.folder
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "gh").write_text(GH, encoding="utf-8")
        (programs / "gh").chmod(0o755)
        (self.folder / "comments.txt").touch()
        path = f"{programs}:{project.environ['PATH']}"
        self.environ = {**project.environ, **environ, "PATH": path}

    def run(self, script: str, **environ: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-e", "-c", f"pip() {{ :; }}\n{script}"],
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout


def github_job(project: Project) -> Job:
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(project.folder / "summary.md"),
        "GITHUB_WORKSPACE": str(project.folder),
        "GITHUB_REPOSITORY": "me/bench",
        "GITHUB_SHA": "abc",
    }
    return Job(project, **environ)


def steps(name: str) -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(FILES[name])["jobs"].values()
    return [step for step in job["steps"] if "run" in step]


def run_workflow(name: str, job: Job, **values: str) -> None:
    """Its scripts in order, with `values` for the expressions in their `env`."""
    for step in steps(name):
        environ = {key: values[key] for key in step.get("env", {})}
        status, output = job.run(step["run"], **environ)
        assert status == 0, output


@pytest.mark.full
def test_the_commands_of_all_workflows_run(tmp_path: Path) -> None:
    with Project(tmp_path) as project:
        assert not list(problems(PAGE, project))
        job = github_job(project)
        _check_pull_request(job, project.folder)
        _check_nightly(job, project)
        _check_others(Job(project))


def _check_pull_request(job: Job, folder: Path) -> None:
    summary, calls = folder / "summary.md", folder / "gh.txt"
    summary.unlink()
    values = {"GH_TOKEN": "t", "PULL_REQUEST": "7"}
    run_workflow(WORKFLOWS[0], job, **values)
    assert "https://github.com/me/bench/blob/abc/cases/sum/test.yaml#L1" in summary.read_text(encoding="utf-8")
    assert "pr comment 7 --body-file comment.md" in calls.read_text(encoding="utf-8").splitlines()
    (folder / "comments.txt").write_text("41\n42\n", encoding="utf-8")
    calls.unlink()
    status, output = job.run(steps(WORKFLOWS[0])[-1]["run"], **values)  # the next push
    assert status == 0, output
    asked = calls.read_text(encoding="utf-8").splitlines()
    assert asked[-1] == "api --method PATCH repos/me/bench/issues/comments/41 --field body=@comment.md --silent"
    assert len(asked) == 2
    text = (folder / "comment.md").read_text(encoding="utf-8")
    (marker,) = re.findall(r'startswith\("([^"]+)"\)', FILES[WORKFLOWS[0]])
    assert text.startswith(marker)
    assert "Compared with <code>baseline.json</code>" in text


def _check_nightly(job: Job, project: Project) -> None:
    last = project.folder / "last-good.json"
    for night in (1, 2):
        run_workflow(WORKFLOWS[1], job, OPENAI_API_KEY=project.environ["OPENAI_API_KEY"])
        assert last.is_file(), night
    comparison = (project.folder / "summary.md").read_text(encoding="utf-8").count("Compared with <code>last-good.json")
    assert comparison == 1
    assert (project.folder / "outputs" / "runs.parquet").is_file()
    last.write_text("{}", encoding="utf-8")  # nothing to compare with: the night fails
    status, output = job.run(steps(WORKFLOWS[1])[1]["run"], OPENAI_API_KEY=project.environ["OPENAI_API_KEY"])
    assert (status, last.read_text(encoding="utf-8")) == (4, "{}"), output


def _check_others(job: Job) -> None:
    gitlab = yaml.safe_load(FILES[".gitlab-ci.yml"])
    jenkins = re.findall(r"sh '''(.*?)'''", FILES["Jenkinsfile"], re.DOTALL)
    for script in [*gitlab["cassettes"]["script"], *gitlab["nightly"]["script"], *jenkins]:
        (job.folder / "outputs" / "junit.xml").unlink()
        status, output = job.run(script)
        assert status == 0, output
        assert (job.folder / "outputs" / "junit.xml").is_file()
