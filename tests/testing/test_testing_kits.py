"""The kits of all seams but sandboxes: what we and the sample have passes; what breaks a contract is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from pydantic import ConfigDict
from support.tool_use_runs import evaluated, judgement, run, task, use

import pytest_agentbench as ab
from pytest_agentbench.checks.base import verdict
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.extensions import find_extension, load_extensions
from pytest_agentbench.metrics.registry import BUILTIN_METRICS, METRICS, asks_model, takes_samples, takes_trace
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.runners.chat import llm_probe
from pytest_agentbench.sources.rows import DATASETS
from pytest_agentbench.sources.test_yaml import TEST_YAML
from pytest_agentbench.testing.samples import sample_case, sample_run
from pytest_agentbench.tools.builtin import BUILTIN_TOOLS

CASES = Path(__file__).parents[2] / "cases"
CARDS = "cards\nWhat is 1 + 1? = 2\nWhat is 2 + 2?\nWhat is 3 + 3? = 6 | 1\n"


def name_of(seam: str, first: str) -> str:
    """The whole name of an entry point that begins so."""
    return next(name for name in load_extensions(seam) if name.split()[0] == first)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    file = tmp_path / "sums.cards"
    file.write_text(CARDS)
    return file


def plain_profile(**fields: Any) -> RunProfile:
    return RunProfile.model_validate(
        {"schema_version": 1, "run_profile_id": "kit", "title": "Kit", "sandbox": "plain", **fields}
    )


# case sources and parts


def test_the_samples_source_passes(cards: Path) -> None:
    ab.check_case_source(find_extension("source", name_of("source", "cards")), name_of("source", "cards"), cards)


@pytest.mark.parametrize(
    ("source", "name", "file"),
    [
        (TEST_YAML, "cases test.yaml ~case_id", "plain_question/test.yaml"),
        (DATASETS, 'questions *.json *.jsonl ~"question"', "capitals.jsonl"),
    ],
)
def test_our_sources_pass(source: Any, name: str, file: str) -> None:
    ab.check_case_source(source, name, CASES / file)


@pytest.mark.parametrize(("name", "file"), [("mcp_tasks", "mcp/tasks.json"), ("reports", "research/reports.yaml")])
def test_sources_of_packs_pass(name: str, file: str) -> None:
    whole = name_of("source", name)
    ab.check_case_source(find_extension("source", whole), whole, CASES / file)


def other_ids(self: Any, number: int, question: str, answer: str, card: Any) -> ab.Case:
    return sample_case(case_id=f"card-{number}", path=self.path, line=number, tags=("cards",))


def twice_the_same(self: Any, subject: Any = None) -> Any:
    row = next(OPENED.rows(self))
    return iter([row, row])


def unreadable(self: Any, subject: Any = None) -> Any:
    self.path.read_text(encoding="utf-8")
    return OPENED.rows(self)


def nameless_problem(self: Any, line: int, problem: str) -> ab.BadRow:
    return ab.BadRow(line, problem, self.path)


OPENED: Any = SimpleNamespace()
"""The sample's own functions, before a test changes them."""


