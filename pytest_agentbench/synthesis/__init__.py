"""Task synthesis (seed 004, 4.2): tasks for MCP servers, made by a model, checked mechanically and by a gate.

`Synthesis` makes the tasks of a `TaskFile`; `Drafts` keeps what was paid for, so that a killed process goes on.
"""

from pytest_agentbench.synthesis.asking import CASE_ID, Asking
from pytest_agentbench.synthesis.base import (
    STAGES,
    Catalogue,
    Combination,
    Generated,
    Quality,
    Reason,
    Verdict,
)
from pytest_agentbench.synthesis.checks import detailed_problems, fuzzy_problems
from pytest_agentbench.synthesis.combinations import combination_of, read_combinations
from pytest_agentbench.synthesis.drafts import SUFFIX as DRAFTS_SUFFIX
from pytest_agentbench.synthesis.drafts import Drafts
from pytest_agentbench.synthesis.jobs import Job, jobs_of
from pytest_agentbench.synthesis.prompting import WORDINGS
from pytest_agentbench.synthesis.synthesis import Outcome, Synthesis
from pytest_agentbench.synthesis.task_file import TaskFile

__all__ = [
    "CASE_ID",
    "DRAFTS_SUFFIX",
    "STAGES",
    "WORDINGS",
    "Asking",
    "Catalogue",
    "Combination",
    "Drafts",
    "Generated",
    "Job",
    "Outcome",
    "Quality",
    "Reason",
    "Synthesis",
    "TaskFile",
    "Verdict",
    "combination_of",
    "detailed_problems",
    "fuzzy_problems",
    "jobs_of",
    "read_combinations",
]
