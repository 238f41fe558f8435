"""A distribution of somebody else's, installed with this package into an environment of its own, adds one of each."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import IMAGE, needs_docker

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "tests" / "sample_plugin"
MOST_LINES = 140
MODULES = sorted(SAMPLE.rglob("*.py"))
COMMANDS = os.environ | {"PYTEST_ADDOPTS": "-pno:hypothesispytest -pno:anyio -pno:timeout -pno:cacheprovider"}

FILES = {
    "run_profiles/plain.yaml": """\
schema_version: 1
run_profile_id: plain
title: Commands on this machine
sandbox: plain
shell: {seconds: 2}
""",
    "cases/sums.cards": """\
cards
What is 1 + 1? = 2
What is 2 + 2? = 4 | 2
""",
    "cases/sums.demo.yaml": "schema_version: 1\nanswers: {'2': '2', '3': 'It is 4, as anybody knows.'}\n",
    "cases/notes/test.yaml": """\
schema_version: 1
case_id: notes
title: Two commands in one workspace
runner: {type: shell}
input:
  messages: [{role: user, content: echo Call home. >> notes.txt}]
  turns: [{role: user, content: cat notes.txt}]
deterministic_checks:
  - {check_id: both, declarative: {kind: line_count, lines: 2}}
  - {check_id: first, declarative: {kind: regex_match, pattern: Bring milk}}
""",
    "cases/brief/test.yaml": """\
schema_version: 1
case_id: brief
title: A card that is a file of its own
runner: {type: shell}
input: {messages: [{role: user, content: cat notes.txt}]}
card: {most_words: 2}
""",
    "cases/endless/test.yaml": """\
schema_version: 1
case_id: endless
title: A command that takes too long
runner: {type: shell}
input: {messages: [{role: user, content: sleep 60}]}
deterministic_checks:
  - {check_id: short, declarative: {kind: line_count, lines: 1, or_fewer: true}}
