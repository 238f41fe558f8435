"""Variants of cases: ids, selection, reuse of stored runs, mistakes, and the parameters of agentbench_runner."""

from __future__ import annotations

import json

import pytest
from support.bench import HEAD

from pytest_agentbench.cli import main
from pytest_agentbench.config.variants import VariantFields
from pytest_agentbench.engine.variants import Variant
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.records.case import Case, RunnerSpec
from pytest_agentbench.reports.ci.document import report_markdown
from pytest_agentbench.reports.ci.sections import Places

SAYS_PROMPT = (
    HEAD
    + """
async def agent(case, context):
    note("runs.txt", case.case_id)
    return " / ".join(f"{m.role}: {m.content}" for m in case.messages) + f" {dict(context.settings)} Paris"
agent.model_id = "bot"
"""
)
"""A conftest.py whose agent answers with its messages and settings, and appends the id of each asked case to a file."""

SHORT = {"base": {}, "short": {"system": "Be brief."}}


@pytest.fixture
def project(bench):
    """A project with one case and an agent that shows what it was asked."""
    bench.agent(SAYS_PROMPT)
    bench.case("one")
    suite(bench, {})  # the configuration root is looked up once
    return bench


def suite(bench, variants, **fields):
    content = {"schema_version": 1, "suite_id": "ab", "title": "AB", "variants": variants, **fields}
    return bench.write("cases/suites/ab.yaml", json.dumps(content))


def run(bench, *args):
    return bench.run("cases", "--agentbench-suite", "ab", *args)


def test_each_case_runs_in_each_variant_next_to_each_other(project):
    project.case("two")
    suite(project, SHORT)
    finished = run(project, "--agentbench-repetitions", "2", "--junit-xml", "junit.xml")
    names = ["base", "base-r2", "short", "short-r2"]
    assert [*finished.outcomes] == [f"{case}[agent:{name}]" for case in ("one", "two") for name in names]
    assert {(row["model_id"], row["variant"]) for row in finished.runs.values()} == {("bot", "base"), ("bot", "short")}
    assert "system: Be brief." in finished.runs["one[agent:short]"]["answer"]
    assert "system" not in finished.runs["one[agent:base]"]["answer"]
    assert [(each["model_id"], each["variant"], each["runs"]) for each in finished.report["models"]] == [
        ("bot", "base", 4),
        ("bot", "short", 4),
    ]
    assert finished.report["reference_variant"] == "base"
    entry = finished.report["variants"]["short"]
    assert (entry["as_written"], entry["changed"]) == ({"system": "Be brief."}, ["system"])
    assert '<property name="agentbench.variant" value="short"' in (project.path / "junit.xml").read_text()
    finished.result.stdout.fnmatch_lines(["bot:base *", "bot:short *"])


def test_a_rename_reruns_nothing_and_an_edit_reruns_one_variant(project):
    assert project.run("cases").outcomes == {"one[agent]": "passed"}
    suite(project, {**SHORT, "cold": {"parameters": {"temperature": 0}}})
    assert run(project).exit == 0
    assert len(project.lines("runs.txt")) == 3  # the case as it stands was stored before there were variants
    suite(project, {"plain": {}, "brief": {"system": "Be brief."}, "cold": {"parameters": {"temperature": 0.5}}})
    renamed = run(project)
    assert len(project.lines("runs.txt")) == 4
    assert [row["reused"] for row in renamed.runs.values()] == [True, True, False]
    assert renamed.runs["one[agent:brief]"]["artifact"] != renamed.runs["one[agent:plain]"]["artifact"]
    assert project.run("cases").runs["one[agent]"]["reused"]


def test_declaring_variants_in_a_run_profile_keeps_stored_runs(project):
    project.profile("quick")
    assert project.run("cases", "--agentbench-run-profile", "quick").exit == 0
    project.profile("quick", variants=SHORT)
    finished = project.run("cases", "--agentbench-run-profile", "quick")
    assert [row["reused"] for row in finished.runs.values()] == [True, False]