@pytest.mark.parametrize(
    ("place", "broken", "said"),
    [
        ("Cards.holds_cases", lambda self, path, head: False, "does not take sums.cards for a file of cases"),
        ("Cards.holds_cases", lambda self, path, head: head and True, "expected a bool for head"),
        ("OpenedCards._case", other_ids, "the case says"),
        ("OpenedCards.rows", twice_the_same, "two cases have one id"),
        ("OpenedCards.rows", lambda self, subject=None: iter([]), "there is no good case"),
        ("OpenedCards.rows", unreadable, "raised UnicodeDecodeError"),
        ("OpenedCards._bad", nameless_problem, "expected it to begin with"),
        ("Cards.index", lambda self, path, request: iter(()), "index: it has other ids"),
    ],
)
def test_a_broken_source_is_noticed(
    place: str, broken: Any, said: str, cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentbench_sample.cards import CARDS as source
    from agentbench_sample.cards import OpenedCards

    OPENED.rows = OpenedCards.rows
    monkeypatch.setattr(f"agentbench_sample.cards.{place}", broken, raising=False)
    with pytest.raises(AssertionError, match=said):
        ab.check_case_source(source, name_of("source", "cards"), cards)


def test_a_name_that_does_not_fit_is_noticed(cards: Path) -> None:
    source = find_extension("source", name_of("source", "cards"))
    for name, said in (
        ("cards *.deck", "no pattern"),
        ("cards", "expected 'NAME PATTERN"),
        ("c *.cards ~x", "none of"),
    ):
        with pytest.raises(AssertionError, match=said):
            ab.check_case_source(source, name, cards)


def test_a_part_that_changes_when_it_is_read_back_is_noticed() -> None:
    from agentbench_sample.cards import Card

    ab.check_case_part(Card(most_words=3))

    class Loose(ab.CasePart):
        model_config = ConfigDict(extra="ignore", frozen=True)

    with pytest.raises(AssertionError, match="a field it lacks: returned"):
        ab.check_case_part(Loose())
    with pytest.raises(AssertionError, match="expected a CasePart"):
        ab.check_case_part(object())


# profile sections and runners


def test_profile_sections_pass() -> None:
    ab.check_profile_section(find_extension("run_profile", "shell"), {"seconds": 2}, {"seconds": "soon"})
    ab.check_profile_section(find_extension("run_profile", "planner"), {"max_rounds": 3}, {"max_rounds": 0})
    ab.check_profile_section(find_extension("run_profile", "task_text"), "detailed", "vague")
    ab.check_profile_section(find_extension("evaluation_profile", "mcp_tasks"), {}, {"no_such_field": 1})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"excess": lambda found, most, guest: [((), found, most)]}, "a guest may say what the user says"),
        ({"fingerprint": lambda found: object()}, "no stored run is found again"),
        ({"default": object}, "default: it is another one each time"),
        ({"doc": ""}, "doc: found ''"),
    ],
)
def test_a_broken_section_is_noticed(change: dict[str, Any], said: str) -> None:
    section = replace(find_extension("run_profile", "shell"), **change)
    with pytest.raises(AssertionError, match=said):
        ab.check_profile_section(section, {"seconds": 2.0}, {"seconds": "soon"})


AGENT = CASES / "agents" / "release_writer" / "agent.yaml"


