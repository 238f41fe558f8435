"""Prompts that a folder of files puts in place of a pack's own: one file a prompt, with checked placeholders.

A file is called `<prompt>.<language>.txt`, such as `race_pairwise.en.txt`. Its text is the whole user message.
`{name}` is a placeholder; `{{` and `}}` are braces.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from pytest_agentbench.config.base import Problems, resolve_folder, scope_of, suggest
from pytest_agentbench.config.documents import read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record

LANGUAGES = ("en", "zh")
MAX_PROMPT = 200_000
"""Bytes of one file."""
_SUFFIX = ".txt"
_IGNORED = ("README", "LICENSE", ".")
"""Beginnings of the names of files that are no prompts."""
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Slots:
    """Placeholders of a prompt: those that its file must have, and those that it may have."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all of them."""
        return (*self.required, *self.optional)


class PromptTexts(Record):
    """Texts of a folder of prompts by `<prompt>.<language>`. They are checked, and part of fingerprints."""

    texts: dict[str, str]

    def find(self, prompt: str, language: str) -> str | None:
        """Return the text of a prompt, None if the folder has none."""
        return self.texts.get(f"{prompt}.{language}")

    def only(self, prompts: Mapping[str, Slots]) -> PromptTexts | None:
        """Return the texts of these prompts, None if there are none."""
        texts = {name: text for name, text in self.texts.items() if name.rpartition(".")[0] in prompts}
        if texts:
            return PromptTexts(texts=texts)
        return None

    @property
    def digest(self) -> str:
        """Return 16 hex digits that differ for folders of different texts."""
        return sha256(json.dumps(self.texts, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=128)
def split_prompt(text: str) -> tuple[str, ...]:
    """Return the texts between placeholders and the names of the placeholders in turn; braces are unescaped."""
    pieces, at = [""], 0
    for match in _BRACES.finditer(text):
        pieces[-1] += text[at : match.start()]
        at = match.end()
        if match[1] is None:
            pieces[-1] += match[0][:1]
        else:
            pieces += [match[1], ""]
    pieces[-1] += text[at:]
    return tuple(pieces)


def read_prompts(folder: Path, prompts: Mapping[str, Slots]) -> PromptTexts:
    """Return the prompts of a folder. Raises ConfigError with everything that is wrong with its files."""
    texts: dict[str, str] = {}
    problems: list[str] = []
    file_names = [f"{prompt}.{language}{_SUFFIX}" for prompt in prompts for language in LANGUAGES]
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror or error}") from error
    for name in names:
        if name.startswith(_IGNORED):
            continue
        path = folder / name
        if name not in file_names:
            problems.append(f"{path}: found no prompt of that name{suggest(name, file_names)}")
            continue
        try:
            text = read_bytes(path, MAX_PROMPT).decode("utf-8")
        except UnicodeDecodeError as error:
            problems.append(f"{path}: found a byte that is no UTF-8 at {error.start}, expected a text")
        except ConfigError as error:
            problems.append(str(error))
        else:
            key = name.removesuffix(_SUFFIX)
            slots = prompts[key.rpartition(".")[0]]
            problems += [
                f"{path}:{line}:{column}: {message}" for line, column, message in find_prompt_problems(text, slots)
            ]
            texts[key] = text
    if not texts and not problems:
        problems.append(f"{folder}: found no prompt, expected files such as {file_names[0]}")
    if problems:
        raise ConfigError("\n".join(problems))
    return PromptTexts(texts=texts)


def find_prompt_problems(text: str, slots: Slots) -> Iterator[tuple[int, int, str]]:
    """Yield the problems of a prompt's placeholders: line, column, message."""
    expected = ", ".join(f"{{{name}}}" for name in slots.names)
    names = set()
    for match in _BRACES.finditer(text):
        line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
        if match[0] in ("{", "}"):
            yield line, column, f"found a single {match[0]!r}, expected {match[0] * 2!r} for a brace"
        elif match[1] is not None and match[1] not in slots.names:
            yield line, column, f"found the placeholder {match[0]!r}, expected {expected}, or {{{{ for a brace"
        names.add(match[1])
    lines = text.count("\n") + 1
    for name in slots.required:
        if name not in names:
            yield lines, 1, f"found no placeholder {{{name}}}, expected it once at least"


PROMPTS_SCHEMA = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})
"""Schema of a field that names a folder of prompts."""


def prompt_folder(prompts: Mapping[str, Slots], used: Mapping[str, Slots] | None = None) -> BeforeValidator:
    """Return the validator of a field that names a folder of these prompts, relative to the field's file.

    The field's value holds the texts of the `used` prompts (default: all). A guest may not name a folder.
    """

    def read(value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        scope = scope_of(info)
        # Without a scope the file is only checked by itself, as an editor does.
        if scope is None:
            return None
        scope.refuse_program("prompts of judges or agents")
        try:
            return read_prompts(resolve_folder(value, scope), prompts).only(used or prompts)
        except ConfigError as error:
            raise Problems(((), line) for line in str(error).splitlines()) from error

    return BeforeValidator(read)


def is_none(value: object) -> bool:
    """Return whether there is no value: `exclude_if` of a field that older fingerprints do not have."""
    return value is None
