"""Variants of a session's cases: their effect, which identifies their runs, and its application to a case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from pytest_agentbench.config.case_file import refuses_tools
from pytest_agentbench.config.check_list import find_turn_problems
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.config.sections import find_settings_problems, map_servers
from pytest_agentbench.errors import ConfigError, UnavailableError
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.records.case import Case, Message, Model
from pytest_agentbench.sources.test_yaml import named_tools

if TYPE_CHECKING:
    from pytest_agentbench.config.variants import VariantFields

_DIGITS = 16
_EFFECT = (
    *("system", "append_system", "prompt", "parameters", "mcp_servers", "skills", "plugins", "agent", "runner", "case"),
)
"""Fields that can change a run or its verdict: texts of files are in `system` and `prompt`."""
_PROMPT = re.compile(r"\{\{\s*prompt\s*\}\}")
_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_FIELDS = {
    "runner": "runner",
    "input.messages": "messages",
    "input.turns": "turns",
    "input.context": "context",
    "deterministic_checks": "checks",
    **{name: name for name in ("expectations", "rubric", "metrics", "reference", "metadata", "thresholds")},
    **{name: name for name in ("require_hard", "report_only", "must_pass")},
}
"""Fields of `test.yaml` that the key `case` may change, with the attributes of the case."""


class VariantError(ConfigError):
    """A variant that cannot be applied to a case. `problem` is the same for all cases with the problem."""

    def __init__(self, variant: Variant, loc: Loc, text: str) -> None:
        self.problem = variant.locate(loc, text)
        super().__init__(self.problem)


@dataclass(frozen=True, eq=False)
class Variant:
    """A variant by its name, with the texts of its files. `path` declares it, None for the command line."""

    name: str
    fields: VariantFields
    path: Path | None = None

    @cached_property
    def effect(self) -> dict[str, Any]:
        """Return everything in which the variant differs from the case as it stands; {} if it is the case itself."""
        values = self.fields.model_dump(mode="json", include={*_EFFECT})
        effect = {name: value for name, value in values.items() if value not in (None, {}, [])}
        if self.fields.mcp_servers is not None:  # also an empty list: the case's servers are left out
            effect["mcp_servers"] = values["mcp_servers"]
        effect.pop("plugins", None)
        if (parts := self.fields.parts) is not None:  # by their content, and also an empty list
            effect["skills"] = {skill.name: skill.digest for skill in parts.skills}
            if parts.servers:
                effect["plugins"] = {name: server.model_dump(mode="json") for name, server in parts.servers.items()}
        if self.fields.aa:
            effect["aa"] = self.name
        return effect

    @cached_property
    def digest(self) -> str:
        """Return 16 hex digits over the effect, without the name."""
        return fingerprint(self.effect)[:_DIGITS]

    @property
    def adds_servers(self) -> bool:
        """Return whether it gives MCP servers to cases."""
        parts = self.fields.parts
        return bool(self.fields.mcp_servers) or (parts is not None and bool(parts.servers))

    def describe(self) -> dict[str, Any]:
        """Return its entry in report.json's `variants`."""
        changed = [name for name in _EFFECT if name in self.effect]
        return {"as_written": self.fields.as_written, "digest": self.digest, "changed": changed}

    def locate(self, loc: Loc, text: str) -> str:
        """Return `file:line:column: variants.NAME...: text`, or the option in place of the file."""
        if self.path is None:
            return ": ".join(filter(None, (f"--agentbench-variant {self.name}", ".".join(map(str, loc)), text)))
        return _locate_in_file(self.path, ("variants", self.name, *loc), text)

    def adapt_model(self, model: Model) -> Model:
        """Return the model with the variant's request parameters; null removes one of the model's own."""
        if not self.fields.parameters:
            return model
        merged = {**model.parameters, **self.fields.parameters}
        parameters = {name: value for name, value in merged.items() if value is not None}
        return model.model_copy(update={"parameters": parameters})

    def make_case(self, make: Callable[[], Case]) -> Case:
        """Return the case with the variant's changes.

        Raises VariantError if the case cannot have them, and UnavailableError if its runner cannot.
        """
        case = self._changed(self._prompted(make))
        for path, value in self.fields.case.items():
            case = self._with_value(case, path, value)
        if self.fields.case:
            self._require_turns(case)
        return case

    def _require_turns(self, case: Case) -> None:
        """Raise VariantError if a check or an expectation is about a turn that the changed case lacks."""
        for _, text in find_turn_problems(case.checks, case.expectations, len(case.turns)):
            raise VariantError(self, ("case",), f"a check's or an expectation's turn: {text}")

    def _prompted(self, make: Callable[[], Case]) -> Case:
        """Return the case with the variant's prompt: of a row the template, else the text of `{{ prompt }}`."""
        prompt = self.fields.prompt
        if prompt is None:
            return make()
        key = "prompt" if self.fields.prompt_file is None else "prompt_file"
        make_row: Callable[[str], Case] | None = getattr(make, "with_prompt", None)
        if make_row is not None:
            try:
                return make_row(prompt)
            except ValueError as error:
                raise VariantError(self, (key,), str(error)) from error
        case = make()
        if not _has_slot(case):
            raise VariantError(
                self, (key,), "the case has no {{ prompt }} in its messages; write it where the prompt belongs"
            )
        if isinstance(values := case.metadata.get("vars"), Mapping) and values:
            prompt = self._with_values(key, prompt, values)
        return case.model_copy(
            update={"messages": _fill_prompt(case.messages, prompt), "turns": _fill_prompt(case.turns, prompt)}
        )

    def _with_values(self, key: str, prompt: str, values: Mapping[str, Any]) -> str:
        """Return the prompt with the case's values in place of `{{ name }}`: texts as they are, others as JSON."""

        def text_of(match: re.Match[str]) -> str:
            if (name := match[1]) not in values:
                known = ", ".join(map(str, values))
                raise VariantError(self, (key,), f"the case's metadata.vars has no {name!r}; there is {known}")
            value = values[name]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return _NAME.sub(text_of, prompt)

    def require_prompt(self, make: Callable[[], Case]) -> None:
        """Raise VariantError if the case waits for the prompt of a variant and this variant has none.

        Rows have templates of their own. Called if another variant has a prompt: else the text stands for itself.
        """
        if self.fields.prompt is None and getattr(make, "with_prompt", None) is None and _has_slot(make()):
            raise VariantError(self, (), "has no prompt, and the case has {{ prompt }} in its messages; add one")

    def _changed(self, case: Case) -> Case:
        fields, changes = self.fields, dict[str, Any]()
        if fields.runner or fields.parameters:
            runner = {**case.runner.model_dump(), **fields.runner}
            if _runner_attribute(runner["type"], "sends_requests", default=True):  # else the gateway's model has them
                runner |= fields.parameters
            changes["runner"] = type(case.runner).model_validate(runner)
        runner_type = changes.get("runner", case.runner).type
        if fields.system is not None or fields.append_system is not None:
            if not _runner_attribute(runner_type, "takes_system_text", default=True):
                raise UnavailableError(f"variant {self.name}: the runner {runner_type} cannot set a system text")
            changes["messages"] = tuple(_with_system(case.messages, fields.system, fields.append_system))
        servers = None if fields.mcp_servers is None else map_servers(fields.mcp_servers)
        if fields.parts is not None:
            changes["skills"] = fields.parts.skills
            if fields.parts.servers:
                servers = {**fields.parts.servers, **(case.mcp_servers if servers is None else servers)}
        if servers is not None:
            if servers and refuses_tools(find_extension("runner", runner_type)):
                raise UnavailableError(
                    f"variant {self.name}: the runner {runner_type} has its own tools and cannot get MCP servers"
                )
            changes["mcp_servers"] = servers
        if changes:
            return case.model_copy(update=changes)
        return case

    def _with_value(self, case: Case, path: str, value: Any) -> Case:
        """Return the case with a value at a path of `test.yaml`."""
        top = next((name for name in _FIELDS if path == name or path.startswith(f"{name}.")), None)
        if top is None:
            raise VariantError(self, ("case", path), f"cannot be changed by a variant, unlike {', '.join(_FIELDS)}")
        attribute = _FIELDS[top]
        try:
            changed = _set_value(_as_data(getattr(case, attribute)), path.removeprefix(top).split(".")[1:], value)
            sparse = {"case_id": case.case_id, "title": case.title, "path": case.path, "runner": case.runner}
            field = getattr(Case.model_validate({**sparse, attribute: changed}), attribute)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise VariantError(
                self, ("case", path), f"{first['msg']} (at {'.'.join(map(str, first['loc']))})"
            ) from None
        except ValueError as error:
            raise VariantError(self, ("case", path), str(error)) from None
        if attribute == "runner" and (problems := find_settings_problems(field.overrides)):
            raise VariantError(self, ("case", path), problems[0][1])
        if attribute == "checks" and [check.check_id for check in field] != [check.check_id for check in case.checks]:
            raise VariantError(self, ("case", path), "changes the checks' ids, by which arms are compared")
        updated = case.model_copy(update={attribute: field})
        if attribute == "context":
            return updated.model_copy(update={"tools": named_tools(field)})
        return updated


