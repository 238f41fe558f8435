"""Skills of agents: folders of instructions that an agent loads when it needs them."""

from hashlib import sha256
from pathlib import Path

from pydantic import StrictBool

from pytest_agentbench.records.base import HexId, Record, Text

SKILL_FILE = "SKILL.md"
"""The file of each skill: name and description as YAML between two lines `---`, then the instructions."""


class SkillTrigger(Record):
    """A skill, and whether the agent should use it for a case."""

    name: Text
    """The skill."""
    should_trigger: StrictBool
    """The agent should use it for this case; false: it should not."""
    scored: StrictBool = False
    """It decides the case in addition to the case's other checks; false: it decides only if there are none."""


class SkillFile(Record):
    """A file of a skill. `path` is relative to the skill's folder, `size` is in bytes."""

    path: str
    size: int
    sha256: HexId
    is_executable: bool = False


class Skill(Record):
    """A skill: its name and description, which models see first, and the files of its folder without `evals/`."""

    name: str
    description: str
    folder: Path
    files: tuple[SkillFile, ...]

    @property
    def digest(self) -> str:
        """Return the SHA-256 over paths, permissions to execute, and contents."""
        lines = (f"{file.sha256} {file.is_executable:d} {file.path}\n" for file in self.files)
        return sha256("".join(lines).encode()).hexdigest()
