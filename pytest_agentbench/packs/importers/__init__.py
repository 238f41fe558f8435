"""Import: case files of other tools become cases and datasets of ours.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

IMPORT = Command(
    "turn case files of DeepEval, Inspect or promptfoo into cases", "pytest_agentbench.packs.importers.command"
)
