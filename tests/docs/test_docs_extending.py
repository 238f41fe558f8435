"""What docs/extending.md and docs/plugin.md say of seams is all that there is, and as it is."""

from __future__ import annotations

import re

import pytest
from docs_pages import blocks
from sample_pages import PAGE, ROOT, SAMPLE, quoted_files, with_files

import pytest_agentbench
from pytest_agentbench import hookspecs
from pytest_agentbench.seams import FIELDS, PROFILES

HOOK = "pytest_agentbench_"
TABLE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def named(pattern: str) -> set[str]:
    """What the table says in such a way."""
    return set(re.findall(pattern, TABLE))


def test_each_file_of_the_sample_is_quoted_as_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_files(page) == page, "renew it: python tests/docs/sample_pages.py"
    files = {path.relative_to(SAMPLE).as_posix() for path in SAMPLE.rglob("*.py") if path.name != "__init__.py"}
    assert files | {"agentbench_sample/template/notes.txt", "pyproject.toml"} == {*quoted_files(page)}


def test_the_table_has_each_hook_and_field() -> None:
    cells = [line.split("|")[2] for line in TABLE.splitlines() if line.startswith("| ")]
    names = set(re.findall(r"`(\w+)`", " ".join(cells)))
    hooks = {name.removeprefix(HOOK) for name in dir(hookspecs) if name.startswith(HOOK)}
    rare = named(r"`(schemas|scripts|scripted_verdicts|images)`")
    assert names | rare == {*FIELDS} | hooks
    without_hook = set(re.findall(r"`(\w+)` \(no hook\)", TABLE)) | rare
    assert {*FIELDS} - hooks - without_hook == {f"{key}_sections" for key in PROFILES}


def test_the_table_has_each_kit() -> None:
    kits = {name for name in pytest_agentbench.__all__ if name.startswith("check_")}
    assert kits == named(r"`(check_\w+)`")


def test_each_kit_is_called_in_an_example_that_the_page_runs() -> None:
    names = ("extending.md", "own-sandbox.md", "own-conversation.md", "plugin.md")
    pages = [blocks((ROOT / "docs" / name).read_text(encoding="utf-8")) for name in names]
    called: set[str] = set()
    for page in map(list, pages):
        commands = "".join(block.text for block in page if block.language == "console")
        tests = [block.text for block in page if block.argument is not None and f"pytest {block.argument}" in commands]
        called |= {name for text in tests for name in re.findall(r"\b(check_\w+)\(", text)}
    assert {name for name in pytest_agentbench.__all__ if name.startswith("check_")} == called


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("extending.md", "riddles/"),
        ("extending.md", "hidden/"),
        ("own-sandbox.md", "box.py|run_profiles/box|conftest|cases/"),
        ("own-conversation.md", "talks/"),
    ],
    ids=["a pack with a command", "a live grader", "a container", "a driver with a second model"],
)
def test_an_example_of_several_files_has_fewer_than_80_lines(page: str, example: str) -> None:
    files = [block for block in blocks((ROOT / "docs" / page).read_text(encoding="utf-8")) if block.what == "file"]
    parts = [
        block for block in files if re.match(example, block.argument or "") and "test_" not in (block.argument or "")
    ]
    assert 40 < sum(block.text.count("\n") for block in parts) < 80
