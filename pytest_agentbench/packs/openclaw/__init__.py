"""OpenClaw (seed 002): agents, their container, conversation and image.

Others use: nothing
"""

from pytest_agentbench.cli.commands import Command

OPENCLAW = Command(
    "build OpenClaw's image; make an agent from a live workspace", "pytest_agentbench.packs.openclaw.command"
)