def test_kinds_of_files_pass() -> None:
    ab.check_file_kind(find_extension("file", "agents"), AGENT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id_field": "name"}, "has no field 'name'"),
        ({"folder": "people"}, "does not lie in people"),
        ({"stem": None}, "does not lie in agents"),
        ({"problems": lambda path: [((), "odd")]}, "problems: it complains"),
    ],
)
def test_a_broken_kind_of_file_is_noticed(change: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_file_kind(replace(find_extension("file", "agents"), **change), AGENT)


def test_a_section_that_takes_anything_is_noticed() -> None:
    with pytest.raises(AssertionError, match="returned None, expected ValidationError"):
        ab.check_profile_section(find_extension("run_profile", "shell"), {"seconds": 2.0}, {"seconds": 3.0})


@pytest.fixture
def shell(tmp_path: Path) -> ab.Case:
    """A case of the sample's runner, with two turns."""
    first, second = (ab.Message(role="user", content=text) for text in ("echo Call. >> notes.txt", "cat notes.txt"))
    runner = ab.RunnerSpec(type="shell")
    return sample_case(path=tmp_path / "test.yaml", runner=runner, messages=(first,), turns=(second,))


def test_the_samples_runner_passes(shell: ab.Case) -> None:
    end = ab.check_runner(find_extension("runner", "shell"), shell, profile=plain_profile())
    assert end.status == "success"


class Parrot:
    """A client that says the question again."""

    def __init__(self, model: ab.Model) -> None:
        self.model = model

    async def complete(self, messages: Any, **options: Any) -> ab.ChatReply:
        text = messages[-1]["content"]
        message = {"role": "assistant", "content": text}
        return ab.ChatReply(text, (), "stop", ab.Usage(), self.model.requested_model, None, message, 1, 0.0)


def test_our_runner_and_a_function_pass(tmp_path: Path) -> None:
    case = sample_case(path=tmp_path / "test.yaml")
    parrot = Parrot(ab.Model(model_id="demo", requested_model="demo", scripted=True))
    assert ab.check_runner(llm_probe, case, client=parrot).status == "success"

    async def echo(case: ab.Case, context: ab.RunContext) -> str:
        return case.messages[0].content

    assert ab.check_runner(echo, case).status == "success"


def not_async(case: ab.Case, context: ab.RunContext) -> str:
    return ""


async def wrong_type(case: ab.Case, context: ab.RunContext) -> Any:
    return 5


async def changes_case(case: ab.Case, context: ab.RunContext) -> str:
    case.metadata["seen"] = True
    return ""


@pytest.mark.parametrize(
    ("runner", "said"), [(not_async, "expected `async"), (wrong_type, "invalid"), (changes_case, "changed its case")]
)
def test_a_broken_runner_is_noticed(runner: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_runner(runner, sample_case(path=tmp_path / "test.yaml"))


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda self, request: None, "expected Prepared"),
        (lambda self, request: ab.Prepared(identity={"": 1}), "expected names"),
        (lambda self, request: ab.Prepared(identity={"at": next(NUMBERS)}), "changed between two calls"),
    ],
)
def test_a_broken_preparation_is_noticed(
    prepare: Any, said: str, shell: ab.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = find_extension("runner", "shell")
    monkeypatch.setattr("agentbench_sample.shell.ShellSession.prepare", prepare)
    with pytest.raises(AssertionError, match=said):
        ab.check_runner(runner, shell, profile=plain_profile())


NUMBERS = iter(range(100))


# checks, metrics, judges, graders


def test_typed_checks_pass() -> None:
    fails = sample_run("one\ntwo")
    ab.check_check_spec(find_extension("check", "line_count"), {"lines": 1}, passes=sample_run("one"), fails=fails)
    present = find_extension("check", "openclaw_workspace_file_present")
    ab.check_check_spec(present, {"relative_path": "notes.txt"}, fails=sample_run())


class Tells(ab.CheckSpec):
    """The answer is told whole."""

    kind: Literal["tells"]

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        answer = context.artifact.final_output
        return ab.Verdict("passed" if answer else "failed", "looked", actual=answer)


class Raises(Tells):
    """It fails where there is no answer."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(context.artifact.final_output.strip() == "", "looked")  # type: ignore[union-attr]


class Silent(Tells):
    """It says nothing."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(True, "")


class Takes(Tells):
    """It takes any field."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Outside(Tells):
    """It looks at a file of the machine."""

    @property
    def looks_at(self) -> tuple[str, ...]:
        return ("/etc/passwd",)


class Wavers(Tells):
    """It says another thing each time."""

    def check(self, context: ab.CheckContext) -> ab.Verdict:
        return verdict(True, f"looked {next(NUMBERS)} times")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Tells, "characters; use excerpt"),
        (Raises, "raised AttributeError"),
        (Silent, "expected a line of text"),
        (Takes, "an unknown field: returned"),
        (Outside, "no path below the workspace"),
        (Wavers, "another thing of the same run"),
        (ab.Grader, "expected a subclass of CheckSpec"),
    ],
)
def test_a_broken_check_is_noticed(kind: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_check_spec(kind, {})


def test_a_check_that_decides_otherwise_is_noticed() -> None:
    with pytest.raises(AssertionError, match="expected passed"):
        ab.check_check_spec(find_extension("check", "line_count"), {"lines": 1}, passes=sample_run("one\ntwo"))


OF_TEXTS = [
    name
    for name in BUILTIN_METRICS
    if not (asks_model(METRICS[name]) or takes_samples(METRICS[name]) or takes_trace(METRICS[name]))
]


HEAVY = {"bleu_score", "math_equal", "rouge_score"}
"""Metrics whose libraries take long to be imported."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in HEAVY else []) for name in OF_TEXTS]
)
def test_our_metrics_pass(name: str) -> None:
    answer = "A" if name == "multiple_choice" else "12"
    ab.check_metric(METRICS[name], [(answer, "something else")], right=(answer, answer))


