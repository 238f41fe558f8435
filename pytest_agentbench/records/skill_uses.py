"""A run's use of skills: the facts about them in its trace."""

import re
from dataclasses import dataclass
from typing import Literal

from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunArtifact, RunnerEvent
from pytest_agentbench.records.skills import Skill

SKILL_EVENT = "skill"
"""Name of the runner event of a SkillFact. Its data are `skill`, the name, and `fact`."""

SkillFact = Literal["listed", "attempted", "loaded", "explicit"]
"""listed: the model could choose the skill. attempted: it called for the skill. loaded: it got the instructions.
explicit: the user called for it in a message, by `$NAME` or `/NAME`."""


@dataclass(slots=True)
class SkillUse:
    """Use of a skill in a run: whether the model could choose it, and how often it called for it and got it.

    `explicit`: a message of the user called for it.
    """

    listed: bool = False
    attempted: int = 0
    loaded: int = 0
    explicit: bool = False


def is_trigger_case(case: Case) -> bool:
    """Return whether a case only decides whether a skill is used."""
    if case.skill is None or case.verify or case.metrics or case.rubric or case.reference or case.golds:
        return False
    if case.expectations.hard_expectations or case.expectations.soft_expectations:
        return False
    return [check.kind for check in case.checks] == ["skill_used"]


def find_calls(case: Case, skill: Skill) -> list[str]:
    """Return the user's messages of a case that call for the skill by `$NAME`, `/NAME` or `/PLUGIN:NAME`.

    A path such as `/NAME/file` or `/NAME.txt` is no call.
    """
    call = re.compile(rf"(?<![^\s(\"'`])[$/](?:[\w-]+:)?{re.escape(skill.name)}(?![\w/:-]|\.\w)")
    texts = (message.content for message in (*case.messages, *case.turns) if message.role == "user")
    return [text for text in texts if call.search(text)]


def read_skill_uses(artifact: RunArtifact) -> dict[str, SkillUse]:
    """Return the use of each skill of a run by name, or {} for a run without skills."""
    names = artifact.request.get("skills")
    if not isinstance(names, list):
        return {}
    uses = {str(name): SkillUse() for name in names}
    for event in artifact.trace:
        if not isinstance(event, RunnerEvent) or event.name != SKILL_EVENT:
            continue
        if (use := uses.get(str(event.data.get("skill")))) is None:
            continue
        fact = event.data.get("fact")
        use.listed |= fact == "listed"
        use.attempted += fact == "attempted"
        use.loaded += fact == "loaded"
        use.explicit |= fact == "explicit"
    return uses
