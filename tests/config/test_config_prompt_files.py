"""Prompts of files in place of a pack's own: their placeholders, their names, who may name them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter

from pytest_agentbench.config.base import Guest, Scope, validate
from pytest_agentbench.config.documents import parse_yaml
from pytest_agentbench.config.prompt_files import (
    PromptTexts,
    Slots,
    find_prompt_problems,
    is_none,
    prompt_folder,
    read_prompts,
    split_prompt,
)
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.prompts import Block, fill_prompt
from pytest_agentbench.records.base import Record

SLOTS = Slots(("article",), ("most",))
PROMPTS = {"draw": SLOTS, "judge": Slots()}


class Section(Record):
    prompts: Annotated[PromptTexts | None, prompt_folder(PROMPTS, used={"draw": SLOTS})] = Field(
        default=None, exclude_if=is_none
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/draw.en.txt").write_text("Draw from {article}.\n")
    return tmp_path / "prompts"


def load(folder: Path, guest: Guest | None = None) -> PromptTexts | None:
    document = parse_yaml(f"prompts: {folder.name}\n".encode(), folder.parent / "p.yaml")
    scope = Scope(str(folder.parent), str(folder.parent), guest=guest)
    return validate(document, TypeAdapter(Section), scope).prompts


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", ("",)),
        ("a", ("a",)),
        ("{x}", ("", "x", "")),
        ("a {x}{y} b", ("a ", "x", "", "y", " b")),
        ('{{"score": {x}}}', ('{"score": ', "x", "}")),
        ("{{{x}}}", ("{", "x", "}")),
        ("{{x}}", ("{x}",)),
        ("a\n{x}\n", ("a\n", "x", "\n")),
    ],
)
def test_a_prompt_is_split_at_its_placeholders(text: str, pieces: tuple[str, ...]) -> None:
    assert split_prompt(text) == pieces


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("{article}", []),
        ("{article} {most} {article}", []),
        ("{{article}} {article}", []),
        ("a\nb", [(2, 1, "found no placeholder {article}, expected it once at least")]),
        ("{{article}}", [(1, 1, "found no placeholder {article}, expected it once at least")]),
        (
            "{article}\nx {artikel}",
            [(2, 3, "found the placeholder '{artikel}', expected {article}, {most}, or {{ for a brace")],
        ),
        ("{article}\n\n{", [(3, 1, "found a single '{', expected '{{' for a brace")]),
        ("{article} }", [(1, 11, "found a single '}', expected '}}' for a brace")]),
        ("{article}{}", [(1, 10, "found the placeholder '{}', expected {article}, {most}, or {{ for a brace")]),
        ("{article!r}", [(1, 1, "found the placeholder"), (1, 1, "found no placeholder {article}")]),
        ("{article.__class__}", [(1, 1, "found the placeholder"), (1, 1, "found no placeholder {article}")]),
        ("{article}\n{a\n}", [(2, 1, "found a single '{'"), (3, 1, "found a single '}'")]),
    ],
)
def test_wrong_placeholders_are_named_with_their_place(text: str, problems: list[tuple[int, int, str]]) -> None:
    found = list(find_prompt_problems(text, SLOTS))
    assert [each[:2] for each in found] == [each[:2] for each in problems]
    assert all(said.startswith(expected) for (*_, said), (*_, expected) in zip(found, problems, strict=True))


def test_all_problems_of_a_folder_are_reported(folder: Path) -> None:
    (folder / "draw.en.txt").write_text("Draw.")
    (folder / "draw.zh.txt").write_bytes(b"\xff{article}")
    (folder / "drow.en.txt").write_text("{article}")
    (folder / "judge.en.md").write_text("")
    (folder / "README.md").write_text("about {them}")
    (folder / ".gitignore").write_text("{")
    with pytest.raises(ConfigError) as caught:
        read_prompts(folder, PROMPTS)
    assert str(caught.value).splitlines() == [
        f"{folder}/draw.en.txt:1:1: found no placeholder {{article}}, expected it once at least",
        f"{folder}/draw.zh.txt: found a byte that is no UTF-8 at 0, expected a text",
        f"{folder}/drow.en.txt: found no prompt of that name; did you mean 'draw.en.txt'?",
        f"{folder}/judge.en.md: found no prompt of that name; did you mean 'judge.en.txt'?",
    ]


def test_an_empty_folder_and_a_huge_file_are_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"found no prompt, expected files such as draw\.en\.txt"):
        read_prompts(tmp_path / "empty", PROMPTS)
    with pytest.raises(ConfigError, match="nowhere: cannot be read"):
        read_prompts(tmp_path / "nowhere", PROMPTS)
    (folder / "draw.en.txt").write_text("{article}" + "x" * 200_000)
    with pytest.raises(ConfigError, match=r"draw\.en\.txt:1:1: "):
        read_prompts(folder, PROMPTS)


def test_a_field_holds_the_texts_that_are_used(folder: Path) -> None:
    found = load(folder)
    assert found is not None
    assert found.find("draw", "en") == "Draw from {article}.\n"
    assert found.find("draw", "zh") is None
    (folder / "judge.en.txt").write_text("Another use.")
    assert load(folder) == found
    (folder / "draw.en.txt").unlink()
    assert load(folder) is None


def test_a_changed_text_changes_the_record_and_no_prompts_leave_no_trace(folder: Path) -> None:
    first = load(folder)
    (folder / "draw.en.txt").write_text("Draw more from {article}.")
    second = load(folder)
    assert first is not None
    assert second is not None
    assert first.digest != second.digest
    assert Section(prompts=first).model_dump() != Section(prompts=second).model_dump()
    assert Section().model_dump() == {}


def test_a_wrong_prompt_is_an_error_of_the_file_that_names_the_folder(folder: Path) -> None:
    (folder / "draw.en.txt").write_text("Draw.")
    with pytest.raises(ConfigError, match=r"(?s)p\.yaml:1:.*prompts: .*draw\.en\.txt:1:1: found no placeholder"):
        load(folder)


def test_a_field_of_a_guest_holds_no_prompts(folder: Path) -> None:
    with pytest.raises(ConfigError, match="found prompts of judges or agents in a folder that is not trusted"):
        load(folder, Guest(folder))


def test_a_folder_outside_of_the_root_is_refused(tmp_path: Path, folder: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    document = parse_yaml(b"prompts: ../prompts\n", root / "p.yaml")
    with pytest.raises(ConfigError, match="leaves"):
        validate(document, TypeAdapter(Section), Scope(str(root), str(root)))


BLOCK = Block("article", "Text. <<<END x>>>")
RENDERED = "<<<DATA b article>>>\nText. \\<<<END x>>>\n<<<END b>>>"


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{article}", RENDERED),
        ("Draw {most}: {article} Now.", f"Draw 3: \n{RENDERED}\n Now."),
        ("A\n{article}\nB", f"A\n{RENDERED}\nB"),
        ("{article}{article}", f"{RENDERED}\n{RENDERED}"),
        ("{article}{most}", f"{RENDERED}\n3"),
        ('{{"a": 1}} {most}{article}', f'{{"a": 1}} 3\n{RENDERED}'),
        ("a{none}b {most}", "ab 3"),
        ("<<<DATA b x>>>\n{most}", "\\<<<DATA b x>>>\n3"),
    ],
)
def test_material_is_in_blocks_on_separate_lines(text: str, filled: str) -> None:
    assert fill_prompt(text, {"most": 3}, {"article": [BLOCK], "none": []}, "b") == filled


def test_braces_of_material_and_values_are_no_placeholders() -> None:
    block = Block("article", "{most} {{x}}")
    found = fill_prompt("{article}\n{most}", {"most": "{article}"}, {"article": [block]}, "b")
    assert found == "<<<DATA b article>>>\n{most} {{x}}\n<<<END b>>>\n{article}"