@lru_cache(maxsize=64)  # the file is read for each, and 10,000 cases may have the same problem
def _locate_in_file(path: Path, loc: Loc, text: str) -> str:
    return str(make_located_error(path, [(loc, text)]))


def _runner_attribute(runner_type: str, name: str, *, default: bool) -> bool:
    return bool(getattr(find_extension("runner", runner_type), name, default))


def _has_slot(case: Case) -> bool:
    return any(_PROMPT.search(message.content) for message in (*case.messages, *case.turns))


def _fill_prompt(messages: tuple[Message, ...], prompt: str) -> tuple[Message, ...]:
    return tuple(
        message.model_copy(update={"content": _PROMPT.sub(lambda match: prompt, message.content)})
        for message in messages
    )


def _with_system(messages: tuple[Message, ...], system: str | None, appended: str | None) -> Iterator[Message]:
    """Yield the messages with this system text, or their own, and the appended text after it."""
    own = [message.content for message in messages if message.role == "system"]
    texts = own if system is None else [system]
    if appended is not None:
        texts = [*texts, appended]
    yield Message(role="system", content="\n\n".join(texts))
    yield from (message for message in messages if message.role != "system")


def _as_data(value: Any) -> Any:
    """Return a field of a case as plain data, with the members that its file has."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, tuple):
        return [_as_data(element) for element in value]
    return value


def _set_value(data: Any, steps: list[str], value: Any) -> Any:
    """Return the data with another value at the end of the steps. Raises ValueError for a step that leads nowhere."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(data, Mapping):
        if rest and step not in data:
            raise ValueError(f"the case has no {step!r} there")
        return {**data, step: _set_value(data.get(step), rest, value)}
    if isinstance(data, list):
        if not step.isdecimal() or int(step) >= len(data):
            raise ValueError(f"the case has no element {step!r} there: found {len(data)} elements, counted from 0")
        at = int(step)
        return [*data[:at], _set_value(data[at], rest, value), *data[at + 1 :]]
    raise ValueError(f"the case has no {step!r} there")
