"""Export: the results of a session as files that other tools read.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

EXPORT = Command(
    "write results as logs of Inspect or as rows of Every Eval Ever", "pytest_agentbench.packs.exporters.command"
)
