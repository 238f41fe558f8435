"""Kits for tools, model providers, searches, reports and commands: ours pass, and broken ones are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tool_use_runs import evaluated, judgement, run, task, use
from testing.kits_support import NUMBERS, Parrot, card_case, plain_profile

import pytest_agentbench as ab
from pytest_agentbench.extensions import find_extension
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "made.txt", "content": "made"}),
        ("list_files", {}),
        ("exec_shell", {"command": "echo made"}),
        ("shell_session", {"command": "echo made"}),
    ],
)
def test_our_tools_pass(name: str, arguments: dict[str, Any]) -> None:
    assert ab.check_tool(BUILTIN_TOOLS[name], arguments)


async def fail(arguments: Any, context: Any) -> str:
    raise KeyError("nothing")


async def say(arguments: Any, context: Any) -> str:
    return "said"


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (ab.Tool("t", "Fails.", {"type": "object"}, fail), "its own code failed"),
        (ab.Tool("t", "", {"type": "object"}, say), "description: it is empty"),
        (ab.Tool("t", "Says.", {"type": "array"}, say), "expected the schema of an object"),
        (ab.Tool("t", "Says.", {"type": "object", "required": ["x"]}, say), "they do not accept {}"),
        (ab.Tool("", "Says.", {"type": "object"}, say), "name: found ''"),
    ],
)
def test_a_broken_tool_is_noticed(tool: ab.Tool, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_tool(tool, {})


class Rude(Parrot):
    """Appends to the conversation that it is given."""

    async def complete(self, messages: Any, **options: Any) -> ab.ChatReply:
        messages.append({"role": "assistant", "content": ""})
        return await super().complete(messages)


def test_model_providers() -> None:
    ab.check_model_provider(Parrot)
    for broken, said in ((Rude, "changed the messages"), (lambda model: object(), "is not the model")):
        with pytest.raises(AssertionError, match=said):
            ab.check_model_provider(broken)


def test_web_searches() -> None:
    def finds(hit: Any) -> Any:
        async def search(query: str) -> Any:
            return [hit]

        return search

    good = ab.SearchResult("A planet", "https://example.org")
    assert ab.check_web_search(finds(good)) == [good]
    for hit, said in ((replace(good, url="example.org"), "expected an address"), ("hit", "expected a SearchResult")):
        with pytest.raises(AssertionError, match=said):
            ab.check_web_search(finds(hit))


def test_needs(shell: ab.Case) -> None:
    [spec] = ab.check_needs(find_extension("doctor", "shell"), shell, plain_profile())
    assert spec.kind == "plain"
    ab.check_needs(find_extension("doctor", "openclaw"), shell)
    for needs, said in (
        (ab.PackNeeds(lambda case, profile, sandboxes: ["docker"]), "expected a SandboxSpec"),  # type: ignore[list-item]
        (ab.PackNeeds(engines=lambda profile: [""]), "engines: found ''"),
        (None, "expected PackNeeds"),
    ):
        with pytest.raises(AssertionError, match=said):
            ab.check_needs(needs, shell)  # type: ignore[arg-type]


def test_the_samples_format_passes() -> None:
    assert ab.check_report_format(find_extension("report_format", "words")) == b"case\tmodel\toutcome\twords\n"


def add_a_run(report: Any, path: Path) -> None:
    path.write_text("once")
    report["runs"].append({})


def count_up(report: Any, path: Path) -> None:
    path.write_text(str(next(NUMBERS)))


def write_two(report: Any, path: Path) -> None:
    path.write_text("one")
    path.with_suffix(".two").write_text("two")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda report, path: None, "there is no file"),
        (add_a_run, "changed the report"),
        (count_up, "another file each time"),
        (write_two, "wrote more files"),
    ],
)
def test_a_broken_format_is_noticed(write: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_report_format(ab.ReportFormat("a test's", write))


def brevity_evaluation() -> ab.Evaluation:
    from agentbench_sample.brevity import Brevity

    return ab.Evaluation(case_id="sample", outcome="passed", parts={"brevity": Brevity(words=3, most_words=5)})


def test_report_sections_pass() -> None:
    ab.check_report_section("brevity", find_extension("report_section", "brevity"), card_case(), brevity_evaluation())
    case, judged = task("One"), judgement((9, 9, 8, 8, 7, 7))
    used = evaluated(case, run(use("One:tool")), judged)
    ab.check_report_section("tool_use", find_extension("report_section", "tool_use"), case, used)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("row", lambda self, case, evaluation: {"words": 3}, "its row does not accept"),
        ("row", lambda self, case, evaluation: None, "returned None for a run"),
        ("schema", lambda self: {}, "its row does not accept"),
        ("figures", lambda self, found: {"mean_words": "three"}, "expected a number"),
        ("figures", lambda self, found: {}, "contains no name of its model_figures"),
        ("summary", lambda self, models, dash: ("brevity", {"another": "x"}), "unknown models"),
        ("row_properties", lambda self, found: {"words": [3]}, "expected a text, number, bool or None"),
    ],
)
def test_a_broken_section_of_reports_is_noticed(
    name: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = find_extension("report_section", "brevity")
    monkeypatch.setattr(type(section), name, value)
    with pytest.raises(AssertionError, match=said):
        ab.check_report_section("brevity", section, card_case(), brevity_evaluation())


def test_commands_pass(cards: Path) -> None:
    shown = ab.check_command("cards", find_extension("command", "cards"), str(cards), status=1)
    assert "sums.2\tWhat is 1 + 1?\t2" in shown
    assert f"{cards}:3:1: found" in shown
    ab.check_command("cards", find_extension("command", "cards"), str(cards.with_name("missing")), status=1)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("import", ("promptfoo", "none.yaml")),
        ("research", ("lint", "--query-file", "none.jsonl")),
        ("openclaw", ("capture", "--agent-id", "a", "none")),
    ],
)
def test_commands_of_packs_pass(name: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    ab.check_command(name, find_extension("command", name), *arguments, status=1)


def test_a_broken_command_is_noticed(cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = find_extension("command", "cards")
    for name, given, said in (("card", command, "it adds"), ("cards", ab.Command("x.", command.module), "full stop")):
        with pytest.raises(AssertionError, match=said):
            ab.check_command(name, given, str(cards))
    with pytest.raises(AssertionError, match="exit status 1, expected 0"):
        ab.check_command("cards", command, str(cards))
    monkeypatch.setattr("agentbench_sample.command.run", lambda args: None)
    with pytest.raises(AssertionError, match="expected an exit status"):
        ab.check_command("cards", command, str(cards))
