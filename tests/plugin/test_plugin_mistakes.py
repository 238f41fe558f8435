"""Mistakes that people make: what a session says about each names file and line, what it found, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.bench import Bench
from support.mistakes import CASE, ROW, Mistake
from support.mistakes_in_cases import FILES_OF_CASES
from support.mistakes_in_options import ON_THE_COMMAND_LINE
from support.mistakes_in_settings import OTHER_FILES

SCRIPT = "schema_version: 1\nreplies:\n- content: hello\n"


def write(bench: Bench, files: Mapping[str, str | bytes]) -> None:
    for path, content in files.items():
        bench.write(path, "").write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.slow
def test_files_of_cases_say_what_is_wrong_with_each(bench: Bench) -> None:
    """One session for all of them: a mistake in one file takes no other down."""
    projects = {f"p{number}/{wrong.file}": wrong for number, wrong in enumerate(FILES_OF_CASES)}
    # A case of its own each: ids are unique
    files = {path: wrong.content for path, wrong in projects.items()}
    for number, (path, content) in enumerate(files.items()):
        if isinstance(content, str) and path.endswith("test.yaml"):
            files[path] = content.replace("case_id: hello\n", f"case_id: p{number}\n")
    write(bench, files)
    finished = bench.run(".", "--model", "demo")
    text = finished.text.replace(f"{bench.path}/", "")
    unsaid = {wrong.name for path, wrong in projects.items() if f"{path}:{wrong.says}" not in text}
    assert not unsaid, (unsaid, text)


@pytest.mark.parametrize("mistake", [*OTHER_FILES, *ON_THE_COMMAND_LINE], ids=lambda mistake: mistake.name)
def test_every_mistake_is_reported(bench: Bench, mistake: Mistake) -> None:
    write(bench, {"cases/hello/test.yaml": CASE, "cases/hello/demo.yaml": SCRIPT, **mistake.files})
    text = bench.run(*mistake.args).text.replace(f"{bench.path}/", "")
    assert mistake.says in text, text


@pytest.mark.parametrize(
    "content",
    [CASE.encode("utf-8-sig"), CASE.replace("\n", "\r\n").encode(), CASE.encode("utf-16")],
    ids=["with a BOM", "with line ends of Windows", "in UTF-16"],
)
def test_files_with_windows_encodings_and_line_ends_are_read(bench: Bench, content: bytes) -> None:
    write(bench, {"cases/hello/test.yaml": content, "cases/hello/demo.yaml": SCRIPT})
    assert bench.run("cases", "--model", "demo").outcomes == {"hello[demo]": "passed"}


def test_duplicate_ids_in_a_file_with_windows_line_ends_are_errors(bench: Bench) -> None:
    write(bench, {"rows.jsonl": (ROW + ROW).replace("\n", "\r\n").encode("utf-8-sig")})
    assert "rows.jsonl:2:1: id: found 'a' again" in bench.run("rows.jsonl", "--model", "demo").text


def test_a_backspace_in_a_pattern_is_warned_about(bench: Bench) -> None:
    checks = 'checks: [{kind: contains, text: ello}, {kind: regex_match, pattern: "\\bhello\\b"}]'
    content = CASE.replace("kind: regex_match, pattern: ello", f"kind: any_of, {checks}")
    write(bench, {"cases/hello/test.yaml": content, "cases/hello/demo.yaml": SCRIPT})
    text = bench.run("cases", "--model", "demo").text.replace(f"{bench.path}/", "")
    place = "cases/hello/test.yaml:9:107: deterministic_checks[0].declarative.checks[1].pattern"
    warning = r"""found a backspace, as "\b" in double quotes is read; write '\bhello\b' in single quotes"""
    assert f"warning: {place}: {warning}" in text
