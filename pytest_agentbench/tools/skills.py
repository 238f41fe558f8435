"""Skills for chat models: their names and descriptions in the system text, and a tool that returns the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_agentbench.config.skills import MOST_TEXT, read_instructions, read_skill_file
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.records.skill_uses import SKILL_EVENT
from pytest_agentbench.records.skills import SKILL_FILE, Skill
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput, object_schema

VERSION = 1
"""Version of the texts for models, part of the fingerprints of runs with skills: raised if a text changes."""

NAME = "skill"
_HEAD = (
    "Skills are instructions for special tasks. If one fits the task, call the tool `skill` with its name and follow "
    "the instructions that it returns."
)


def describe_skills(skills: Sequence[Skill]) -> str:
    """Return the text that offers the skills to a model, by their names and descriptions."""
    lines = [f"- {skill.name}: {' '.join(skill.description.split())}" for skill in skills]
    return "\n".join([_HEAD, "<available_skills>", *lines, "</available_skills>"])


def describe_instructions(skill: Skill) -> str:
    """Return the instructions of a skill that the user calls for. Raises ConfigError if the skill has changed."""
    return f'<skill name="{skill.name}">\n{read_instructions(skill)}{_list_files(skill)}\n</skill>'


def _list_files(skill: Skill) -> str:
    """Return the list of a skill's other files, an empty text if it has none."""
    if others := [file.path for file in skill.files if file.path != SKILL_FILE]:
        return "\n\nFiles of this skill, which the argument `path` reads:\n" + "\n".join(others)
    return ""


def make_skill_tool(skills: Sequence[Skill]) -> Tool:
    """Return the tool that returns the instructions of a skill, or one of its files."""
    by_name = {skill.name: skill for skill in skills}

    async def call(arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        skill = by_name.get(arguments["name"])
        if skill is None:
            return _fail(f"there is no skill {arguments['name']!r}; there is {', '.join(by_name)}")
        try:
            if (path := arguments.get("path")) not in (None, "", SKILL_FILE):
                return _read_file(skill, path)
            text = read_instructions(skill) + _list_files(skill)
        except ConfigError as error:  # not an error for the model: the file is another one now
            raise InfrastructureError(str(error)) from error
        context.note(SKILL_EVENT, skill=skill.name, fact="attempted")
        context.note(SKILL_EVENT, skill=skill.name, fact="loaded")
        return ToolOutput(text)

    parameters = object_schema(
        ["name"],
        name={"type": "string", "description": "Name of the skill."},
        path={"type": "string", "description": "A file of the skill; by default its instructions."},
    )
    return Tool(NAME, "Return the instructions of a skill, or one of its files.", parameters, call, reads_only=True)


def _read_file(skill: Skill, path: str) -> ToolOutput:
    """Return a text file of a skill. Only files that were found in its folder have an answer."""
    file = next((file for file in skill.files if file.path == path.removeprefix("./")), None)
    if file is None:
        return _fail(f"the skill {skill.name} has no file {path!r}")
    if file.size > MOST_TEXT:
        return _fail(f"{path} has {file.size:,} bytes, and at most {MOST_TEXT:,} are returned")
    try:
        return ToolOutput(read_skill_file(skill, file).decode("utf-8"))
    except UnicodeDecodeError:
        return _fail(f"{path} is no UTF-8 text")


def _fail(reason: str) -> ToolOutput:
    return ToolOutput(f"error: {reason}", is_error=True)
