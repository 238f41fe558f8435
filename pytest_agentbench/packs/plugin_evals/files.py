"""Files of a case's folder: `prompt.md`, `case.yaml` and `graders/*.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictInt, TypeAdapter, field_validator

from pytest_agentbench.config.base import Scope, resolve_folder, validate
from pytest_agentbench.config.documents import Document, parse_yaml, read_bytes
from pytest_agentbench.config.skills import MOST_TEXT, split_front_matter
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.plugin_evals.records import BaselineGrader, GraderSpec
from pytest_agentbench.records.base import Record, Tags, Text

PROMPT_FILE = "prompt.md"
CASE_FILES = ("case.yaml", "case.yml")
GRADERS_FOLDER = "graders"
_VERSION = "1.1"
_VARIABLE = re.compile(r"EVAL_[A-Z0-9_]*")
_MOST_GRADERS = 100
_SPEC: TypeAdapter[Any] = TypeAdapter(GraderSpec)


def _check_version(value: Any) -> Any:
    if str(value) != _VERSION:
        raise ValueError(f"found {value!r}, expected {_VERSION!r}: another version has other keys")
    return _VERSION


class Execution(Record):
    """Settings of the run."""

    runs: Annotated[StrictInt, Field(ge=1, le=50)] = 3
    """Repetitions."""
    max_turns: Annotated[StrictInt, Field(ge=1, le=200)] = 10
    """Maximum requests of the agent."""
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 300
    """Maximum seconds of the run."""
    model: Text | None = None
    """A model of Claude Code's. It is left out, because the session names the models."""
    allowed_tools: tuple[Text, ...] = ()
    """Tools that Claude Code may use without asking. They are left out, because the sandbox limits the agent."""
    append_system_prompt: Text | None = None
    """Text after the system prompt."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the run, whose names begin with EVAL_."""

    @field_validator("env")
    @classmethod
    def _check_names(cls, env: dict[str, str]) -> dict[str, str]:
        if wrong := next((name for name in env if not _VARIABLE.fullmatch(name)), None):
            raise ValueError(f"found the variable {wrong[:80]!r}, expected names that begin with EVAL_")
        return env


