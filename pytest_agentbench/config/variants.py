"""Variants of cases as suites, run profiles and the command line declare them: a closed list of changes by name."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PrivateAttr, StrictBool, TypeAdapter, model_validator

from pytest_agentbench.config.base import LocalFile, LocalFolder, Scope, complain, resolve_file, validate
from pytest_agentbench.config.documents import Loc, parse_yaml, read_bytes
from pytest_agentbench.config.sections import CaseServers, RequestParameters, SettingsLayer
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import Record, Text

if TYPE_CHECKING:
    from pytest_agentbench.config.agent_parts import AgentParts

MOST_VARIANTS = 20
"""Variants of one suite, run profile or command line."""
MAX_OVERRIDES = 64 * 1024
"""Bytes of one variant as JSON, and of a file that it names."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_RESERVED = frozenset({"and", "or", "not"})
_REPETITION = re.compile(r"-r[0-9]+$")
_EITHER = (("system", "system_file"), ("prompt", "prompt_file"))


def name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of a variant, or None."""
    if _NAME.fullmatch(name) is None:
        return f"found {name[:60]!r}, expected up to 40 letters, digits and '_.-', beginning with a letter or digit"
    if name.lower() in _RESERVED:
        return f"found {name!r}, which is a word of pytest's -k; choose another name"
    if _REPETITION.search(name):
        return f"found {name!r}, which ends like a repetition's id; choose another name"
    return None


class VariantFields(Record):
    """Changes that make a variant of a case. An empty mapping is the case as it stands."""

    title: Text | None = None
    """For people."""
    system: Text | None = None
    """System message in place of the case's own, or in addition to its messages if it has none."""
    system_file: LocalFile | None = None
    """A file with the system message; relative to this file."""
    append_system: Text | None = None
    """Text after the system message; without one it is the system message."""
    prompt: Text | None = None
    """Template of a dataset's rows in place of their own; in a `test.yaml` the text of `{{ prompt }}`, with
    `{{ name }}` for values of the case's `metadata.vars`."""
    prompt_file: LocalFile | None = None
    """A file with the prompt; relative to this file."""
    parameters: RequestParameters = Field(default_factory=dict)
    """Request parameters, such as temperature; they win over those of model, run profile and case."""
    mcp_servers: CaseServers | None = None
    """MCP servers in place of the case's own."""
    skills: tuple[LocalFolder, ...] | None = None
    """Folders of skills, or folders of such folders, in place of the case's own skills; relative to this file."""
    plugins: Annotated[tuple[LocalFolder, ...], Field(min_length=1)] | None = None
    """Folders of plugins: their skills, in addition to `skills`, and their MCP servers, in addition to the case's or
    the variant's; relative to this file."""
    agent: Text | None = None
    """Agent of cases with the runner `agent`, in place of theirs."""
    runner: SettingsLayer = Field(default_factory=dict)
    """Fields of the case's `runner`."""
    case: dict[Text, Any] = Field(default_factory=dict)
    """Other fields of the case: a dotted path of `test.yaml`, such as `runner.max_turns`, and its value."""
    aa: StrictBool = False
    """Compare a variant with an equal one, to see what chance alone does."""
    _parts: "AgentParts | None" = PrivateAttr(default=None)

    @property
    def parts(self) -> "AgentParts | None":
        """Return the content of `skills` and `plugins` once `read_files` has read it, None if both are missing."""
        return self._parts

    @model_validator(mode="after")
    def _check(self) -> Self:
        found: list[tuple[Loc, str]] = [
            ((file_field,), f"Specify only one of {text!r} and {file_field!r}")
            for text, file_field in _EITHER
            if getattr(self, text) is not None and getattr(self, file_field) is not None
        ]
        size = len(json.dumps(self.model_dump(mode="json", exclude_unset=True)).encode())
        if size > MAX_OVERRIDES:
            found.append(((), f"found {size:,} bytes, expected at most {MAX_OVERRIDES:,}; put long texts into files"))
        complain(found)
        return self

    def read_files(self, scope: Scope) -> Self:
        """Return the fields with the texts of `system_file` and `prompt_file`, and with skills and plugins.

        Raises ConfigError.
        """
        texts = {
            name: _read_text(resolve_file(path, scope))
            for name, file_field in _EITHER
            if (path := getattr(self, file_field)) is not None
        }
        if not texts and self.skills is None and self.plugins is None:
            return self
        fields = self.model_copy(update=texts)  # a copy: the texts are not checked together with the names of files
        if self.skills is not None or self.plugins is not None:
            from pytest_agentbench.config.agent_parts import resolve_parts

            fields._parts = resolve_parts(self.skills or (), self.plugins or (), scope)
        return fields

    @property
    def as_written(self) -> dict[str, Any]:
        """Return the fields as JSON, as the file has them: files by their names."""
        texts = {text for text, file_field in _EITHER if getattr(self, file_field) is not None}
        return self.model_dump(mode="json", exclude_unset=True, exclude=texts)


def _read_text(path: Path) -> str:
    try:
        text = read_bytes(path, MAX_OVERRIDES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}:1:1: not UTF-8: {error.reason} at byte {error.start}; save as UTF-8") from error
    if not text.strip():
        raise ConfigError(f"{path}:1:1: found an empty file, expected the text of a message")
    return text.removesuffix("\n")


def find_variants_problems(variants: Mapping[str, VariantFields]) -> list[tuple[Loc, str]]:
    """Return the problems of names, and of too many variants."""
    found: list[tuple[Loc, str]] = [
        ((name,), problem) for name in variants if (problem := name_problem(name)) is not None
    ]
    if len(variants) > MOST_VARIANTS:
        found.append(((), f"found {len(variants)} variants, expected at most {MOST_VARIANTS}"))
    return found


def parse_variant(name: str, text: str, folder: Path) -> VariantFields:
    """Return a variant of the command line, whose YAML mapping is `text`; its paths are relative to `folder`.

    Raises ConfigError.
    """
    option = Path(f"--agentbench-variant {name}")
    document = parse_yaml(text.encode(), option)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{option}: found {text[:60]!r}, expected a YAML mapping such as {{system: Be brief.}}")
    scope = Scope(folder=str(folder))
    return validate(document, _ADAPTER, scope).read_files(scope)


_ADAPTER: TypeAdapter[VariantFields] = TypeAdapter(VariantFields)
