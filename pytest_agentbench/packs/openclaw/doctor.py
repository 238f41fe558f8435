"""What OpenClaw needs on a machine, for `agentbench doctor`, and how it is had."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_agentbench.cli.doctor_needs import PackNeeds
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.packs.openclaw.profile import OPENCLAW
from pytest_agentbench.packs.openclaw.runs import engine_of, openclaw_spec
from pytest_agentbench.records.case import Case
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


def _containers(case: Case, profile: RunProfile, sandboxes: Sandboxes) -> Iterator[SandboxSpec]:
    if case.runner.type == "openclaw":
        yield openclaw_spec(sandboxes, profile)


def _engines(profile: RunProfile) -> Iterator[str]:
    block = profile.section(OPENCLAW)
    if block is not None and (engine := engine_of(block)) is not None:
        yield engine


NEEDS = PackNeeds(_containers, _engines)


def tell_building(program: str) -> str:
    """Return how the image of OpenClaw is made on this machine, for containers of that program."""
    engine = "" if program == "docker" else f" --engine {program}"
    return f"build it with `agentbench openclaw image{engine}` where it is OpenClaw's"
