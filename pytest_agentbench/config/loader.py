"""One file to one model, or one ConfigError with everything that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from pytest_agentbench.config.base import UNVERIFIED, Known, Problems, Scope, resolve_file, suggest
from pytest_agentbench.config.documents import Document, Loc, Problem, read, read_bytes
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.config.sections import whole_model
from pytest_agentbench.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

_SLUG = "a slug (lower-case letters, digits, '_' and '-', beginning with a letter or digit)"


def load(path: Path, kind: type[M], known: Known = UNVERIFIED) -> M:
    """The file as a model of `kind`. Names are verified against `known`.

    :raises ConfigError: with all problems of the file, one `file:line:column: field: ...` a line.
    """
    return load_in(path, kind, Scope(folder=str(path.parent), known=known))


def load_in(path: Path, kind: type[M], scope: Scope) -> M:
    """Like load, in a scope: with a root, the paths that the file names may not leave it."""
    document = read(path)
    if not isinstance(document.data, dict):
        found = "nothing" if document.data is None else f"a {_kind_of(document.data)}"
        raise ConfigError(f"{path}:1:1: found {found}, expected a top-level mapping that begins with schema_version: 1")
    model = validate(document, kind, scope)
    if isinstance(model, EvaluationProfile) and model.judge_system_prompt_path is not None:
        return model.model_copy(update=_prompt(model.judge_system_prompt_path, scope))
    return model


def validate(document: Document, kind: type[M] | TypeAdapter[M], scope: Scope) -> M:
    """The document's data as `kind`.

    :raises ConfigError: with all problems of the document.
    """
    adapter = kind.validate_python if isinstance(kind, TypeAdapter) else kind.model_validate
    problems = list(document.problems)
    try:
        model = adapter(document.data, context=scope)
    except ValidationError as error:
        problems += _explain(error, document, kind)
    if problems:
        raise document.error(problems)
    return model


def located(path: Path, problems: Iterable[tuple[Loc, str]]) -> ConfigError:
    """Problems of a file that were found later, at their places in it. The file is read again."""
    document = read(path)
    return document.error(document.problem(loc, message) for loc, message in problems)


def _prompt(name: str, scope: Scope) -> dict[str, Any]:
    """The prompt's text in place of its path, so that the profile means the same wherever it lies."""
    path = resolve_file(name, scope)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}:1:1: not UTF-8: {error.reason} at byte {error.start}; save the file as UTF-8"
        ) from error
    if not text.strip():
        raise ConfigError(f"{path}:1:1: found an empty file, expected the judge's system prompt")
    return {"judge_system_prompt": text, "judge_system_prompt_path": None}


def _explain(error: ValidationError, document: Document, kind: type[M] | TypeAdapter[M]) -> Iterator[Problem]:
    for item in error.errors(include_url=False):
        loc = _written(item["loc"], document.data, missing=item["type"] == "missing")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            yield from (document.problem(loc + sub, message) for sub, message in cause.found)
        elif item["type"] == "extra_forbidden":
            yield document.problem(loc, f"{item['msg']}{_allowed(loc, kind)}", at_key=True)
        elif item["type"] == "missing":
            yield document.problem(loc, "found nothing, expected a value: Field required")
        else:
            yield document.problem(loc, _sentence(item["type"], item["msg"], item["input"], cause))


def _sentence(kind: str, message: str, found: Any, cause: object) -> str:
    """`found X, expected Y` of one pydantic error."""
    if isinstance(cause, ValueError):
        return str(cause)
    if kind == "string_pattern_mismatch":
        return f"found {_short(found)}, expected {_SLUG}"
    expected = re.sub(r"^(Input|String|List|Tuple|Dictionary|Value) should (be |have )?", "", message)
    expected = re.sub(r" or instance of \w+$", "", expected).replace("dictionary", "mapping").replace("tuple", "list")
    return f"found {_short(found)}, expected {expected}"


def _short(value: Any) -> str:
    text = f"a {_kind_of(value)}" if isinstance(value, dict | list) and len(repr(value)) > 60 else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind_of(value: Any) -> str:
    kinds: dict[type, str] = {dict: "mapping", list: "list", str: "text"}
    return kinds.get(type(value), type(value).__name__)


def _written(loc: Loc, data: Any, *, missing: bool) -> Loc:
    """The way as the file writes it: pydantic's has the names of union members and of key errors too."""
    way: list[int | str] = []
    for index, part in enumerate(loc):
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            way.append(part)
        elif missing and index == len(loc) - 1:
            way.append(part)
    return tuple(way)


def _allowed(loc: Loc, kind: type[M] | TypeAdapter[M]) -> str:
    """What could have been meant by an unknown field, by the JSON Schema of what stands there."""
    schema = kind.json_schema() if isinstance(kind, TypeAdapter) else whole_model(kind).model_json_schema()
    definitions = schema.get("$defs", {})
    nodes = [schema]
    for part in loc[:-1]:
        nodes = [below for node in nodes for below in _step(node, part, definitions)]
    names = {name for node in nodes for flat in _flat(node, definitions) for name in flat.get("properties", {})}
    return suggest(str(loc[-1]), names) if names else ""


def _flat(node: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema with its references and alternatives followed."""
    if "$ref" in node:
        yield from _flat(definitions[node["$ref"].rpartition("/")[2]], definitions)
    for alternative in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _flat(alternative, definitions)
    yield node


def _step(node: dict[str, Any], part: int | str, definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for flat in _flat(node, definitions):
        if isinstance(part, int) and isinstance(flat.get("items"), dict):
            yield flat["items"]
        elif part in flat.get("properties", {}):
            yield flat["properties"][part]
        elif isinstance(flat.get("additionalProperties"), dict):
            yield flat["additionalProperties"]
        else:
            yield from flat.get("patternProperties", {}).values()
