"""What GitHub's runner makes of a session: annotations, the job summary, and no command that an agent wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import DEMO, MODEL, make_row
from support.github_runner import KNOWN, Command, commands

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.ci.document import workflow_command, write_annotations, write_job_summary
from pytest_agentbench.reports.ci.sections import Places
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.table import CommandFreeTerminal
from pytest_agentbench.terminal_text import visible

ATTACK = (
    "fine\n::set-output name=a::b\r\n  ::error::x\r##[add-mask]y 50% %0A::debug::z ##[stop-commands]t\n::add-path::/p"
)
steering = st.lists(
    st.sampled_from(["::", "##[", "]", ":", "#", "\n", "\r", " ", "\t", "\u2003", "%0A", "%", ",", "=", "x", *KNOWN])
).map("".join)


class Lines:
    """A terminal that keeps what is written."""

    hasmarkup, verbosity, no_summary = False, 0, False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def report(rows, *, fail_under=None, status=1):
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), fail_under)
    return build_report(rows, {"exit_status": status, "gate": verdict.as_dict()})


def annotated(found, monkeypatch) -> list[Command]:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    terminal = Lines()
    write_annotations(terminal, found, Path("/src"))
    return commands(terminal.text)


@given(st.text(max_size=60) | steering, st.text(max_size=60) | steering)
def test_a_command_says_what_it_is_given_and_is_one(message, title):
    (found,) = commands(workflow_command("error", message, title=title, line=3, file=None) + "\n")
    assert (found.name, set(found.properties)) == ("error", {"title", "line"})
    assert found.properties["line"] == "3"
    if message.isascii() and message.isprintable():
        assert found.message == message
    if title.isascii() and title.isprintable():
        assert found.properties["title"].strip() == title.strip()


@given(st.text(max_size=80) | steering)
def test_visible_text_holds_no_command_and_is_still_read(text):
    assert commands(visible(text)) == []
    assert len(visible(text)) >= len(text)


def test_defused_lines_contain_no_command():
    terminal = Lines()
    CommandFreeTerminal(terminal).write_line(ATTACK)
    assert "add-mask" in terminal.text
    assert commands(terminal.text) == []


def test_a_case_is_one_annotation_at_its_line_over_models_and_repetitions(monkeypatch):
    rows = [make_row("failed", model=MODEL, repetition=n, message="no answer") for n in (1, 2)]
    rows += [make_row(model=MODEL, repetition=3), make_row("failed", model=DEMO, message="wrong")]
    rows = [{**row, "line": 7} for row in rows]
    (found,) = annotated(report(rows), monkeypatch)
    assert found.name == "error"
    assert found.properties == {"file": "cases/test.yaml", "line": "7", "title": "capital failed on gpt4o, demo"}
    assert found.message == "gpt4o (2 of 3 runs): no answer\ndemo: wrong"


def test_at_most_ten_are_shown_and_a_notice_counts_the_rest(monkeypatch):
    rows = [make_row("error", "outage"), *(make_row("failed", f"c{n}") for n in range(14))]
    found = annotated(report(rows, fail_under=0.9), monkeypatch)
    assert [each.name for each in found] == ["error"] * 10 + ["notice"]
    assert found[0].properties["title"] == "agentbench: gate failed"
    assert "Pass rate 0.000 is below 0.900" in found[0].message
    assert found[1].properties["title"] == "c0 failed on gpt4o"
    assert found[-1].message == "6 more did not pass: see the job summary"


def test_failures_that_the_gate_lets_pass_are_warnings(monkeypatch):
    rows = [make_row(), make_row("failed", "b", message="x")]
    assert [each.name for each in annotated(report(rows, fail_under=0.5, status=0), monkeypatch)] == ["warning"]


def test_an_agents_text_is_a_message_and_nothing_else(monkeypatch):
    row = {**make_row("failed", f"c{ATTACK}", message=ATTACK), "line": 1}
    row["nodeid"] = f"a,line=9::{ATTACK}/test.yaml::c[gpt4o]"
    (found,) = annotated(report([row]), monkeypatch)
    assert (found.name, found.properties["line"]) == ("error", "1")
    assert "::set-output name=a::b" in found.message
    assert found.properties["file"] == "a,line=9"


@pytest.mark.parametrize("rows", [[], [make_row()], [make_row("skipped")]], ids=["none", "passed", "skipped"])
def test_nothing_is_annotated_where_nothing_is_wrong(rows, monkeypatch):
    assert annotated(report(rows, status=0), monkeypatch) == []


def test_nothing_is_annotated_outside_of_github(monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    terminal = Lines()
    write_annotations(terminal, report([make_row("failed")]), Path("/src"))
    assert terminal.lines == []


def test_the_summary_is_added_to_what_the_step_wrote(tmp_path):
    path = tmp_path / "summary.md"
    path.write_text("# Mine\n", encoding="utf-8")
    places = Places(tmp_path, {})
    write_job_summary(report([make_row()], status=0), places, path)
    write_job_summary(report([make_row("failed")]), places, path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.index("✅ agentbench: 1 run: 1 passed") < text.index("❌ agentbench: 1 run: 1 failed")


@pytest.mark.slow
def test_a_large_summary_stays_below_githubs_limit(tmp_path):
    path = tmp_path / "summary.md"
    rows = [make_row("failed", f"c{n}", message="<b>" * 300) for n in range(2_000)]
    path.write_text("x" * 900_000, encoding="utf-8")
    write_job_summary(report(rows), Places(tmp_path, {}), path)
    assert 990_000 < path.stat().st_size <= 2**20
    with pytest.raises(UnwritableError, match="GitHub's limit is 1 MiB"):
        write_job_summary(report(rows), Places(tmp_path, {}), path)
    assert path.stat().st_size <= 2**20


def test_a_summary_that_cannot_be_written_says_where(tmp_path):
    with pytest.raises(UnwritableError, match=r"nowhere/summary\.md: the job summary cannot be written: No such"):
        write_job_summary(report([make_row()]), Places(tmp_path, {}), tmp_path / "nowhere" / "summary.md")
