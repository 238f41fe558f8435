"""A verifier's folder has allowed files of the agent, files of the case, and unchanged hidden files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.checks.verifying.run import _find_tampering
from pytest_agentbench.checks.verifying.staging import hidden_content, source_digest, stage_workspace
from pytest_agentbench.records.case import Case, HiddenFile, RunnerSpec, Verifier
from pytest_agentbench.workspaces.workspace import Workspace


def fill(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


class Staging:
    """`left`, `template` and `hidden` are folders; `files` of the verifier are targets -> paths below `hidden`."""

    def __init__(self, folder: Path) -> None:
        self.left = Workspace(fill(folder / "left", {}))
        self.target = Workspace(fill(folder / "target", {}))
        self.hidden = fill(folder / "hidden", {})
        self.template = folder / "template"

    def verifier(self, files: Mapping[str, str] | None = None, **fields: Any) -> Verifier:
        listed = [{"target": target, "source": self.hidden / source} for target, source in (files or {}).items()]
        wanted = {} if "pytest" in fields else {"command": ("true",)}
        return Verifier.model_validate({"check_id": "v", "files": listed, **wanted, **fields})

    def stage(self, verifier: Verifier, *, left: bool = True) -> Mapping[str, str]:
        template = self.template if self.template.exists() else None
        runner = RunnerSpec(type="llm_probe")
        case = Case(case_id="c", title="c", path=Path("test.yaml"), runner=runner, workspace=template)
        return stage_workspace(case, verifier, self.left if left else None, self.target)

    def staged(self) -> dict[str, str]:
        root = self.target.path
        files = (each for each in sorted(root.rglob("*")) if each.is_file() or each.is_symlink())
        return {str(each.relative_to(root)): each.read_text() if each.exists() else "broken" for each in files}


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def test_files_of_the_agent_are_staged_except_those_that_configure_python(staging):
    fill(
        staging.left.path,
        {
            "answer.py": "mine",
            "deep/data.txt": "mine",
            "conftest.py": "mine",
            "deep/conftest.py": "mine",
            "sitecustomize.py": "mine",
            "pytest.ini": "mine",
            ".pytest.toml": "mine",
            "deep/setup.cfg": "mine",
            "a.pth": "mine",
            "thing.egg-info/PKG": "mine",
            "__pycache__/answer.cpython-311.pyc": "mine",
            "answer.pyc": "mine",
            "myconftest.py": "mine",
        },
    )
    staging.stage(staging.verifier())
    assert staging.staged() == dict.fromkeys(["answer.py", "deep/data.txt", "myconftest.py"], "mine")


def test_configuration_files_are_the_templates_unless_the_verifier_keeps_them(staging):
    fill(staging.template, {"pyproject.toml": "ours", "deep/conftest.py": "ours", "__pycache__/x.pyc": "ours"})
    fill(staging.left.path, {"pyproject.toml": "mine", "deep/setup.cfg": "mine", "tox.ini": "mine"})
    staging.stage(staging.verifier(keep=["deep/setup.cfg"]))
    assert staging.staged() == {"pyproject.toml": "ours", "deep/conftest.py": "ours", "deep/setup.cfg": "mine"}


def test_tests_that_are_named_are_the_templates_or_gone(staging):
    fill(staging.template, {"tests/test_a.py": "ours", "settings.ini": "ours"})
    fill(
        staging.left.path,
        {"tests/test_a.py": "mine", "tests/test_b.py": "mine", "tests/__init__.py": "mine", "settings.ini": "mine"},
    )
    tests = {"tests": ["tests/test_a.py::test_x", "./tests//test_b.py"], "config": "settings.ini", "pythonpath": []}
    staging.stage(staging.verifier(pytest=tests))
    assert staging.staged() == {"tests/test_a.py": "ours", "settings.ini": "ours"}


def test_packages_next_to_the_path_to_tests_stay_if_tests_import_from_the_workspace(staging):
    packages = dict.fromkeys(["__init__.py", "a/__init__.py", "a/b/__init__.so"], "mine")
    fill(staging.left.path, {**packages, "a/b/test_a.py": "mine", "a/solved/__init__.py": "mine"})
    staging.stage(staging.verifier(pytest={"tests": ["a/b/test_a.py"]}))
    assert staging.staged() == {"a/solved/__init__.py": "mine"}


def test_hidden_files_replace_those_of_the_agent(staging):
    fill(staging.hidden, {"check.py": "hidden", "many/a.txt": "hidden", "many/deep/b.txt": "hidden"})
    fill(staging.left.path, {"check.py/inner.txt": "mine", "data": "a file where a folder goes", "data2": "mine"})
    content = staging.stage(
        staging.verifier({"./check.py": "check.py", "data/many": "many", "data/many/c": "check.py"})
    )
    hidden = dict.fromkeys(["check.py", "data/many/a.txt", "data/many/c", "data/many/deep/b.txt"], "hidden")
    assert staging.staged() == {**hidden, "data2": "mine"}
    assert set(content) == set(hidden)


def test_an_executable_hidden_file_stays_one(staging):
    fill(staging.hidden, {"run.sh": "hidden"})
    (staging.hidden / "run.sh").chmod(0o755)
    staging.stage(staging.verifier({"run.sh": "run.sh"}))
    assert os.stat(staging.target.path / "run.sh").st_mode & 0o777 == 0o755


def test_nothing_left_is_an_empty_folder_with_hidden_files(staging):
    fill(staging.hidden, {"check.py": "hidden"})
    fill(staging.left.path, {"answer.py": "mine"})
    staging.stage(staging.verifier({"check.py": "check.py"}), left=False)
    assert staging.staged() == {"check.py": "hidden"}


@pytest.mark.parametrize(
    ("link", "leads_to", "stays"),
    [
        ("answer.txt", "expected.txt", False),
        ("deep/answer.txt", "../expected.txt", False),
        ("answer.txt", "/workspace/expected.txt", False),
        ("answer.txt", "./deep/../expected.txt", False),
        ("answer.txt", "folder/inner.txt", False),
        ("answer.txt", "second", False),
        ("answer.txt", "/proc/self/fd/3", False),
        ("answer.txt", "/dev/fd/3", False),
        ("answer.txt", "own.txt", True),
        ("answer.txt", "expected.txt.bak", True),
        ("answer.txt", "answer.txt", True),
        ("answer.txt", "/etc/hostname", True),
    ],
)
def test_links_to_hidden_files_are_cut(staging, link, leads_to, stays):
    fill(staging.hidden, {"expected.txt": "hidden", "folder/inner.txt": "hidden"})
    fill(staging.left.path, {"own.txt": "mine", "deep/x": "mine", "expected.txt.bak": "mine"})
    (staging.left.path / "second").symlink_to("expected.txt")
    (staging.left.path / link).symlink_to(leads_to)
    staging.stage(staging.verifier({"expected.txt": "expected.txt", "folder": "folder"}))
    assert (staging.target.path / link).is_symlink() == stays
    assert not (staging.target.path / "second").is_symlink()
    assert (staging.target.path / "expected.txt").read_text() == "hidden"


@pytest.mark.parametrize(("links", "cut"), [(40, True), (41, False)])
def test_links_are_followed_as_far_as_linux_follows_them(staging, links, cut):
    fill(staging.hidden, {"expected.txt": "hidden"})
    for number in range(links):
        (staging.left.path / f"l{number}").symlink_to(f"l{number + 1}" if number < links - 1 else "expected.txt")
    staging.stage(staging.verifier({"expected.txt": "expected.txt"}))
    assert (staging.target.path / "l0").is_symlink() != cut


def test_a_link_on_the_way_to_a_hidden_file_is_not_followed(staging, tmp_path):
    fill(staging.hidden, {"check.py": "hidden"})
    outside = fill(tmp_path / "outside", {"check.py": "untouched"})
    (staging.left.path / "tests").symlink_to(outside)
    staging.stage(staging.verifier({"tests/check.py": "check.py"}))
    assert (outside / "check.py").read_text() == "untouched"
    assert (staging.target.path / "tests" / "check.py").read_text() == "hidden"


def test_folders_that_the_agent_locked_are_open(staging):
    fill(staging.left.path, {"locked/conftest.py": "mine", "locked/x.txt": "mine"})
    (staging.left.path / "locked").chmod(0o500)
    try:
        staging.stage(staging.verifier())
    finally:
        (staging.left.path / "locked").chmod(0o700)
    assert staging.staged() == {"locked/x.txt": "mine"}
    assert os.stat(staging.target.path / "locked").st_mode & 0o700 == 0o700


def test_a_changed_hidden_file_is_reported(staging):
    fill(staging.hidden, {"a.txt": "hidden", "folder/b.txt": "hidden"})
    verifier = staging.verifier({"a.txt": "a.txt", "folder": "folder"})
    content = staging.stage(verifier)
    assert _find_tampering(verifier, staging.target, content) is None
    assert set(content) == {"a.txt", "folder/b.txt"}
    (staging.target.path / "folder" / "__pycache__").mkdir()
    (staging.target.path / "folder" / "__pycache__" / "b.pyc").write_text("compiled")
    assert _find_tampering(verifier, staging.target, content) is None
    (staging.target.path / "folder" / "b.txt").write_text("changed")
    assert _find_tampering(verifier, staging.target, content) == "the hidden file folder/b.txt was changed"
    (staging.target.path / "a.txt").unlink()
    assert _find_tampering(verifier, staging.target, content) == "the hidden file a.txt was changed"
    assert hidden_content(verifier, staging.target)["a.txt"] == "missing"


def test_the_digest_of_a_hidden_file_covers_its_content(tmp_path):
    def digest(path: Path) -> str:
        return source_digest(HiddenFile(target="x", source=path))

    one, same = fill(tmp_path / "one", {"a": "1", "b": "2"}), fill(tmp_path / "same", {"a": "1", "b": "2"})
    assert digest(one) == digest(same)
    assert digest(one / "a") == digest(same / "a") != digest(one / "b")
    (same / "a").chmod(0o755)
    assert digest(same / "a") == f"{digest(one / 'a')} executable"
    assert digest(one) != digest(same)
    fill(one, {"__pycache__/a.pyc": "x"})
    (same / "a").chmod(0o644)
    assert digest(one) == digest(same)
    (same / "b").write_text("3")
    assert digest(one) != digest(same)