class EvalContext(Record):
    """Files and commands around the run."""

    add_dirs: tuple[Text, ...] = ()
    """Folders whose files the agent sees, relative to the case."""
    scaffold_script: Text | None = None
    """A script that runs in the workspace before the agent, relative to the case."""
    history_file: Any = None

    @field_validator("history_file")
    @classmethod
    def _refuse(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError(f"found {value!r:.80}, which resumes a session; that is not supported, remove the key")
        return value


class EvalKeys(Execution):
    """Keys of `case.yaml` and of the front matter of `prompt.md`."""

    schema_version: Annotated[str, BeforeValidator(_check_version)] = _VERSION
    name: Text | None = None
    """Id of the case; default: the name of its folder."""
    description: str | None = None
    expected_outcome: str | None = None
    tags: Tags = ()
    plugins: tuple[Text, ...] | None = None
    """Folders of plugins, relative to the case; default: the nearest plugin or skill above."""
    execution: Execution = Field(default_factory=Execution)
    context: EvalContext = Field(default_factory=EvalContext)
    prompt: Text | None = None
    """The user message, unless `prompt.md` has one."""
    graders: tuple[GraderSpec, ...] = ()

    @property
    def flat(self) -> EvalKeys:
        """Return the keys with those of `execution`, unless they are set at the top level."""
        names = self.execution.model_fields_set - self.model_fields_set
        return self.model_copy(update={name: getattr(self.execution, name) for name in names})


@dataclass(frozen=True, slots=True)
class EvalFolder:
    """A case's folder: its keys, prompt, named graders and the texts about keys that are left out.

    `path` is the file that defines the case.
    """

    path: Path
    keys: EvalKeys
    prompt: str
    graders: tuple[GraderSpec, ...]
    left_out: tuple[str, ...]


def read_eval_folder(path: Path, scope: Scope) -> EvalFolder:
    """Return the case of the folder of `path`, its `prompt.md` or `case.yaml`. Raises ConfigError."""
    folder = path.parent
    keys, documents, prompt = EvalKeys(), list[Document](), ""
    case_file = next((folder / name for name in CASE_FILES if (folder / name).is_file()), None)
    if case_file is not None:
        documents.append(_require_mapping(parse_yaml(read_bytes(case_file), case_file)))
        keys = validate(documents[-1], EvalKeys, scope).flat
        prompt = keys.prompt or ""
    if (folder / PROMPT_FILE).is_file():
        document, body = read_front_matter(folder / PROMPT_FILE)
        documents.append(document)
        front = validate(document, EvalKeys, scope).flat
        keys = keys.model_copy(update={name: getattr(front, name) for name in _set_names(front)})
        prompt = body or front.prompt or prompt
    if not prompt.strip():
        raise ConfigError(f"{path}:1:1: found no prompt, expected one in {PROMPT_FILE} or in {CASE_FILES[0]}")
    graders = _name_graders([*keys.graders, *_read_graders(folder / GRADERS_FOLDER, scope)], path)
    notes = [note for document in documents for note in _list_left_out(document)]
    notes += [
        f"{path}:1:1: graders: left out the baseline {grader.name!r}, because transcripts are not compared"
        for grader in graders
        if isinstance(grader, BaselineGrader)
    ]
    counted = tuple(grader for grader in graders if not isinstance(grader, BaselineGrader))
    return EvalFolder(path, keys, prompt, counted, tuple(notes))


def _set_names(keys: EvalKeys) -> set[str]:
    """Return the names of keys that a file sets, at the top level or in `execution`."""
    return keys.model_fields_set | keys.execution.model_fields_set


def read_front_matter(path: Path) -> tuple[Document, str]:
    """Return the keys between lines `---` at the beginning of a Markdown file, {} if it has none, and the text below.

    Raises ConfigError.
    """
    text = read_bytes(path, MOST_TEXT)
    front, body = b"", text
    if text.removeprefix(b"\xef\xbb\xbf").startswith(b"---"):
        front, body = split_front_matter(text, path)
    document = parse_yaml(front, path)
    if document.data is None:
        document = replace(document, data={})
    try:
        return _require_mapping(document), body.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1:1: not UTF-8: {error.reason}; save the file as UTF-8") from error


def _require_mapping(document: Document) -> Document:
    if not isinstance(document.data, dict):
        raise ConfigError(f"{document.path}:1:1: found {document.data!r:.60}, expected keys with values")
    return document


def _read_graders(folder: Path, scope: Scope) -> Iterator[GraderSpec]:
    """Yield the graders of `graders/*.md`, in the order of their names. Raises ConfigError."""
    if not folder.is_dir():
        return
    inside = resolve_folder_in(folder, scope)
    for path in sorted(inside.glob("*.md")):
        document, body = read_front_matter(path)
        data = {"name": path.stem, **document.data}
        if body and data.get("type") in ("llm", "baseline"):
            data = {**data, "criteria": body}
        yield validate(replace(document, data=data), _SPEC, scope)


def resolve_folder_in(folder: Path, scope: Scope) -> Path:
    """Return a folder with its links resolved. Raises ConfigError if it leaves the scope."""
    try:
        return resolve_folder(str(folder), scope)
    except ValueError as error:
        raise ConfigError(f"{folder}: {error}") from error


def _name_graders(graders: list[GraderSpec], path: Path) -> tuple[GraderSpec, ...]:
    """Return the graders, each with a name. Raises ConfigError for equal names, and for too many graders."""
    if len(graders) > _MOST_GRADERS:
        raise ConfigError(f"{path}:1:1: found {len(graders)} graders, expected at most {_MOST_GRADERS}")
    named: dict[str, GraderSpec] = {}
    for number, grader in enumerate(graders, start=1):
        name = grader.name or f"{grader.type}_{number}"
        if name in named:
            raise ConfigError(f"{path}:1:1: graders: found two graders {name!r}, expected different names")
        named[name] = grader.model_copy(update={"name": name})
    return tuple(named.values())


_IGNORED = {
    "model": "left out, because --model decides",
    "allowed_tools": "left out, because the sandbox limits the agent",
}


def _list_left_out(document: Document) -> Iterator[str]:
    """Yield a text for each key of a file that has no effect, with its place."""
    for below in ((), ("execution",)):
        values = document.data.get("execution") if below else document.data
        for name, reason in _IGNORED.items():
            if isinstance(values, dict) and values.get(name):
                problem = document.problem((*below, name), f"found {values[name]!r:.60}, {reason}")
                yield str(document.error([problem]))
