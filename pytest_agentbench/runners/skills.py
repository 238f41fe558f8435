"""Offer skills to a model, give them to an agent's program, and record their use in the trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.config.agent_file import SkillsPlace
from pytest_agentbench.config.skills import MOST_TEXT, read_instructions, read_skill_file
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.skill_uses import SKILL_EVENT, SkillFact, find_calls
from pytest_agentbench.records.skills import SKILL_FILE, Skill
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.tools.skills import describe_instructions, describe_skills

Messages = Sequence[Mapping[str, Any]]

_DESCRIPTION = 40
"""Characters of a description by which a list of skills is recognised: some programs cut the rest."""
_BODY = 200
"""Characters of the instructions by which they are recognised in a request, white space ignored."""
_LEAST_BODY = 20
"""Instructions with fewer characters are too short to be recognised: any result of their call counts."""
_PROJECT_SKILLS = (f".*/skills/*/{SKILL_FILE}", f".*/skill/*/{SKILL_FILE}")
"""Places of a project's skills, such as `.claude/skills/pdf/SKILL.md`."""
_NAME_LINE = re.compile(rb"""^name:[ \t]*["']?([^\s"'#]+)""", re.MULTILINE)
_MOST_MESSAGES = 200
"""Maximum messages of a request that are looked at, from its end."""


def offer_skills(messages: Messages, case: Case, trace: Recorder) -> list[dict[str, Any]]:
    """Return the messages with the names and descriptions of the case's skills at the end of the system text.

    The last message of the user that calls for a skill has the skill's instructions at its end. Raises
    InfrastructureError for a changed skill.
    """
    text = describe_skills(case.skills)
    trace.request["skills"] = [skill.name for skill in case.skills]
    copies = [dict(message) for message in messages]
    for skill in case.skills:
        trace.event(SKILL_EVENT, skill=skill.name, fact="listed")
        if calls := find_calls(case, skill):
            trace.event(SKILL_EVENT, skill=skill.name, fact="explicit")
            trace.event(SKILL_EVENT, skill=skill.name, fact="loaded")
            texts = [message for message in copies if message["role"] == "user"]
            calling = next(message for message in reversed(texts) if message["content"].startswith(calls[-1]))
            calling["content"] += "\n\n" + _instructions_of(skill)
    system = next((message for message in copies if message["role"] == "system"), None)
    if system is None:
        return [{"role": "system", "content": text}, *copies]
    system["content"] = f"{system['content']}\n\n{text}"
    return copies


def _instructions_of(skill: Skill) -> str:
    try:
        return describe_instructions(skill)
    except ConfigError as error:
        raise InfrastructureError(str(error)) from error


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file of a skill for the agent's program. `path` has {home} in it."""

    path: str
    content: bytes
    is_executable: bool


def list_skill_files(skills: Sequence[Skill], place: SkillsPlace) -> Iterator[PlacedFile]:
    """Yield the files of the skills, each skill in a folder of its name. Raises InfrastructureError for a changed
    file.
    """
    for skill in skills:
        for file in skill.files:
            try:
                content = read_skill_file(skill, file)
            except ConfigError as error:
                raise InfrastructureError(str(error)) from error
            yield PlacedFile(f"{place.folder}/{skill.name}/{file.path}", content, file.is_executable)


def refuse_workspace_skills(case: Case, workspace: Path) -> None:
    """Raise InfrastructureError if the workspace brings a skill with the name of one of the case's skills.

    Programs look for skills in hidden folders of their project. Such a run does not show which skill was used.
    """
    names = {skill.name for skill in case.skills}
    for path in sorted(place for pattern in _PROJECT_SKILLS for place in workspace.glob(pattern)):
        for name in names & {path.parent.name, _read_name(path)}:
            raise InfrastructureError(
                f"the workspace brings a skill {name} of its own ({path.relative_to(workspace)}), so the run would not "
                "show which one is used; remove it from the workspace, or rename one"
            )


def _read_name(path: Path) -> str | None:
    try:
        match = _NAME_LINE.search(read_file(path, MOST_TEXT))
    except OSError:
        return None
    return None if match is None else match[1].decode("utf-8", "replace")


@dataclass(slots=True)
class _Watched:
    """A skill with the texts by which it is recognised, and the facts of the run. `calls` maps ids of calls for it to
    whether the agent's own tool for skills was called.
    """

    skill: Skill
    description: str
    body: str
    is_listed: bool = False
    is_loaded: bool = False
    calls: dict[str, bool] = field(default_factory=dict)
    loaded_calls: set[str] = field(default_factory=set)
    failure: str | None = None


