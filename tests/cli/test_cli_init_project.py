from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow  # the schemas take a second

LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")


@pytest.fixture
def begun(tmp_path, monkeypatch, capsys):
    """Make a new project. Return its folder and the output of the command."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "My bench"]) == 0
    return tmp_path / "My bench", capsys.readouterr().out


def run(folder, *command, code=0):
    names = (
        "OPENAI_API_KEY",
        "PYTEST_ADDOPTS",
        "PYTEST_XDIST_WORKER",
        "PYTEST_XDIST_WORKER_COUNT",
        "PYTEST_CURRENT_TEST",
    )
    environ = {name: value for name, value in os.environ.items() if name not in names}
    environ |= {
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_new_project_passes_offline_at_once(begun):
    folder, _ = begun
    printed = run(folder, "pytest", "--model", "demo", "-p", "no:cacheprovider")
    assert "cases/late_refund/test.yaml ." in printed
    report = json.loads((folder / "outputs/report.json").read_text())
    [row] = report["runs"]
    assert (row["outcome"], row["judge"]["overall"], len(row["judged"])) == ("passed", 9, 1)
    assert report["session"]["warnings"] == []


def test_a_model_that_fails_the_case_fails(begun):
    folder, _ = begun
    script = folder / "cases/late_refund/demo.yaml"
    script.write_text(re.sub(r"refunds are possible.*?instead\.", "Sure!", script.read_text(), flags=re.DOTALL))
    printed = run(folder, "pytest", "--model", "demo", "-p", "no:cacheprovider", code=1)
    assert "names-the-limit" in printed


def test_the_commented_model_is_right_once_it_is_none(begun, capsys):
    folder, _ = begun
    path = folder / "cases/models.yaml"
    path.write_text(re.sub(r"^# (?=  )", "", path.read_text(), flags=re.MULTILINE))
    models = yaml.safe_load(path.read_text())["models"]
    assert [model["model_id"] for model in models] == ["demo", "gpt4o", "claude"]
    assert main(["validate", str(folder)]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


def test_its_workflow_is_one_and_its_commands_run(begun):
    folder, _ = begun
    path = folder / ".github/workflows/agentbench.yml"
    run(folder, "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path))
    run(folder, "check_jsonschema", "--builtin-schema", "custom.github-workflows-require-timeout", str(path))
    [job] = yaml.safe_load(path.read_text())["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    ours = [command for command in commands if not command.startswith("python -m pip ")]
    for command in ours:
        program, *arguments = command.split()
        run(folder, {"agentbench": "pytest_agentbench.cli", "pytest": "pytest"}[program], *arguments)
    assert len(ours) == 2
    assert (folder / "outputs/junit.xml").is_file()
    groups = tomllib.loads((folder / "pyproject.toml").read_text())["dependency-groups"]
    assert "python -m pip install --group bench" in commands
    noted = json.loads(importlib.metadata.distribution("pytest-agentbench").read_text("direct_url.json"))
    assert groups == {"bench": [f"pytest-agentbench @ {noted['url']}"]}


def test_a_project_asks_for_the_package_from_where_it_was_installed(tmp_path):
    """No job may fetch a name that is free on an index: its first owner could run code next to the job's keys."""
    noted = {
        None: "pytest-agentbench",
        '{"url": "https://example.org/it.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}': (
            "pytest-agentbench @ git+https://example.org/it.git@0a1b"
        ),
        '{"url": "file:///src/it", "dir_info": {"editable": true}}': "pytest-agentbench @ file:///src/it",
    }
    for number, (text, requirement) in enumerate(noted.items()):
        installed = tmp_path / f"{number}" / "pytest_agentbench-0.1.0.dist-info"
        installed.mkdir(parents=True)
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-agentbench\nVersion: 0.1.0\n")
        if text is not None:
            (installed / "direct_url.json").write_text(text)
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pytest_agentbench.cli import main; main()"
        folder = tmp_path / f"made-{number}"
        command = [sys.executable, "-c", program, str(installed.parent), "init", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        groups = tomllib.loads((folder / "pyproject.toml").read_text())["dependency-groups"]
        assert groups == {"bench": [requirement]}


def test_its_files_are_right(begun, capsys):
    folder, _ = begun
    assert main(["validate", str(folder)]) == 0
    assert capsys.readouterr().out == "4 files checked, 1 case: 0 errors, 0 warnings\n"


def test_editors_find_a_schema_that_the_file_keeps(begun):
    folder, _ = begun
    described = {}
    for path in folder.rglob("*.yaml"):
        match = LINE.match(path.read_text())
        assert match, path
        schema = (path.parent / match[1]).resolve()
        described[path.relative_to(folder).as_posix()] = schema.name.removesuffix(".schema.json")
        validator = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
        assert [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text()))] == []
    assert described == {
        "cases/models.yaml": "models",
        "cases/run_profiles/standard.yaml": "run_profile",
        "cases/evaluation_profiles/standard.yaml": "evaluation_profile",
        "cases/late_refund/test.yaml": "test_case",
        "cases/late_refund/demo.yaml": "demo",
    }


