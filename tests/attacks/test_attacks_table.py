"""The tables of docs/security.md say what the tests show."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from attacks_support import SECURITY, rows

TESTS = "\n".join(file.read_text(encoding="utf-8") for file in Path(__file__).parents[1].rglob("test_*.py"))
OUTCOMES = ("held", "limits only", "not isolated", "shown")
HELD_IN_LOCAL = {"everywhere": True, "isolated": False, "by_version": True, "once": True}
"""What tests of verifiers show of `local` by their decorators; the last two: the kind of sandbox has no part in it."""


@pytest.mark.slow
def test_every_attack_has_an_outcome_and_a_test() -> None:
    found = list(rows())
    assert len({row.attack for row in found}) == len(found) > 30
    for row in found:
        assert {*row.outcomes.values()} <= {*OUTCOMES}, row
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


def test_the_numbers_of_attacks_are_those_of_the_tables() -> None:
    counts: dict[str, Counter[str]] = {}
    for row in rows():
        for column, outcome in row.outcomes.items():
            name = row.section if column == "outcome" else f"{row.section}: {column}"
            counts.setdefault(name, Counter())[outcome] += 1
    lines = [
        f"| {name} | {count.total()} | {' | '.join(str(count[outcome]) for outcome in OUTCOMES)} |"
        for name, count in counts.items()
    ]
    head = f"| table | attacks | {' | '.join(OUTCOMES)} |"
    _, _, numbers = SECURITY.read_text(encoding="utf-8").partition("## Attacks in numbers\n")
    table = re.findall(r"^\|.*$", numbers.partition("\n#")[0], re.MULTILINE)
    assert table == [head, "|---|---|---|---|---|---|", *lines]
