"""A run's use of skills: the facts about them in its trace."""

from dataclasses import dataclass
from typing import Literal

from pytest_agentbench.records.run import RunArtifact, RunnerEvent

SKILL_EVENT = "skill"
"""Name of the runner event of a SkillFact. Its data are `skill`, the name, and `fact`."""

SkillFact = Literal["listed", "attempted", "loaded"]
"""listed: the model could choose the skill. attempted: it called for the skill. loaded: it got the instructions."""


@dataclass(slots=True)
class SkillUse:
    """Use of a skill in a run: whether the model could choose it, and how often it called for it and got it."""

    listed: bool = False
    attempted: int = 0
    loaded: int = 0


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
    return uses