def test_the_schemas_are_those_that_the_command_renews(begun, capsys):
    folder, _ = begun
    before = {path.name: path.read_text() for path in (folder / ".schemas").iterdir()}
    assert main(["schema", "--output", str(folder / ".schemas")]) == 0
    assert {path.name: path.read_text() for path in (folder / ".schemas").iterdir()} == before


def test_it_prints_the_files_and_the_next_steps(begun):
    folder, printed = begun
    made = [name for name in files(folder) if not name.startswith(".schemas/")]
    assert all(f"  {name}\n" in printed for name in made)
    assert "  cd 'My bench'\n  pytest --model demo " in printed
    assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == "my-bench"


def test_its_own_agent_is_a_comment_away(begun):
    folder, _ = begun
    path = folder / "conftest.py"
    path.write_text(re.sub(r"^# ?", "", path.read_text(), flags=re.MULTILINE))
    compile(path.read_text(), "conftest.py", "exec")


def test_an_existing_folder_keeps_its_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("mine")
    assert main(["init", "."]) == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    capsys.readouterr()
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    assert main(["init", "."]) == 1
    assert "found pyproject.toml, conftest.py, .gitignore" in capsys.readouterr().err
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_a_project_within_a_repository_gets_a_note_on_the_workflows_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    assert "move .github" not in capsys.readouterr().out
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert main(["init", "bench"]) == 0
    said = capsys.readouterr().out
    assert "move .github there, and let its commands run in deep/bench\n" in said
    assert "take deep/bench/outputs" in said


@pytest.mark.parametrize("taken", ["conftest.py", "cases/models.yaml", ".schemas/suite.schema.json"])
def test_nothing_is_written_where_one_file_is_in_the_way(tmp_path, monkeypatch, capsys, taken):
    monkeypatch.chdir(tmp_path)
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).symlink_to("nowhere")
    assert main(["init", "."]) == 1
    assert f"found {taken}; nothing is overwritten" in capsys.readouterr().err
    assert files(tmp_path) == []


def test_a_file_is_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("{}\n")
    assert main(["init", "rows.jsonl"]) == 1
    assert "agentbench new dataset FILE describes a file of questions" in capsys.readouterr().err
    assert main(["init", "rows.jsonl/deeper"]) == 1
    assert "cannot be written: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "called"), [("A b_c!", "a-b-c"), ("评测", "benchmark"), ("3d", "3d")])
def test_the_project_has_a_name_that_python_takes(tmp_path, monkeypatch, name, called):
    monkeypatch.chdir(tmp_path)
    main(["init", name])
    assert tomllib.loads(Path(name, "pyproject.toml").read_text())["project"]["name"] == called


def test_a_dataset_begun_in_a_project_has_its_schema(begun, monkeypatch, capsys):
    folder, _ = begun
    monkeypatch.chdir(folder)
    rows = folder / "cases/facts/rows.jsonl"
    rows.parent.mkdir()
    rows.write_text("".join(f'{{"question": "2 + {n}?", "answer": "{2 + n}"}}\n' for n in range(5)))
    assert main(["new", "dataset", str(rows)]) == 0
    first, *_ = (rows.parent / "dataset.yaml").read_text().splitlines(keepends=True)
    schema = (rows.parent / LINE.match(first)[1]).resolve()
    assert schema == folder.resolve() / ".schemas/dataset.schema.json"
    capsys.readouterr()
    assert main(["validate"]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out
