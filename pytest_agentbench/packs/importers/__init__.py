"""Import: case files of other tools become cases and datasets of ours."""

from pytest_agentbench.cli.commands import Command

IMPORT = Command(
    "turn case files of DeepEval, Inspect or promptfoo into cases", "pytest_agentbench.packs.importers.command"
)
