"""Research reports (seed 003): queries, criteria, RACE, FACT, POET; items and commands.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

RESEARCH = Command(
    "score research reports: POET, RACE, FACT; select queries, make criteria",
    "pytest_agentbench.packs.research.commands",
)
SCRIPT = (
    "What a judge says of every research report.",
    "What it says of one in place of `research`, by item id.",
)
"""Descriptions of the script sections `research` and `researches`, for editors."""