def test_the_command_line_selects_adds_and_replaces_variants(project):
    suite(project, SHORT)
    assert [*run(project, "--agentbench-variant", "short").outcomes] == ["one[agent:short]"]
    assert [*run(project, "-k", "short").outcomes] == ["one[agent:short]"]
    project.write("prompts/long.md", "Think first.\n")
    added = run(
        project,
        "--agentbench-variant",
        "short={system: Be kind.}",
        "--agentbench-variant",
        "long={system_file: prompts/long.md}",
    )
    assert [*added.outcomes] == ["one[agent:base]", "one[agent:short]", "one[agent:long]"]
    assert "system: Be kind." in added.runs["one[agent:short]"]["answer"]
    assert "system: Think first. /" in added.runs["one[agent:long]"]["answer"]
    project.write("pytest.ini", "[pytest]\nagentbench_variant =\n    base\n    mild={append_system: Be mild.}\n")
    assert [*run(project).outcomes] == ["one[agent:base]", "one[agent:mild]"]


def test_a_variant_wins_over_profile_and_case_and_changes_single_fields(project):
    project.case("one", runner={"type": "llm_probe", "temperature": 0.5}, metadata={"shop": "a"})
    fields = {"parameters": {"temperature": 0}, "runner": {"max_turns": 3}}
    case = {
        "input.messages.0.content": "Which city?",
        "deterministic_checks.0.declarative.pattern": "Rome",
        "runner.seed": 7,
    }
    suite(project, {"changed": {**fields, "case": case}, "base": {}}, reference_variant="base")
    finished = run(project)
    assert finished.outcomes == {"one[agent:changed]": "failed", "one[agent:base]": "passed"}
    answer = finished.runs["one[agent:changed]"]["answer"]
    assert "user: Which city? " in answer
    assert all(text in answer for text in ("'temperature': 0,", "'max_turns': 3", "'seed': 7"))
    assert finished.report["reference_variant"] == "base"


def test_a_change_of_checks_judges_stored_runs_again(project):
    suite(project, {"base": {}, "rome": {"case": {"deterministic_checks.0.declarative.pattern": "Par"}}})
    run(project)
    suite(project, {"base": {}, "rome": {"case": {"deterministic_checks.0.declarative.pattern": "Rome"}}})
    assert run(project).outcomes == {"one[agent:base]": "passed", "one[agent:rome]": "failed"}


def test_a_prompt_is_the_template_of_rows_and_a_text_in_cases(project):
    project.rows("cases/sums.jsonl", {"id": "q", "question": "1+1?", "answer": "2", "metadata": {"level": "easy"}})
    project.case("one", input={"messages": [{"role": "user", "content": "{{ prompt }} The capital?"}]})
    suite(project, {"kind": {"prompt": "Please: {{ question }} ({{ level }})"}})
    assert "user: Please: 1+1? (easy) " in run(project, "cases/sums.jsonl").runs["sums.q[agent:kind]"]["answer"]
    suite(project, {"kind": {"prompt": "Be kind."}})
    assert "user: Be kind. The capital? " in run(project, "cases/one").runs["one[agent:kind]"]["answer"]


def test_a_case_that_waits_for_a_prompt_gets_one_in_each_variant(project):
    project.case("one", input={"messages": [{"role": "user", "content": "{{ prompt }} The capital?"}]})
    suite(project, {"base": {}, "kind": {"prompt": "Be kind."}})
    text = run(project).text
    assert "variants.base: has no prompt, and the case has {{ prompt }} in its messages; add one (1 of the" in text
    assert not project.lines("runs.txt")


def test_an_aa_variant_makes_runs_of_its_own(project):
    suite(project, {"base": {}, "again": {"aa": True}})
    run(project)
    assert len(project.lines("runs.txt")) == 2
    assert [row["reused"] for row in run(project).runs.values()] == [True, True]


def test_variants_are_compared_with_the_reference_case_by_case(bench):
    bench.agent(HEAD + "def agent(case): return 'Paris' if any(m.role == 'system' for m in case.messages) else 'Rome'")
    bench.questions(8)
    suite(bench, {"short": {"system": "Be brief."}, "base": {}}, reference_variant="base")
    finished = run(bench)
    [compared] = finished.report["column_comparisons"]
    assert (compared["model_id"], compared["baseline_model_id"]) == ("agent:short", "agent:base")
    assert (compared["verdict"], compared["cases"]["paired"]) == ("better", 8)
    finished.result.stdout.fnmatch_lines(["variants compared with base", "  agent:short against agent:base: * better."])
    comment = report_markdown(finished.report, Places(bench.path))
    assert "### <code>variants compared with base</code>" in comment
    assert "<code>agent&#58;base</code> | 8 | 0.0 % | 100.0 % | +100.0 points |" in comment


