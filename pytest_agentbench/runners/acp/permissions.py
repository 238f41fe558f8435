"""Answer an agent's requests for permission by the policy of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from pytest_agentbench.runners.acp.fields import PermissionRule, Permissions

_KINDS = {"allow": ("allow_once", "allow_always"), "deny": ("reject_once", "reject_always")}
_MOST_OPTIONS = _MOST_NAMES = 20
_SHOWN = 500


@dataclass(slots=True)
class CallReport:
    """The agent's reports about one tool call. A call, an update or a request for permission may be the first.

    `names` are names of the tool, for which agents use different fields, and some have a title only. `paths` are its
    files.
    """

    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None
    names: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def add(self, report: Mapping[str, Any]) -> None:
        """Add a report. Its members replace earlier ones."""
        for name in ("title", "kind", "status"):
            if isinstance(value := report.get(name), str) and value:
                setattr(self, name, value[:_SHOWN])
        self.names = [*dict.fromkeys([*_list_names(report), *self.names])][:_MOST_NAMES]
        self.paths = [*dict.fromkeys([*_list_paths(report), *self.paths])][:_MOST_NAMES]

    def describe(self) -> dict[str, Any]:
        """Return the call for the trace."""
        tool = self.names[0][:_SHOWN] if self.names else None
        values = {"tool_call_id": self.tool_call_id, "tool": tool, "title": self.title}
        return {**values, "kind": self.kind, "status": self.status}


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer to a request for permission. `option` is the id of the chosen option, None if none fits.

    `kind` is the option's kind, or `cancelled`. `rule` is the index of the rule that decided.
    """

    option: str | None
    kind: str
    rule: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return the reply in the form of the protocol."""
        if self.option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": self.option}}


def decide(
    policy: Permissions, rules: Sequence[PermissionRule], call: CallReport, options: Sequence[Mapping[str, Any]]
) -> Decision:
    """Return the answer for a tool call. Options are chosen by their kind, because agents name them freely."""
    answer, rule = ("deny" if policy == "deny" else "allow"), None
    if policy == "ask-recorded":
        rule = next((number for number, each in enumerate(rules) if _matches(each, call)), None)
        if rule is not None:
            answer = rules[rule].answer
    for kind in _KINDS[answer]:
        for option in options:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return Decision(option["optionId"], kind, rule)
    return Decision(None, "cancelled", rule)


def list_options(params: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the options of a request, with their texts shortened. Malformed options are left out."""
    options = params.get("options")
    if not isinstance(options, list):
        return []
    return [
        {name: str(option[name])[:_SHOWN] for name in ("optionId", "name", "kind") if name in option}
        for option in options[:_MOST_OPTIONS]
        if isinstance(option, Mapping)
    ]


def _matches(rule: PermissionRule, call: CallReport) -> bool:
    if rule.tool is not None:
        return any(fnmatchcase(name, rule.tool) for name in (*call.names, call.title or ""))
    if rule.kind is not None:
        return call.kind == rule.kind
    return any(fnmatchcase(path, rule.path or "") for path in call.paths)


def _list_names(call: Mapping[str, Any]) -> Iterator[str]:
    raw, meta = call.get("rawInput"), call.get("_meta")
    if isinstance(raw, Mapping) and isinstance(raw.get("server"), str) and isinstance(raw.get("tool"), str):
        yield f"{raw['server']}:{raw['tool']}"
    names = [call.get("name"), meta.get("toolName") if isinstance(meta, Mapping) else None]
    yield from (name for name in names if isinstance(name, str))


def _list_paths(call: Mapping[str, Any]) -> Iterator[str]:
    raw = call.get("rawInput")
    if isinstance(raw, Mapping):
        yield from (raw[name] for name in ("path", "file_path", "filePath") if isinstance(raw.get(name), str))
    for member in ("locations", "content"):
        items = call.get(member)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, Mapping) and isinstance(item.get("path"), str):
                yield item["path"]
