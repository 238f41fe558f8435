"""The tables of docs/security.md say what the tests show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attacks_support import rows

TESTS = "\n".join(file.read_text(encoding="utf-8") for file in Path(__file__).parents[1].rglob("test_*.py"))
OUTCOMES = {"held", "limits only", "not isolated", "shown"}
HELD_IN_LOCAL = {"everywhere": True, "isolated": False, "by_version": True, "once": True}
"""What tests of verifiers show of `local` by their decorators; the last two: the kind of sandbox has no part in it."""


@pytest.mark.slow
def test_every_attack_has_an_outcome_and_a_test() -> None:
    found = list(rows())
    assert len({row.attack for row in found}) == len(found) > 30
    for row in found:
        assert set(row.outcomes.values()) <= OUTCOMES, row
        tests = re.findall(rf"^def {row.test}\(", TESTS, re.MULTILINE)
        assert len(tests) == 1, f"{row.test}: found {len(tests)} tests of that name"


@pytest.mark.slow
def test_every_sandbox_of_a_row_is_tried() -> None:
    for row in rows():
        if "local" not in row.outcomes:
            continue
        above = rf"^@(attack|everywhere|isolated|by_version|once)\n(?:(?!def ).*\n)*def {row.test}\("
        [decorator] = re.findall(above, TESTS, re.MULTILINE)
        if decorator != "attack":  # which takes its sandboxes from the row
            held = {kind: outcome == "held" for kind, outcome in row.outcomes.items()}
            assert held == {"docker": True, "bubblewrap": True, "local": HELD_IN_LOCAL[decorator]}, row