""",
}
BROKEN = {
    "broken/deck.cards": "cards\nWhat is 3 + 3?\nWhat is 4 + 4? = 8 | many\n",
    "broken/long/test.yaml": FILES["cases/brief/test.yaml"].replace("2}", "few}"),
    "broken/misspelt/test.yaml": FILES["cases/endless/test.yaml"].replace("or_fewer", "or_fewr"),
    "broken/run_profiles/hasty.yaml": FILES["run_profiles/plain.yaml"]
    .replace("2}", "soon}")
    .replace(": plain", ": hasty", 1),
}


@dataclass(frozen=True)
class Installed:
    """An environment that has this package, and the folder that commands are run in."""

    python: Path
    folder: Path

    def run(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a module of the environment; its output is stdout and stderr together."""
        return subprocess.run(
            [self.python, "-m", module, *arguments],
            cwd=self.folder,
            env=COMMANDS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    def agentbench(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `agentbench`."""
        return self.run("pytest_agentbench.cli", *arguments)

    def pytest(self, *arguments: str) -> str:
        """Run a session and return what it prints."""
        return self.run("pytest", "--model", "demo", *arguments).stdout

    def report(self) -> dict[str, Any]:
        """Return the last session's report.json."""
        found: dict[str, Any] = json.loads((self.folder / "outputs" / "report.json").read_text())
        return found

    def outcomes(self) -> dict[str, str]:
        """Return the outcomes of the last session's cases."""
        return {row["case_id"]: row["outcome"] for row in self.report()["runs"]}


def install(place: Path, *distributions: Path) -> Installed:
    """Install distributions and nothing else: what they need is taken from the environment that runs the tests.

    Nothing is downloaded, and no installer is needed: a wheel is built here, and unpacked as one would.
    """
    environment, folder, wheels = place / "environment", place / "project", place / "wheels"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    # Not a plain path: the folder's own .pth files are to count too. What is installed here comes before it.
    (site / "tests.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for distribution in distributions:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
        subprocess.run(build, cwd=distribution, check=True, capture_output=True)
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Installed(environment / "bin" / "python", folder)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("with"), ROOT, SAMPLE)


@pytest.fixture(scope="module")
def finished(installed: Installed) -> tuple[Installed, str]:
    """A session of all good cases, with what it printed."""
    html = ("--agentbench-html", "page.html", "--junit-xml", "junit.xml")
    return installed, installed.pytest("cases", "--agentbench-run-profile", "plain", *html)


@pytest.mark.slow
def test_both_are_installed_and_not_the_checkout(installed: Installed) -> None:
    for name in ("pytest_agentbench", "agentbench_sample"):
        command = [installed.python, "-c", f"import {name}; print({name}.__file__)"]
        found = subprocess.check_output(command, cwd=installed.folder, text=True)
        assert Path(found).is_relative_to(installed.python.parents[1]), found


@pytest.mark.slow
def test_cases_of_each_kind_are_run_and_decided(finished: tuple[Installed, str]) -> None:
    installed, text = finished
    passed, failed = ("brief", "notes", "sums.2"), ("endless", "sums.3")
    assert installed.outcomes() == dict.fromkeys(passed, "passed") | dict.fromkeys(failed, "failed")
    assert "brevity: 6 words, expected at most 2" in text
    assert "got:      failed (agent_failed): killed for its time-out: sleep 60" in text


@pytest.mark.slow
def test_the_runs_were_in_the_plugins_sandbox_with_its_template(finished: tuple[Installed, str]) -> None:
    installed, _ = finished
    [stored] = installed.folder.glob("outputs/runs/**/notes/run_1.json")
    run = json.loads(stored.read_text())
    assert run["sandbox"]["kind"] == "plain"
    assert [(change["change"], change["path"]) for change in run["changes"]] == [("modified", "notes.txt")]
    [identity] = installed.folder.glob("outputs/runs/**/notes/run_1.fingerprint_input.json")
    assert json.loads(identity.read_text())["extra"]["shell"]["sandbox"]["type"] == "plain"


@pytest.mark.slow
def test_reports_have_the_plugins_section(finished: tuple[Installed, str]) -> None:
    installed, text = finished
    report = installed.report()
    found = {row["case_id"]: row.get("brevity") for row in report["runs"]}
    assert found["sums.3"] == {"words": 6, "most_words": 2}
    assert found["notes"] is None
    assert report["models"][0]["brevity"] == {"mean_words": 3.0}
    assert "brevity\n  demo: 3.0 words an answer" in text
    assert 'name="agentbench.brevity.words" value="6"' in (installed.folder / "junit.xml").read_text()
    page = (installed.folder / "page.html").read_text()
    [packed] = re.findall(r'<script[^>]* id="data"[^>]*>([^<]*)<', page)
    [section] = [
        each for each in json.loads(gzip.decompress(b64decode(packed)))["sections"] if each["key"] == "brevity"
    ]
    assert section["row"]["figures"] == [["words", "Words of the answer"], ["most_words", "Words allowed"]]
    assert section["figures"] == [{"mean_words": 3.0}]


@pytest.mark.slow
def test_a_report_is_read_back_and_written_in_the_plugins_format(finished: tuple[Installed, str]) -> None:
    installed, _ = finished
    done = installed.agentbench("report", "outputs/report.json", "--format", "words", "words.txt")
    assert (done.returncode, done.stdout) == (0, "words: words.txt\n")
    lines = (installed.folder / "words.txt").read_text().splitlines()
    assert lines == [
        "case\tmodel\toutcome\twords",
        "brief\tdemo\tpassed\t2",
        "sums.2\tdemo\tpassed\t1",
        "sums.3\tdemo\tfailed\t6",
    ]
    refused = installed.agentbench("report", "outputs/report.json", "--format", "wrds", "words.txt")
    assert (refused.returncode, "expected a format that a plugin adds: words" in refused.stdout) == (1, True)


@pytest.mark.slow
def test_a_second_session_reuses_what_is_stored_and_another_limit_does_not(finished: tuple[Installed, str]) -> None:
    installed, _ = finished
    installed.pytest("cases/notes", "cases/sums.cards", "--agentbench-run-profile", "plain")
    assert [row["reused"] for row in installed.report()["runs"]] == [True, True, True]
    patient = FILES["run_profiles/plain.yaml"].replace("seconds: 2", "seconds: 3").replace(": plain", ": patient", 1)
    (installed.folder / "run_profiles" / "patient.yaml").write_text(patient)
    installed.pytest("cases/notes", "--agentbench-run-profile", "patient")
    assert [row["reused"] for row in installed.report()["runs"]] == [False]


@pytest.mark.slow
def test_commands_know_the_plugins_things(finished: tuple[Installed, str]) -> None:
    installed, _ = finished
    assert installed.agentbench("cards", "cases/sums.cards").stdout.splitlines() == [
        "sums.2\tWhat is 1 + 1?\t2",
        "sums.3\tWhat is 2 + 2?\t4",
    ]
    assert "print the cards of files" in installed.agentbench("--help").stdout
    listed = installed.agentbench("list", "cases").stdout
    assert {"brief", "notes", "endless", "sums.2", "sums.3"} == {line.split("\t")[0] for line in listed.splitlines()}
    validated = installed.agentbench("validate", "cases", "run_profiles")
    assert (validated.returncode, "0 errors, 0 warnings" in validated.stdout) == (0, True), validated.stdout
    examined = installed.agentbench("doctor", ".", "--profile", "plain")
    assert (examined.returncode, "profile plain: `sandbox: plain`" in examined.stdout) == (0, True), examined.stdout


@pytest.mark.slow
def test_schemas_have_the_plugins_fields(installed: Installed) -> None:
    assert installed.agentbench("schema", "--output", "schemas").returncode == 0
    schemas = {path.name.split(".")[0]: json.loads(path.read_text()) for path in installed.folder.glob("schemas/*")}
    check = schemas["test_case"]["$defs"]["LineCount"]["properties"]
    assert check["or_fewer"]["description"] == "Fewer are as good."
    assert "card" in schemas["test_case"]["properties"]
    assert "shell" in schemas["run_profile"]["properties"]


@pytest.mark.slow
def test_errors_of_the_sample_plugin_contain_their_line(installed: Installed) -> None:
    for name, text in BROKEN.items():
        (installed.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (installed.folder / name).write_text(text)
    expected = [
        "broken/deck.cards:2:1: found 'What is 3 + 3?', expected QUESTION = ANSWER",
        "broken/deck.cards:3:1: found 'many' after the bar, expected a number of words",
        "broken/long/test.yaml:6:20: card.most_words: found 'few', expected a whole number",
        "broken/misspelt/test.yaml:7:65: deterministic_checks[0].declarative.or_fewr: unknown field; "
        "did you mean 'or_fewer'?",
    ]
    validated = installed.agentbench("validate", "broken")
    profile = "broken/run_profiles/hasty.yaml:5:18: shell.seconds: found 'soon', expected a number"
    assert validated.returncode == 1
    assert [line for line in (*expected, profile) if line not in validated.stdout] == [], validated.stdout
    text = installed.pytest("broken")
    assert [line for line in expected if line not in text] == [], text
    shutil.rmtree(installed.folder / "broken")


@needs_docker
@pytest.mark.slow
def test_a_case_that_names_an_image_runs_in_a_container(installed: Installed) -> None:
    case = FILES["cases/notes/test.yaml"].replace("type: shell", f"type: shell, image: '{IMAGE}'")
    (installed.folder / "contained" / "notes").mkdir(parents=True)
    (installed.folder / "contained" / "notes" / "test.yaml").write_text(case)
    text = installed.pytest("contained", "--agentbench-output", "contained/outputs")
    [stored] = installed.folder.glob("contained/outputs/runs/**/notes/run_1.json")
    assert json.loads(stored.read_text())["sandbox"]["image"] == IMAGE
    assert "1 passed" in text


@pytest.mark.slow
def test_without_the_plugin_cases_say_what_is_missing(tmp_path: Path) -> None:
    without = install(tmp_path, ROOT)
    text = without.pytest("cases")
    assert "test.yaml:4:16: runner.type: unknown runner 'shell'" in text
    text = without.pytest("cases", "--agentbench-run-profile", "plain")
    assert "plain.yaml:4:10: sandbox: found 'plain', expected 'auto', 'docker', 'bubblewrap' or 'local'" in text
    assert "plain.yaml:5:1: shell: unknown field" in text
    validated = without.agentbench("validate", "cases").stdout
    assert "has no turns" not in validated
    assert "unknown check kind 'line_count'" in validated
    assert "not found" in without.pytest("cases/sums.cards")
    assert "invalid choice: 'cards'" in without.agentbench("cards", "cases/sums.cards").stdout


def test_the_sample_imports_public_names_only() -> None:
    others = {
        name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if name.partition(".")[0] not in sys.stdlib_module_names | {"agentbench_sample"}
    }
    assert others == {"pytest_agentbench"}


def test_files_of_the_sample_are_short() -> None:
    assert {path.name: lines for path in MODULES if (lines := path.read_text().count("\n")) > MOST_LINES} == {}