def words(ground_truth: str, prediction: str) -> float:
    return len(prediction.split())


def takes_all(ground_truth: str, prediction: str, **options: Any) -> float:
    return 1.0


def wavers(ground_truth: str, prediction: str) -> float:
    return next(NUMBERS) / 1_000


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (words, "expected a score from 0 to 1"),
        (takes_all, "takes an option that there is not"),
        (wavers, "another score each time"),
        (lambda ground_truth, prediction: float("nan"), "expected a score"),
        (lambda ground_truth, prediction: "right", "expected a number"),
        (lambda ground_truth, prediction: 0.5, "found 0.5, expected 1.0"),
    ],
)
def test_a_broken_metric_is_noticed(metric: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_metric(metric, [("a b c", "a b c d")], right=("a", "a"))


SCORE = {"score": 7, "evidence": ["right"]}
SAID = json.dumps({"summary": "Fine.", "dimensions": dict.fromkeys(DIMENSIONS, SCORE), "overall": SCORE})


def judge_that_says(text: Any) -> Any:
    async def ask(messages: Any, judge: Any, case: Any) -> Any:
        return ab.JudgeReply(text) if isinstance(text, str) else text

    return ask


def test_a_judge_passes_that_keeps_the_contract() -> None:
    ab.check_judge(judge_that_says(SAID), model="any")


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (judge_that_says(SAID.replace("7", "70")), "breaks the contract"),
        (judge_that_says("Fine."), "breaks the contract"),
        (judge_that_says(None), "expected a JudgeReply"),
        (None, "expected `async"),
    ],
)
def test_a_broken_judge_is_noticed(judge: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ab.check_judge(judge)


def card_case(most: int = 2) -> ab.Case:
    from agentbench_sample.cards import Card

    return sample_case(parts={"card": Card(most_words=most)})


def test_graders_pass() -> None:
    grade = ab.check_grader(find_extension("grader", "card"), card_case(), sample_run("far too many words"))
    assert grade.failures == ("brevity: 4 words, expected at most 2",)
    used, judged = run(use("One:tool")), judgement((9, 9, 8, 8, 7, 7))
    job = SimpleNamespace(plan=SimpleNamespace(evaluation_profile=EvaluationProfile.default()))
    ab.check_grader(find_extension("grader", "mcp_task"), task("One"), used, judged=judged, job=job)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("part_name", None, "has no part_name"),
        ("identity", lambda self, services, job, case: {"at": next(NUMBERS)}, "changed between two calls"),
        ("decides", lambda self, case: None, "expected a bool"),
        ("regrade", ab.Grader.regrade, "regrade: its failures"),
    ],
)
def test_a_broken_grader_is_noticed(name: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grader = find_extension("grader", "card")
    monkeypatch.setattr(f"agentbench_sample.brevity.BrevityGrader.{name}", value)
    with pytest.raises(AssertionError, match=said):
        ab.check_grader(grader, card_case(), sample_run("far too many words"))


# tools, model providers, reports, commands


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
        (ab.Tool("t", "Says.", {"type": "object", "required": ["x"]}, say), "they do not take {}"),
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
    for broken, said in ((Rude, "changed the messages"), (lambda model: object(), "is not the one")):
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
        (write_two, "left other files"),
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
        ("row", lambda self, case, evaluation: {"words": 3}, "its row does not take"),
        ("row", lambda self, case, evaluation: None, "says nothing of a run"),
        ("schema", lambda self: {}, "its row does not take"),
        ("figures", lambda self, found: {"mean_words": "three"}, "expected a number"),
        ("figures", lambda self, found: {}, "has none of its model_figures"),
        ("summary", lambda self, models, dash: ("brevity", {"another": "x"}), "models that it was not given"),
        ("row_properties", lambda self, found: {"words": [3]}, "what a property of JUnit can hold"),
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
