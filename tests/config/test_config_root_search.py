"""The one function that decides a session's root: layout × start directory × arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.config.root_search import holds_configuration
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import dataset_name
from pytest_agentbench.sources.discovery import has_cases

OURS = "schema_version: 1\n"
CONTENTS = {
    "pytest.ini": "[pytest]\n",
    "pyproject.toml": '[tool.pytest.ini_options]\nagentbench_configs = "."\nagentbench_trust = ["."]\n',
    "naming.ini": "[pytest]\nagentbench_configs = configs\n",
    "test.yaml": f"{OURS}case_id: c\n",
    "a.jsonl": '{"question": "x?", "answer": "y"}\n',
    ".git": "gitdir: elsewhere\n",
}
"""The content of a file by its name; all others are configuration. A name that ends with `/` is a folder."""

CASES = ["cases/models.yaml", "cases/own/test.yaml"]
VENDOR_SAYS = "cases/vendor/pyproject.toml"
VENDOR = ["cases/vendor/models.yaml", "cases/vendor/a/test.yaml"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / ".config"))
    return tmp_path / "w"


def write(tree: Path, *names: str) -> None:
    for name in names:
        path = tree / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name.replace("naming", "pytest")).write_text(CONTENTS.get(path.name, OURS))


def decide(tree: Path, start: str, *asked: str) -> SessionRoots:
    (tree / start).mkdir(parents=True, exist_ok=True)
    return decide_roots([tree / path for path in asked], tree / start, has_cases=has_cases)


def is_guest(roots: SessionRoots, folder: Path) -> bool:
    return roots.of(folder / "test.yaml").is_guest


@pytest.mark.parametrize("project", ["pytest.ini", ".git/"])
@pytest.mark.parametrize(
    "nested", [None, "pytest.ini", "pyproject.toml", "naming.ini", ".git/", ".git", "agents/x/agent.yaml"]
)
def test_nothing_in_a_guest_moves_the_root(tree: Path, project: str, nested: str | None) -> None:
    write(tree, project, *CASES, *VENDOR, *([] if nested is None else [f"cases/vendor/{nested}"]))
    for start in (".", "cases", "ci", "../elsewhere"):
        for asked in (["cases/vendor"], ["cases/vendor/a/test.yaml", "cases"], ["."]):
            roots = decide(tree, start, *asked)
            guests = [is_guest(roots, tree / folder) for folder in ("cases/own", "cases/vendor/a")]
            assert (roots.own, guests, roots.trust.folders) == (tree / "cases", [False, True], ()), (start, asked)


@pytest.mark.parametrize(
    ("files", "start", "asked", "root"),
    [
        # Standing inside a vendored folder: the repository around it counts, else the start directory
        (["pytest.ini", *CASES, *VENDOR], "cases/vendor", "cases/vendor", "cases/vendor"),
        ([".git/", *CASES, *VENDOR], "cases/vendor", "cases/vendor", "cases"),
        ([".git/", *CASES, *VENDOR, "cases/vendor/.git/"], "cases/vendor", "cases/vendor", "cases"),
        # Folders above the start directory never count without a repository
        (["models.yaml", "p/pytest.ini", "p/cases/models.yaml"], "p", "p/cases", "p/cases"),
        (["models.yaml", "p/pytest.ini", "p/cases/models.yaml"], "p/cases", "p/cases", "p/cases"),
        (["models.yaml", "p/.git/", "p/cases/models.yaml"], "p", "p/cases", "p/cases"),
        (["models.yaml", "p/cases/models.yaml"], ".", "p/cases", "."),
        # A start directory above a repository encloses it: the repository may be a guest's
        (["models.yaml", "p/.git/", "p/models.yaml"], ".", "p", "."),
        ([".git/", "models.yaml", "p/.git/", "p/models.yaml"], "p", "p", "."),
        # Beside the path: the outermost project of the path, without folders that it shares with the start directory
        (["models.yaml", "pytest.ini", *CASES], "ci", "cases/own", "cases"),
        (["q/models.yaml", "q/p/pytest.ini", "q/p/cases/models.yaml"], "ci", "q/p/cases", "q/p/cases"),
        (["q/models.yaml", "q/p/.git/", "q/p/cases/models.yaml"], "ci", "q/p/cases", "q/p/cases"),
        ([".git/", "models.yaml", *CASES], "ci", "cases/own", "."),
        # The path encloses the start directory
        (["models.yaml", *CASES], "cases/own", ".", "."),
        # Several paths: the first that has configuration around it, unless cases without configuration come first
        (["one/models.yaml", "two/models.yaml"], ".", "tests one two", "one"),
        (["tests/a/test.yaml", "one/models.yaml"], ".", "tests one", None),
        # No configuration around the path: the only folder with configuration below it that holds all cases
        (["tests/models.yaml", "tests/a/test.yaml", "data/notes.txt"], ".", ".", "tests"),
        (["own/a/test.yaml", "vendor/models.yaml", "vendor/b/test.yaml"], ".", ".", None),
        (["one/models.yaml", "one/a/test.yaml", "two/models.yaml", "two/a/test.yaml"], ".", ".", None),
        # agentbench_configs: the outermost pytest file wins that does not lie below the root
        (["naming.ini", "configs/models.yaml", *CASES, *VENDOR, VENDOR_SAYS], ".", "cases/vendor", "configs"),
        (["pytest.ini", "own/a/test.yaml", "vendor/pyproject.toml", "vendor/a/test.yaml"], ".", "vendor", None),
        (["naming.ini", "configs/models.yaml", *CASES], "cases", "cases", "configs"),
        (["p/naming.ini", "p/configs/models.yaml", "p/cases/a/test.yaml"], ".", "p/cases", "p/configs"),
        # A repository at home encloses downloads too, so it is that of no project
        (["../home/.git/", "../home/models.yaml", "../home/p/models.yaml"], "../home/p", "../home/p", "../home/p"),
        (["../home/models.yaml", "../home/p/models.yaml"], "../home", "../home/p", "../home"),
    ],
)  # fmt: skip
def test_the_root_by_layout_start_directory_and_path(
    tree: Path, files: list[str], start: str, asked: str, root: str | None
) -> None:
    write(tree, *files)
    roots = decide(tree, start, *asked.split())
    assert roots.own == (None if root is None else (tree / root).resolve()), roots
    assert ("none" in roots.describe()) == (root is None)


def test_a_folder_that_all_users_share_is_no_repository_and_no_root(tree: Path) -> None:
    write(tree, ".git/", "models.yaml", "p/models.yaml")
    tree.chmod(0o1777)
    assert decide(tree, "p", "p").own == tree / "p"
    assert decide(tree, ".", "p").own == tree


def test_a_start_directory_by_another_name_encloses_the_path(tree: Path) -> None:
    write(tree, "p/models.yaml", "p/vendor/models.yaml", "p/vendor/pytest.ini")
    (tree / "link").symlink_to(tree / "p")
    assert decide(tree, "p", "link/vendor").own == tree / "link"
    assert is_guest(decide(tree, "p", "link/vendor"), tree / "link" / "vendor")


@pytest.mark.parametrize("start", [".", "data"])
@pytest.mark.parametrize("above", ["models.yaml", "agents/x/agent.yaml", "run_profiles/a.yaml"])
def test_a_folder_above_the_project_changes_no_id(tree: Path, start: str, above: str) -> None:
    write(tree, f"../{above}", "pytest.ini", "data/deep/a.jsonl", "cases/models.yaml", "cases/deep/a.jsonl")
    for file, name in (("data/deep/a.jsonl", "data/deep/a"), ("cases/deep/a.jsonl", "deep/a")):
        for asked in (".", "data", file):
            roots = decide(tree, start, asked)
            assert dataset_name(tree / file, roots.of(tree / file)) == name


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["agents/__init__.py", "agents/tools/config.yaml"], False),
        (["agents/x/agent.yaml"], True),
        (["agents/x/agent.yml"], True),
        (["agents/settings.yaml"], False),
        (["suites/"], False),
        (["suites/nightly.yaml"], True),
        (["run_profiles/__init__.py"], False),
        (["models.yaml"], True),
        (["models.yaml/"], False),
        (["tools/a.yaml", "configs/a.yaml", "profiles/a.yaml"], False),
    ],
)
def test_a_folder_of_a_common_name_counts_only_with_a_file_of_ours(
    tree: Path, files: list[str], expected: bool
) -> None:
    write(tree, *files)
    assert holds_configuration(str(tree)) is expected


@pytest.mark.parametrize("name", ["models.yaml", "suites/a.yaml", "agents/x/agent.yaml"])
def test_a_file_of_another_tool_does_not_count(tree: Path, name: str) -> None:
    write(tree, name)
    (tree / name).write_text("name: a\nlayers: 3\n")
    assert not holds_configuration(str(tree))


def test_a_python_package_named_agents_does_not_hide_the_cases_of_its_project(tree: Path) -> None:
    write(tree, "pytest.ini", "agents/__init__.py", *CASES)
    roots = decide(tree, ".", ".")
    assert roots.own == tree / "cases"
    assert not is_guest(roots, tree / "cases" / "own")


def test_an_agent_that_is_missing_names_the_folders_that_were_searched(tree: Path) -> None:
    write(tree, "pytest.ini", *CASES, *VENDOR)
    root = decide(tree, ".", "cases").of(tree / "cases" / "vendor" / "test.yaml")
    with pytest.raises(
        ConfigError, match=rf"{tree}/cases/agents and {tree}/cases/vendor/agents: there is no agent 'x'"
    ):
        root.find("agents", "x")
