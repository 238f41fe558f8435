"""The mechanical checks over the 56 tasks of MCP-Bench: people have looked at these, so most of them pass."""

from __future__ import annotations

import pytest
from synthesis_samples import DATA, real_catalogues, real_tasks

from pytest_agentbench.packs.mcp_bench.synthesis.base import Generated, is_calculator
from pytest_agentbench.packs.mcp_bench.synthesis.checks import find_detailed_problems, find_fuzzy_problems

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the data of MCP-Bench does not lie beside this checkout")

REJECTED = {
    "huge_icons_001": ["name"],  # "Hugeicons"
    "hugging_face_001": ["name"],
    "nixos_000": ["name"],
    "nixos_001": ["name"],
    "osint_intelligence_000": ["unused server"],  # it writes "WHOIS lookup", not the tool's name
    "medical_calculator_000": ["absolute date", "absolute date", "lost number"],  # 2024-02-15 in both texts
    "medical_calculator_001": ["lost number"],  # the 1.2 and 1.73 of formulas
}
CALCULATING = {"Unit Converter", "Math MCP", "Medical Calculator", "Scientific Computing"}


@pytest.mark.slow
def test_most_real_tasks_pass() -> None:
    catalogues, rejected = real_catalogues(), {}
    tasks = real_tasks()
    for server, task in tasks:
        own = [catalogues[server]]
        detailed, fuzzy = task["task_description"], task["fuzzy_description"]
        generated = Generated(task_description=detailed, dependency_analysis=task["dependency_analysis"])
        exact = is_calculator(own[0], None)
        found = [
            *(find_detailed_problems(generated, own, ()) if own[0].tools else ()),
            *find_fuzzy_problems(detailed, fuzzy, own, (), exact=exact),
        ]
        if found:
            rejected[task["task_id"]] = [reason.kind for reason in found]
    assert len(tasks) == 56
    assert rejected == REJECTED


def test_which_of_its_servers_calculate() -> None:
    assert {name for name, catalogue in real_catalogues().items() if is_calculator(catalogue, None)} == CALCULATING