class SkillWatch:
    """Recognises in an agent's requests which skills it was offered, called for, and got.

    All programs are read in the same way, by what their model sees, because each reports skills differently or not.
    """

    def __init__(self, case: Case, place: SkillsPlace, trace: Recorder) -> None:
        self._place = place
        self._trace = trace
        self._has_asked = False
        self._skills = [
            _Watched(skill, _squeeze(skill.description)[:_DESCRIPTION], _squeeze(read_instructions(skill))[:_BODY])
            for skill in case.skills
        ]
        trace.request["skills"] = [skill.name for skill in case.skills]
        for watched in self._skills:
            if find_calls(case, watched.skill):
                self._note(watched, "explicit")

    def observe(self, messages: Messages, tools: Sequence[Mapping[str, Any]]) -> None:
        """Record new facts of a request. Requests without tools, such as for a title, offer no skills."""
        if not tools:
            return
        names = {str(tool.get("function", {}).get("name")) for tool in tools}
        if not self._has_asked and (self._place.tool is None or self._place.tool in names):
            self._find_listed(messages, tools)
        self._has_asked = True
        for message in messages[-_MOST_MESSAGES:]:
            self._find_calls(message)
            self._find_bodies(message)

    def require_listed(self) -> None:
        """Raise InfrastructureError if the agent was not offered a skill, or could not load it with its own tool.

        Such a run does not show whether the skill is used.
        """
        for watched in self._skills:
            name = watched.skill.name
            if self._has_asked and not (watched.is_listed or watched.is_loaded):
                raise InfrastructureError(
                    f"the skill {name} was not offered to the agent: its first request with tools has no list with it"
                )
            if watched.failure is not None and not watched.is_loaded:
                raise InfrastructureError(
                    f"the skill {name} could not be loaded: {self._place.tool}: {watched.failure}"
                )

    def _find_listed(self, messages: Messages, tools: Sequence[Mapping[str, Any]]) -> None:
        """Find the list of skills: in the system text, in a reminder of the user's, or in a tool's description."""
        described = [str(tool.get("function", {}).get("description", "")) for tool in tools]
        text = _squeeze(" ".join([*map(message_text, messages), *described]))
        for watched in self._skills:
            if _squeeze(watched.skill.name) in text and watched.description in text:
                watched.is_listed = True
                self._note(watched, "listed")

    def _find_calls(self, message: Mapping[str, Any]) -> None:
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            call_id, arguments = str(call.get("id")), str(function.get("arguments"))
            is_own_tool = function.get("name") == self._place.tool
            for watched in self._skills:
                if call_id in watched.calls:
                    continue
                name = watched.skill.name
                called = is_own_tool and self._names(arguments, name)
                if called or f"{name}/{SKILL_FILE}" in arguments:
                    watched.calls[call_id] = called
                    self._note(watched, "attempted")

    def _names(self, arguments: str, name: str) -> bool:
        """Return whether the arguments of the skill tool name the skill; a plugin's is `PLUGIN:NAME`."""
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict) and str(value.get(self._place.argument or "")).rpartition(":")[2] == name

    def _find_bodies(self, message: Mapping[str, Any]) -> None:
        """Find instructions in a tool's result, or in a text of the user's role, where some programs put them."""
        if message.get("role") not in ("tool", "user"):
            return
        call_id = str(message.get("tool_call_id"))
        text: str | None = None
        for watched in self._skills:
            if call_id in watched.loaded_calls or (message["role"] == "user" and watched.is_loaded):
                continue
            text = _squeeze(message_text(message)) if text is None else text
            is_short = len(watched.body) < _LEAST_BODY
            if (is_short and call_id in watched.calls) or (not is_short and watched.body in text):
                watched.is_loaded = True
                watched.loaded_calls.add(call_id)
                self._note(watched, "loaded")
            elif watched.calls.get(call_id):
                watched.failure = " ".join(message_text(message).split())[:200]

    def _note(self, watched: _Watched, fact: SkillFact) -> None:
        self._trace.event(SKILL_EVENT, skill=watched.skill.name, fact=fact)


def _squeeze(text: str) -> str:
    """Return the text without white space, which programs change."""
    return "".join(text.split())
