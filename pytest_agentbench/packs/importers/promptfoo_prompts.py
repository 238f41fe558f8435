"""Read promptfoo's prompts: texts with `{{ name }}` and lists of chat messages, from the config or files next to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.config.variants import MAX_OVERRIDES, name_problem
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import FileContents
from pytest_agentbench.packs.importers.promptfoo_values import (
    BadReferenceError,
    PlacedValue,
    find_named_files,
    is_reference,
    read_file_data,
    read_file_text,
)

_VALUE = re.compile(r"""\{\{\s*([A-Za-z_]\w*(?:\.\w+|\[(?:\d+|"\w+"|'\w+')\])*)\s*\}\}""")
_PART = re.compile(r"\w+")
_CODE = re.compile(r"\{\{.{0,60}?\}\}|\{%.{0,60}?%\}|\{#|\{\{|\{%", re.DOTALL)


class TemplateError(Exception):
    """A template cannot be filled in; the text is the reason."""


def fill_template(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text with the values of its variables: lists as JavaScript prints them, objects as JSON.

    :raises TemplateError: a variable is missing, or the text needs filters or statements.
    """
    # Alternately texts and names. Braces that remain in the texts are code that would have to be run.
    pieces = _VALUE.split(text)
    for piece in pieces[::2]:
        if (code := _CODE.search(piece)) is not None:
            raise TemplateError(
                f"found {code[0]!r}; only {{{{ name }}}} is filled in, filters and statements are not run"
            )
    pieces[1::2] = [_render_value(name, variables) for name in pieces[1::2]]
    return "".join(pieces)


def resolve_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables with the values of others in their texts. Raises TemplateError as `fill_template` does."""
    texts = {name: value for name, value in variables.items() if isinstance(value, str)}
    return {**variables, **{name: fill_template(text, variables) for name, text in texts.items()}}


def _render_value(name: str, variables: Mapping[str, Any]) -> str:
    value: Any = variables
    parts = _PART.findall(name)
    # Exports of OpenAI's Evals name a test's variables `item.NAME`.
    if parts[0] == "item" and "item" not in variables:
        parts = parts[1:]
    for part in parts:
        value = _parse_object(value)
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise TemplateError(f"found {{{{ {name} }}}}, but no variable of that name")
    text = _print_value(value)
    if _CODE.search(text):
        raise TemplateError(f"the value of {name!r} is a template itself; write it out")
    return text


def _parse_object(value: Any) -> Any:
    """Parse a text that is a JSON object or list, such as a table's cell. Return other values unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _print_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(element, dict | list) for element in value):
        # As JavaScript prints an array.
        return ",".join(map(_print_value, value))
    return json.dumps(value, ensure_ascii=False)


_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SEPARATOR = re.compile(r"^[ \t]*---[ \t\r]*$", re.MULTILINE)
_NAMES_FILES = re.compile(
    r"\S.*\.(?:txt|md|j2|jsonl?|ya?ml|csv)|\S*/\S*\*|\S+\.(?:[cm]?[jt]s|py|rb|go|sh|exe)(?::\w+)?|exec:.+"
)
"""Prompts without `file://` that promptfoo reads as names of files or programs."""
_ELSEWHERE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://\S+\Z")


@dataclass(frozen=True)
class Prompt:
    """Messages whose texts may contain variables, unless they are `filled` in. Tests refer to it by `label`."""

    label: str
    messages: tuple[Mapping[str, str], ...]
    filled: bool = False

    def is_named(self, reference: str) -> bool:
        """Return whether a test refers to the prompt: by its label, or the part of it before a colon or an asterisk."""
        if reference.endswith("*"):
            return self.label.startswith(reference[:-1])
        return self.label == reference or self.label.startswith(f"{reference}:")

    def as_variant(self, variables: Mapping[str, Any]) -> str | None:
        """Return the text if the prompt can be a variant of a case with these variables, else None.

        It is one message of a user that names variables with a text or a number and is no code otherwise.
        """
        if self.filled or [message["role"] for message in self.messages] != ["user"]:
            return None
        text = self.messages[0]["content"]
        names = _VALUE.findall(text)
        if any(not isinstance(variables.get(name), str | int | float) for name in names):
            return None
        try:
            filled = fill_template(text, variables)
        except TemplateError:
            return None
        if not filled.strip() or len(text.encode()) >= MAX_OVERRIDES:
            return None
        return text

    def asked(self, variables: Mapping[str, Any], before: str, after: str) -> tuple[dict[str, str], ...]:
        """Return the messages with the variables' values, and with the texts `before` and `after` the last message's.

        :raises TemplateError: a text needs more than values, or no message of a user has a text.
        """
        if self is PROMPT_SLOT:
            before, after = fill_template(before, variables), fill_template(after, variables)
            return ({"role": "user", "content": f"{before}{self.messages[0]['content']}{after}"},)
        texts = [message["content"] for message in self.messages]
        texts[-1] = f"{before}{texts[-1]}{after}"
        if not self.filled:
            texts = [fill_template(text, variables) for text in texts]
        roles = [message["role"] for message in self.messages]
        if not any(role == "user" and text.strip() for role, text in zip(roles, texts, strict=True)):
            raise TemplateError("the prompt asks nothing: it has no text of a user")
        return tuple({"role": role, "content": text} for role, text in zip(roles, texts, strict=True))