@pytest.mark.slow
def test_workers_and_merged_shards_report_variants_too(project):
    project.case("two")
    suite(project, SHORT)
    finished = run(project, "-n2")
    assert sorted(finished.outcomes) == [f"{case}[agent:{name}]" for case in ("one", "two") for name in SHORT]
    assert [*finished.report["variants"]] == ["base", "short"]
    for part in ("1", "2"):
        run(project, "--agentbench-shard", f"{part}/2", "--agentbench-json", f"{part}.json")
    assert main(["merge", "1.json", "2.json", "--output", "merged.json"]) == 0
    merged = json.loads((project.path / "merged.json").read_text())
    assert merged["variants"] == finished.report["variants"]
    assert [(each["variant"], each["runs"]) for each in merged["models"]] == [("base", 2), ("short", 2)]


def test_a_hand_written_test_runs_in_each_variant(project):
    project.write(
        "cases/test_it.py",
        "import pytest\n"
        "@pytest.mark.parametrize('city', ['Paris', 'Rome'])\n"
        "@pytest.mark.agentbench('one')\n"
        "def test_it(agentbench_run, city): assert agentbench_run.case.messages and city in agentbench_run.output\n",
    )
    suite(project, SHORT)
    rows = project.run("cases/test_it.py", "--agentbench-suite", "ab").runs.values()
    found = {(row["variant"], row["parameters"], row["outcome"]) for row in rows}
    assert found == {(name, city, end) for name in SHORT for city, end in (("Paris", "passed"), ("Rome", "failed"))}


