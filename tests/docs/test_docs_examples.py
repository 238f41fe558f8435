"""Every example of the documentation is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_pages import Project, commands, mismatch, problems

ROOT = Path(__file__).parents[2]
WRITTEN = [path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "reference"]  # which is made from code
SKILL = ROOT / "pytest_agentbench" / "cli" / "SKILL.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", SKILL, *WRITTEN])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_has_the_documented_output(page: Path, tmp_path: Path) -> None:
    with Project(tmp_path) as project:
        found = list(problems(page.read_text(encoding="utf-8"), project))
    assert not found, f"{page.name}: " + "\n\n".join(found)
    if project.left_out:
        pytest.skip(f"all but a part of {page.name} was run: {'; '.join(project.left_out)}")


def test_shown_lines_are_found_in_order() -> None:
    assert mismatch(("one", "...", "th... 12 ms"), "zero\none\ntwo\nthree   400 ms\n") is None
    assert mismatch(("two", "one"), "one\ntwo\n") == "one"
    assert mismatch(("1 failed",), "2 failed\n") == "1 failed"


def test_a_console_block_is_commands_with_their_output() -> None:
    first, second = commands("$ a \\\n  b\nout\n$ c\n")
    assert (first.text, first.shown) == ("a \\\n  b", ("out",))
    assert (second.text, second.shown) == ("c", ())


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```console\n$ false\n```\n", "exit status 1 is not shown"),
        ("```console\n$ echo one\ntwo\n```\n", "lacks: two"),
        ("```yaml\na: 1\n```\n", "neither run nor written"),
    ],
)
def test_a_wrong_page_is_found_out(page: str, said: str, tmp_path: Path) -> None:
    with Project(tmp_path) as project:
        [problem] = problems(page, project)
    assert said in problem


def test_files_and_commands_share_one_folder(tmp_path: Path) -> None:
    page = """
<!-- file: a/b.txt -->
```text
hello
```

```console
$ cat a/b.txt; pwd; false
hello
/home/me/bench
$ echo $?
1
```
"""
    with Project(tmp_path) as project:
        assert list(problems(page, project)) == []