PROMPT_SLOT = Prompt("", ({"role": "user", "content": "{{ prompt }}"},))
"""The place of a variant's prompt in the messages of a case."""


def name_prompts(prompts: Sequence[Prompt]) -> list[str]:
    """Return the names of the prompts as variants: their labels, or `prompt-1`, `prompt-2` ..."""
    labels = [
        re.sub(r"[^A-Za-z0-9_.-]+", "-", prompt.label.removeprefix("file://")).strip("-._")
        if prompt.label != prompt.messages[0]["content"]
        else ""
        for prompt in prompts
    ]
    return [
        label if label and labels.count(label) == 1 and name_problem(label) is None else f"prompt-{number}"
        for number, label in enumerate(labels, 1)
    ]


def read_prompts(config: PlacedValue, folder: Path, gathered: FileContents) -> list[Prompt]:
    """Return the prompts of a config; those that cannot be used go to `gathered` as lost."""
    section = config.below("prompts")
    if section.value is None:
        return [make_prompt("{{prompt}}", "")]
    if isinstance(section.value, list) and section.value and all(map(_is_message, section.value)):
        # The list is one prompt of several messages, not several prompts.
        section = PlacedValue([section.value], section.loc, section.locate)
    prompts: list[Prompt] = []
    for spot in section.each():
        try:
            prompts += _list_prompts(spot, folder)
        except BadReferenceError as error:
            gathered.lose(spot.where, str(error))
    return prompts


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and {"role", "content"} <= value.keys()


def _list_prompts(spot: PlacedValue, folder: Path) -> Iterator[Prompt]:
    value, label = spot.value, ""
    if isinstance(value, dict):
        label = str(value.get("label") or value.get("id") or "")
        if others := sorted(map(str, value.keys() - {"id", "label", "raw", "display", "name"})):
            raise BadReferenceError(f"the prompt has settings ({', '.join(others)}): write it to a test.yaml")
        value = value.get("raw", value.get("id"))
    if isinstance(value, list):
        yield Prompt(label, _read_messages(value))
    elif not isinstance(value, str) or not value.strip():
        raise BadReferenceError(f"found {value!r:.60}, expected a text or {{raw, label}}")
    elif _ELSEWHERE.match(value):
        raise BadReferenceError(f"{value} is not on this machine; copy its text to a file in {folder}")
    elif is_reference(value) or _NAMES_FILES.fullmatch(value):
        for path in find_named_files(value, folder):
            yield from _read_prompts_file(path, label or value)
    else:
        yield make_prompt(value, label or value)


def _read_prompts_file(path: Path, label: str) -> Iterator[Prompt]:
    if path.suffix in (".yaml", ".yml"):
        data = read_file_data(path)
        if isinstance(data, list):
            yield Prompt(label, _read_messages(data))
        else:
            yield make_prompt(read_file_text(path), label)
        return
    if path.suffix == ".csv":
        raise BadReferenceError(
            f"{path} is a table: prompts are not read from tables; write them to a .txt, with --- between"
        )
    text = read_file_text(path)
    pieces = [text]
    if path.suffix == ".txt":
        # promptfoo splits no other files at lines of `---`.
        pieces = _SEPARATOR.split(text)
    elif path.suffix == ".jsonl":
        pieces = text.splitlines()
    texts = [piece.strip() for piece in pieces if piece.strip()]
    if not texts:
        raise BadReferenceError(f"{path} is empty")
    labels = [label]
    if len(texts) > 1:
        labels = [f"{label}:{number}" for number in range(1, len(texts) + 1)]
    yield from map(make_prompt, texts, labels)


def make_prompt(text: str, label: str) -> Prompt:
    """Return the prompt of a text; a JSON list of messages is parsed."""
    if text.lstrip().startswith("["):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            # A plain text may begin with a bracket as well.
            data = None
        if isinstance(data, list) and data and all(isinstance(item, dict) and "role" in item for item in data):
            return Prompt(label, _read_messages(data))
    return Prompt(label, ({"role": "user", "content": text},))


def _read_messages(items: list[Any]) -> tuple[dict[str, str], ...]:
    messages = []
    for message in items:
        content = _join_parts(as_object(message).get("content"))
        if content is None or message.get("role") not in _ROLES:
            raise BadReferenceError(f"found {message!r:.60}, expected messages with a text each of {', '.join(_ROLES)}")
        messages.append({"role": _ROLES[message["role"]], "content": content})
    if not messages:
        raise BadReferenceError("found no message")
    return tuple(messages)


def _join_parts(content: Any) -> str | None:
    """Return the text of a message or of its parts; None if a part is not a text, or there is none."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return None
    texts = [part.get("text") if isinstance(part, dict) else part for part in content]
    if texts and all(isinstance(text, str) for text in texts):
        return "\n".join(map(str, texts))
    return None
