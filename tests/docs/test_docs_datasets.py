"""The page on datasets names every field of a descriptor."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_agentbench.config.dataset_file import DatasetDescriptor, FewShot, RowFields

PAGE = Path(__file__).parents[2] / "docs" / "datasets.md"


def test_every_field_of_a_descriptor_is_in_the_table():
    table = PAGE.read_text(encoding="utf-8").partition("### Its fields\n\n")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(DatasetDescriptor.model_fields)
    for name in (*RowFields.model_fields, *FewShot.model_fields):
        assert f"`{name}" in table
