"""Research reports (seed 003): queries, criteria, RACE, FACT, POET; items and commands.

Others use: cases, grading, items, records, reports_file, session
"""

from pytest_agentbench.cli.commands import Command

RESEARCH = Command(
    "score research reports: POET, RACE, FACT; select queries, make criteria",
    "pytest_agentbench.packs.research.commands",
)
