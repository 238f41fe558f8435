"""`agentbench research run` ended in the middle of a stage, and called again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.report_judge import ReportJudge, article, write_project
from support.research_site import Site

pytestmark = pytest.mark.slow

COMMAND = [
    *(sys.executable, "-m", "pytest_agentbench.cli", "research", "run", "--enable-query-selection"),
    *("--allow-private", "127.0.0.1", "--max-workers", "1"),
]
JUDGED = {
    *("select", "weights", "criteria", "race", "extract", "deduplicate"),
    *("validate", "strategic", "knowledge", "reuse"),
}
OF_A_QUERY = {"weights": 5, "criteria": 4}
"""What is asked at once."""


class Ending:
    """Ends the program that asks for something, once."""

    def __init__(self) -> None:
        self.at: str | None = None
        self.how = signal.SIGKILL
        self.program: subprocess.Popen[str] | None = None

    def asked(self, stage: str) -> None:
        if stage == self.at and self.program is not None:
            self.at = None
            self.program.send_signal(self.how)


class EndingJudge(ReportJudge):
    def __init__(self, ending: Ending) -> None:
        super().__init__()
        self.ending = ending

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.ending.asked(body["response_format"]["json_schema"]["name"].removeprefix("research_"))
        return super()._answer(body)


class Pages(dict[str, str]):
    def __init__(self, ending: Ending, **pages: str) -> None:
        super().__init__({f"/{name}": text for name, text in pages.items()})
        self.ending = ending

    def get(self, path: str, default: Any = None) -> Any:
        if path in self:
            self.ending.asked("scrape")
        return super().get(path, default)


@pytest.fixture(scope="module")
def ending() -> Ending:
    return Ending()


@pytest.fixture(scope="module")
def site(ending: Ending) -> Iterator[Site]:
    with Site({}) as site:
        site.pages = Pages(ending, owls="Owls hunt at night.", tea="茶很贵。", mice="Mice hide by day.")
        yield site


def call(folder: Path, judge: EndingJudge) -> tuple[int, str]:
    with subprocess.Popen(
        COMMAND, cwd=folder, env=os.environ | judge.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        judge.ending.program = program
        try:
            output, _ = program.communicate(timeout=60)
        finally:
            program.kill()
    return program.returncode, output


def prepare(folder: Path, site: Site) -> None:
    """Two models, and a second report each that uses what the first has found out."""
    site.asked.clear()
    owls = {f"{site.url}/owls": ["Owls hunt at night.", "Owls sing."]}
    both = {**owls, f"{site.url}/tea": ["茶很贵。"]}
    mice = {f"{site.url}/mice": ["Mice hide by day.", "Mice sing."]}
    write_project(
        folder,
        {
            "alpha": {1: article(8, owls), 2: article(6, both)},
            "beta": {1: article(4, mice), 2: article(5, {**mice, **both})},
        },
    )


def results(folder: Path) -> dict[str, Any]:
    """What is in each file, but for when a business report was made and what judges cost in the call."""
    paths = (*folder.glob("results/**/*.*"), *folder.glob("data/**/*.*"), *folder.glob("query_analysis/*"))
    document: dict[str, Any] = {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}
    for name in document:
        if name.endswith(("_poet_report.json", "poet_comparison.json")):
            document[name] = lasting(json.loads(document[name]))
        elif name.endswith(("poet_comparison.txt", "_poet_report.txt")):
            document[name] = "shows the JSON"
    return document


def lasting(document: dict[str, Any]) -> dict[str, Any]:
    models = [lasting(each) for each in document.get("models", ())]
    costs = {name: value for name, value in document.get("costs", {}).items() if name != "judge"}
    return {**document, "made": None, "models": models, "costs": costs}


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, ending: Ending, site: Site
) -> tuple[dict[str, Any], dict[str, int]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder, site)
    with EndingJudge(ending) as judge:
        status, said = call(folder, judge)
    assert status == 0, said
    assert set(judge.asked) == JUDGED
    assert set(site.asked.values()) == {1}
    return results(folder), dict(judge.asked)


@pytest.mark.parametrize(
    ("stage", "how"),
    [
        ("select", signal.SIGKILL),
        ("weights", signal.SIGINT),
        ("criteria", signal.SIGKILL),
        ("race", signal.SIGINT),
        pytest.param("extract", signal.SIGKILL, marks=pytest.mark.full),
        pytest.param("scrape", signal.SIGINT, marks=pytest.mark.full),
        ("scrape", signal.SIGKILL),
        ("validate", signal.SIGINT),
        pytest.param("knowledge", signal.SIGKILL, marks=pytest.mark.full),
        ("reuse", signal.SIGINT),
    ],
)
def test_the_same_command_goes_on(
    stage: str,
    how: signal.Signals,
    undisturbed: tuple[dict[str, Any], dict[str, int]],
    tmp_path: Path,
    ending: Ending,
    site: Site,
) -> None:
    files, asked = undisturbed
    prepare(tmp_path, site)
    ending.at, ending.how = stage, how
    with EndingJudge(ending) as judge:
        status, said = call(tmp_path, judge)
        assert status == (130 if how == signal.SIGINT else -9), said
        if how == signal.SIGINT:
            assert "interrupted; repeat the command to continue" in said
            assert "Traceback" not in said
        status, said = call(tmp_path, judge)
        assert status == 0, said
    again = {name: count - asked[name] for name, count in judge.asked.items() if count != asked[name]}
    answering = OF_A_QUERY if stage in OF_A_QUERY else {stage: 1}  # as it ended
    assert all(count <= answering.get(name, 0) for name, count in again.items())
    assert sum(site.asked.values()) <= 3 + (stage == "scrape")
    found = results(tmp_path)
    assert set(found) == set(files)
    assert [name for name in files if found[name] != files[name]] == []