MISTAKES = {
    "unknown key": ({"a": {"sytem": "x"}}, "ab.yaml:1:*: variants.a.sytem: unknown field; did you mean 'system'?"),
    "name": ({"a b": {}}, "*variants.a b: found 'a b', expected up to 40 letters, digits*"),
    "repetition": ({"a-r2": {}}, "*found 'a-r2', which ends like a repetition's id*"),
    "both": ({"a": {"prompt": "x", "prompt_file": "../one/test.yaml"}}, "*Specify only one of 'prompt' and*"),
    "equal": ({"a": {}, "b": {"parameters": {}}}, "*variants a and b are equal, so that a run would be compared*"),
    "many": (
        {f"v{number}": {"system": str(number)} for number in range(21)},
        "*found 21 variants, expected at most 20*",
    ),
    "large": ({"a": {"system": "x" * 70_000}}, "*bytes, expected at most 65,536; put long texts into files*"),
    "path": (
        {"a": {"case": {"rubric.scale.max": 5}}},
        "*variants.a.case.rubric.scale.max: the case has no 'scale' there (1 of the*",
    ),
    "id": ({"a": {"case": {"case_id": "x"}}}, "*case_id: cannot be changed by a variant, unlike runner*"),
    "check id": ({"a": {"case": {"deterministic_checks.0.check_id": "x"}}}, "*changes the checks' ids*"),
    "turn": (
        {"a": {"case": {"deterministic_checks.0.turn": 2}}},
        "*variants.a.case: a check's or an expectation's turn: found 2, and the case has no turns*",
    ),
    "prompt": (
        {"a": {"prompt": "x"}},
        "*variants.a.prompt: the case has no {{ prompt }} in its messages*such as one)*",
    ),
    "agent": ({"a": {"agent": "codex"}}, "*found 'codex', but the fixture agentbench_runner replaces the agents*"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_variant_is_named_before_anything_runs(project, name):
    variants, message = MISTAKES[name]
    suite(project, variants)
    finished = run(project)
    assert finished.exit != 0
    assert not project.lines("runs.txt")
    assert any(_matches(line, message) for line in finished.text.splitlines()), finished.text


def _matches(line, pattern):
    from fnmatch import fnmatchcase

    return fnmatchcase(line, "*" + pattern.replace("[", "[[]"))


def test_an_unknown_name_is_refused_with_the_known_ones(project):
    suite(project, SHORT)
    finished = run(project, "--agentbench-variant", "shrt")
    assert finished.exit == 4
    assert "--agentbench-variant: unknown variant 'shrt'; did you mean 'short'?" in finished.text
    wrong = run(project, "--agentbench-variant", "x={sytem: y}")
    assert wrong.exit == 4
    assert "--agentbench-variant x:1:2: sytem: unknown field; did you mean 'system'?" in wrong.text
    assert not project.lines("runs.txt")


def test_equal_variants_of_the_command_line_are_refused(project):
    options = [text for name in ("a", "b") for text in ("--agentbench-variant", f"{name}={{system: x}}")]
    text = project.run("cases", *options).text
    assert "--agentbench-variant b: variants a and b are equal" in text
    assert not project.lines("runs.txt")


def test_predictions_have_no_variants(project):
    project.rows("answers.jsonl", {"id": "one", "prediction": "Paris"})
    finished = project.run("cases", "--agentbench-predictions", "answers.jsonl", "--agentbench-variant", "a={}")
    assert finished.exit == 4
    assert "together with --agentbench-variant a={}" in finished.text


def test_variants_in_two_places_are_refused_with_both_files(project):
    suite(project, SHORT)
    project.profile("quick", variants={"other": {"system": "x"}})
    text = run(project, "--agentbench-run-profile", "quick").text
    assert "suites/ab.yaml and " in text
    assert "run_profiles/quick.yaml, expected one place" in text


PARAMETRISED = """
import pytest

@pytest.fixture(scope="session", params=["a b", "c"])
def name(request):
    return request.param

@pytest.fixture(scope="session")
def agentbench_runner(name):
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(name + "\\n")
        return f"Paris by {name}"
    agent.model_id = "bot"
    return agent
"""


def test_parameters_of_the_agents_fixture_are_variants(bench):
    bench.agent(PARAMETRISED)
    bench.case("one")
    bench.case("two")
    finished = bench.run("cases")
    assert {name: row["answer"] for name, row in finished.runs.items()} == {
        f"{case}[agent:{variant}]": f"Paris by {name}"
        for case in ("one", "two")
        for variant, name in (("a_b", "a b"), ("c", "c"))
    }
    assert [(each["model_id"], each["variant"]) for each in finished.report["models"]] == [("bot", "a_b"), ("bot", "c")]
    bench.agent(PARAMETRISED.replace('"c"]', '"d"]'))
    assert [row["reused"] for row in bench.run("cases").runs.values()] == [True, True, False, False]


def test_declared_variants_cross_with_parameters_of_the_agents_fixture(bench):
    bench.agent(PARAMETRISED)
    bench.case("one")
    suite(bench, SHORT)
    names = ["a_b+base", "a_b+short", "c+base", "c+short"]
    assert sorted(run(bench).outcomes) == [f"one[agent:{name}]" for name in names]
    assert sorted(bench.lines("runs.txt")) == ["a b", "a b", "c", "c"]


def test_parameters_with_equal_names_are_refused(bench):
    bench.agent(PARAMETRISED.replace('"c"]', '"a_b"]'))
    bench.case("one")
    assert "both become the variant 'a_b'; give them other ids" in bench.run("cases").text


def test_a_session_has_a_limited_number_of_columns(bench):
    bench.agent(PARAMETRISED.replace('["a b", "c"]', "[str(number) for number in range(101)]"))
    bench.case("one")
    suite(bench, SHORT)
    assert "found 202 columns (models or agents, each in each variant), expected at most 200" in run(bench).text


def test_a_session_fails_if_one_arm_is_skipped_whole(bench):
    bench.case("one")
    suite(bench, {"base": {}, "codex": {"agent": "codex"}})
    finished = run(bench, "--agentbench-model", "demo")
    assert (
        "variant codex: agent codex runs cases of the runner agent" in finished.runs["one[codex+demo:codex]"]["message"]
    )
    assert "No pairs: all 1 runs of codex+demo:codex were skipped." in finished.report["session"]["faults"]
    assert finished.exit == 1


def test_a_program_is_skipped_in_a_variant_that_it_cannot_have(tmp_path):
    case = Case(case_id="one", title="One", path=tmp_path, runner=RunnerSpec(type="agent", agent="codex"))
    with pytest.raises(UnavailableError, match="variant a: the runner agent "):
        Variant("a", VariantFields(system="Be brief.")).make_case(lambda: case)


def dataset(bench, variants, name="sums", **fields):
    bench.rows(f"cases/{name}/rows.jsonl", {"id": "q", "question": "1+1?", "answer": "2"})
    content = {"schema_version": 1, "files": ["rows.jsonl"], "name": name, "variants": variants, **fields}
    content["metrics"] = [{"name": "contains_answer", "threshold": 1.0}]
    return bench.write(f"cases/{name}/dataset.yaml", json.dumps(content))


def test_a_dataset_declares_variants_of_its_own_rows(project):
    project.write("cases/sums/short.md", "Be brief.\n")
    dataset(project, {"base": {}, "short": {"system_file": "short.md"}}, reference_variant="base")
    finished = project.run("cases")
    assert [*finished.outcomes] == ["one[agent]", "sums.q[agent:base]", "sums.q[agent:short]"]
    assert "system: Be brief." in finished.runs["sums.q[agent:short]"]["answer"]
    assert finished.report["reference_variant"] == "base"
    assert [each["model_id"] for each in finished.report["column_comparisons"]] == ["bot:short"]
    assert [*project.run("cases", "--agentbench-variant", "short").outcomes] == ["sums.q[agent:short]"]
    added = project.run("cases", "--agentbench-variant", "kind={system: Be kind.}")
    assert [*added.outcomes] == ["one[agent:kind]", *(f"sums.q[agent:{name}]" for name in ("base", "short", "kind"))]


def test_a_case_declares_variants_of_its_own(project):
    project.write("cases/prompts/polite.txt", "Please name {{ what }}.\n")
    variants = {"plain": {"prompt": "Name {{ what }}!"}, "polite": {"prompt_file": "../prompts/polite.txt"}}
    content = {"messages": [{"role": "user", "content": "Hi. {{ prompt }}"}]}
    project.case("two", input=content, metadata={"vars": {"what": "the capital of France"}}, variants=variants)
    finished = project.run("cases")
    assert [*finished.outcomes] == ["one[agent]", "two[agent:plain]", "two[agent:polite]"]
    assert "user: Hi. Please name the capital of France. " in finished.runs["two[agent:polite]"]["answer"]
    project.case("two", input=content, metadata={"vars": {"who": "Ann"}}, variants=variants)
    text = project.run("cases").text
    assert "variants.plain.prompt: the case's metadata.vars has no 'what'; there is who" in text


def test_mistakes_in_a_datasets_variants_are_named_with_their_place(project):
    dataset(project, SHORT)
    unknown = project.run("cases", "--agentbench-variant", "shrt")
    assert (unknown.exit, project.lines("runs.txt")) == (4, [])
    assert "--agentbench-variant: unknown variant 'shrt'; did you mean 'short'?" in unknown.text
    dataset(project, {"short": {"system": "Be very brief."}}, name="terms")
    text = project.run("cases").text
    assert "cases/terms/dataset.yaml:1:" in text
    assert "variants.short: found another variant of this name in " in text
    suite(project, {"other": {"system": "x"}})
    assert "sums/dataset.yaml, expected one place" in run(project).text


def test_a_guests_dataset_declares_no_variants(project):
    project.write("cases/vendor/models.yaml", {"schema_version": 1})
    dataset(project, {"a": {"runner": {"type": "command", "command": ["true"]}}}, name="vendor")
    text = project.run("cases").text
    assert "variants: found variants, which may change any setting, in a folder that is not trusted" in text


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        (40, "2 columns, 40 common cases: a difference of 19.0 points in pass rate is found 8 times in 10, at best"),
        (5, "2 columns, 5 common cases: too few to show any difference in pass rate"),
    ],
)
def test_the_difference_that_columns_can_show_is_named_before_anything_runs(bench, cases, said):
    bench.agent(SAYS_PROMPT)
    bench.questions(cases)
    suite(bench, SHORT)
    finished = run(bench, "--agentbench-dry-run")
    assert f"agentbench: {said}; compared: agent:short with agent:base" in finished.text
    assert not bench.lines("runs.txt")
    assert "common case" not in bench.run("cases", "--agentbench-dry-run").text


PAIRS = {
    "datasets with variants of their own": ((), "agent:short with agent:base, agent:kind with agent:plain"),
    "without a reference": (("-k", "not base"), "agent:kind with agent:plain"),
    "models": (
        ("--model", "first", "--model", "second"),
        "second with first, first:short with first:base, second:short with second:base, 2 other pairs",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_line_before_a_session_and_its_verdicts_name_the_same_pairs(project, name):
    options, said = PAIRS[name]
    project.write("cases/models.yaml", {"schema_version": 1, "models": [{"model_id": "first"}, {"model_id": "second"}]})
    dataset(project, {"short": {"system": "Be brief."}, "base": {}}, reference_variant="base")
    dataset(project, {"kind": {"system": "Be kind."}, "plain": {}}, name="terms", reference_variant="plain")
    finished = project.run("cases", *options)
    assert f"; compared: {said}\n" in finished.text
    compared = finished.report["column_comparisons"]
    pairs = [f"{each['model_id']} with {each['baseline_model_id']}".replace("bot", "agent") for each in compared]
    *named, last = said.split(", ")
    assert pairs[: len(named)] == named
    assert last in (f"{len(pairs) - len(named)} other pairs", pairs[-1])
