"""Evals of skills, as their authors write them: `evals/evals.json` and sets of queries that should trigger a skill.

Others use: nothing
"""

from pytest_agentbench.pack import Pack
from pytest_agentbench.seams import SourceFiles

_WORDS = ['"evals"', '"should_trigger"', '"expected_output"', '"expectations"', '"skills"']
PACK = Pack(
    "skill_evals",
    case_sources={"skill_evals": SourceFiles(f"{__name__}.cases:EVALS", ["*.json"], _WORDS)},
    case_parts={"skill_eval": f"{__name__}.entries:SkillEval"},
)
