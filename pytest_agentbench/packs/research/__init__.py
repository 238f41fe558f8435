"""Research reports (seed 003): queries, criteria, RACE, FACT, POET; items and commands.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

RESEARCH = Command(
    "score research reports: POET, RACE, FACT; select queries, make criteria",
    "pytest_agentbench.packs.research.commands",
)
SCRIPT = (
    "Scripted replies of a judge to every research report.",
    "Replies that replace `research` for single reports, by item id.",
)
"""Descriptions of the script sections `research` and `researches`, for editors."""
