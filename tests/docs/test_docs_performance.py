"""docs/performance.md says what the newest record of benchmarks/results/ says, and records are compared as promised."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.record import PAGE, RESULTS, ROOT, Line, Record, fill_page, newest_record, read_record

RATIO = Line("10,000 items: CPU an item", 1.6, "ms", 1.0, "plain pytest", 1.6, "tmpfs")
FILES = Line("2,000 runs: files a run", 3.0, "files", target=0.01, disk="ext4")
SECONDS = Line("10,000 rows: CPU", 1.0, "s", target=3.0)
MACHINE = {"python": "CPython 3.11.7", "system": "Linux x86_64", "cores": 2, "pytest": "9.2.0", "openai": "3.54.0"}
RECORD = Record("abc1234", "2026-11-23T10:00:00+00:00", False, MACHINE, 3, {"run": [RATIO, SECONDS], "files": [FILES]})
PARTS = "<!-- measured: run files -->\nstale\n<!-- end -->\nBetween.\n<!-- measured: http -->\n<!-- end -->\n"


def test_the_page_contains_the_figures_of_the_newest_record() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill_page(page, newest_record(RESULTS)) == page, "renew it: python benchmarks/record.py"


def test_every_part_of_a_record_is_on_the_page() -> None:
    code = "import sys; sys.path.insert(0, 'benchmarks'); from check import PARTS; print(*PARTS)"
    parts = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    named = {name for names in re.findall(r"<!-- measured: (.*) -->", PAGE.read_text()) for name in names.split()}
    assert named - {"machine"} == set(parts.split())


def test_a_table_has_the_lines_of_its_parts_and_the_rest_of_the_page_stays() -> None:
    page = fill_page(PARTS, RECORD)
    assert "| 10,000 items: CPU an item | 1.6 ms | 1 ms (plain pytest) | 1.60 | ≤ 1.6 × | yes | tmpfs |" in page
    assert "| 10,000 rows: CPU | 1 s |  |  | ≤ 3 s | yes |  |" in page
    assert "| 2,000 runs: files a run | 3 files |  |  | ≤ 0.01 files | **no** | ext4 |" in page
    assert "stale" not in page
    before, after = page.split("Between.")
    assert "Not measured yet" not in before
    assert "Not measured yet" in after
    assert fill_page(page, RECORD) == page


def test_the_page_has_the_versions_and_machine_of_its_measurement() -> None:
    page = fill_page("<!-- measured: machine -->\n<!-- end -->", replace(RECORD, modified=True))
    assert "Commit abc1234 of 2026-11-23, modified: CPython 3.11.7, pytest 9.2.0" in page
    assert "2 cores; medians of 3." in page


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    assert read_record(tmp_path / "2026-11-23-abc1234.json") == RECORD
    [line, *_] = json.loads((tmp_path / "2026-11-23-abc1234.json").read_text())["parts"]["run"]
    assert line["ratio"] == 1.6
    assert line["met"] is True


def test_the_newest_record_is_that_of_the_latest_commit(tmp_path: Path) -> None:
    assert newest_record(tmp_path) is None
    for commit, hour in (("ccc", "08"), ("aaa", "10"), ("bbb", "09")):
        replace(RECORD, commit=commit, committed=f"2026-11-23T{hour}:00:00+00:00").write(tmp_path)
    assert (newest := newest_record(tmp_path)) is not None
    assert newest.commit == "aaa"
    assert (before := newest_record(tmp_path, but="aaa")) is not None
    assert before.commit == "bbb"


@pytest.mark.parametrize(
    ("now", "last", "worse"),
    [
        (replace(RATIO, ours=1.83), RATIO, False),
        (replace(RATIO, ours=1.85), RATIO, True),
        (replace(RATIO, ours=3.2, peer=2.0), RATIO, False),
        (replace(FILES, ours=3.4), FILES, False),
        (replace(FILES, ours=3.5), FILES, True),
        (replace(SECONDS, ours=9.0), SECONDS, False),
    ],
    ids=["14 %", "16 %", "on a slower machine", "files", "more files", "seconds without a peer"],
)
def test_fifteen_percent_more_is_worse(now: Line, last: Line, worse: bool) -> None:
    assert now.is_worse_than(last) is worse
