"""What reports of many runs cost: `python benchmarks/report.py [--quick]`.

report.json and the page of 10,000 runs: how much CPU it takes to write them and to read report.json again, how large
they are; how long the page takes in Chromium to open, to filter and to search, until the browser has drawn it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tables import Measured, Section, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import PROGRAM, Shown, browser, new_page
from support.random_reports import MODELS, SESSION, random_rows

from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.reading import read_report
from pytest_agentbench.reports.report import build_report, write_report

REPETITIONS = 3
SECONDS, MEGABYTES, LOOKING_SECONDS = 10.0, 30.0, 1.0
ROUNDS = 5
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
"""When what is there by now has been drawn, in ms of the page's clock."""


def writing(runs: int, folder: Path) -> Iterator[Measured]:
    """Rows that a session has -> report.json and the page."""
    rows = list(random_rows(runs // (len(MODELS) * REPETITIONS), MODELS, REPETITIONS))
    begun = time.process_time()
    report = build_report(rows, SESSION)
    write_report(report, folder / "report.json")
    written = time.process_time()
    write_page(report, folder / "report.html")
    ended = time.process_time()
    read_report(folder / "report.json")
    read = time.process_time() - ended
    sizes = [sum(file.stat().st_size for file in folder.glob(name)) / 1e6 for name in ("report.json", "report.html")]
    times, size = f"{written - begun:.1f} s + {ended - written:.1f} s", f"{sizes[0]:.1f} MB + {sizes[1]:.1f} MB"
    what = f"{len(rows):,} runs: report.json + page"
    yield Measured(f"{what}, CPU", times, "", "", f"{SECONDS:g} s", ended - begun < SECONDS)
    yield Measured("report.json read and checked, CPU", f"{read:.1f} s", "", "", f"{SECONDS:g} s", read < SECONDS)
    yield Measured(f"{what}, size", size, "", "", f"{MEGABYTES:g} MB", sum(sizes) < MEGABYTES)


def looking(folder: Path) -> Iterator[Measured]:
    """The page in a browser; the best of several rounds counts, for other programs only ever add to it."""
    found: dict[str, list[float]] = {}
    with browser() as program:
        for _ in range(ROUNDS):
            with new_page(program) as shown:
                for name, seconds in _visit(shown, folder / "report.html"):
                    found.setdefault(name, []).append(seconds)
    for name, seconds in found.items():
        best = min(seconds)
        yield Measured(name, f"{best:.2f} s", "", "", f"{LOOKING_SECONDS:g} s", best < LOOKING_SECONDS)


def _visit(shown: Shown, page: Path) -> Iterator[tuple[str, float]]:
    shown.page.goto(page.as_uri() + "#/results", wait_until="commit")
    shown.page.wait_for_selector("main tr[data-at]")
    yield "open the results", shown.value(DRAWN) / 1000
    yield "show failed cases", _timed(shown, "document.querySelector('[data-show=failed]').click()")
    yield (
        "search",
        _timed(
            shown, "q = document.getElementById('q'); q.value = 'voucher -report'; q.dispatchEvent(new Event('input'))"
        ),
    )
    order = "q = document.getElementById('pick-sort'); q.value = 'cost'; q.dispatchEvent(new Event('change'))"
    yield "order by cost", _timed(shown, order)
    yield "open a run", _timed(shown, "document.querySelector('td.ans a').click()")
    yield "go to the summary", _timed(shown, "location.hash = '#/summary'")


def _timed(shown: Shown, act: str) -> float:
    seconds: Any = shown.value(
        f"(async () => {{ const begun = performance.now(); let q; {act}; return (await {DRAWN} - begun) / 1000; }})()"
    )
    return float(seconds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    runs = 1_008 if parser.parse_args().quick else 10_008
    with TemporaryDirectory() as name:
        folder = Path(name)
        missing = None if PROGRAM is not None else "needs chromium (Debian: apt-get install chromium)"
        parts = {
            "writing": Section(lambda: writing(runs, folder)),
            "looking": Section(lambda: looking(folder), missing),
        }
        print_table(parts, None, peer="", more="")


if __name__ == "__main__":
    main()
