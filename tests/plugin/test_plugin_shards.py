from __future__ import annotations

import json
import re

import jsonschema
import pytest
from support.bench import check

from pytest_agentbench.cli import main
from pytest_agentbench.reports.reading import report_schema

FICKLE = """
import pytest
from pytest_agentbench import RunOutput, Usage

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        number = int(case.case_id.rpartition("q")[2])
        if number % 11 == 7:
            raise OSError("the endpoint is down")
        usage = Usage(input_tokens=number, output_tokens=1, total_tokens=number + 1, cost_usd=number / 1000)
        return RunOutput(output="Paris" if number % 3 else "Rome", usage=usage)
    return agent
"""
TIMES = ("duration_seconds", "started_at")


@pytest.fixture
def campaign(bench):
    """A dataset of 30 questions with fields and tags, some failed, some in error."""
    bench.agent(FICKLE)
    levels = ("easy", "hard", "odd")
    rows = [
        {
            "id": f"q{i}",
            "question": f"{i}?",
            "answer": "Paris",
            "difficulty": levels[i % 3],
            "tags": [f"t{i % 4}", "all"],
        }
        for i in range(30)
    ]
    bench.rows("cases/many.jsonl", *rows)
    bench.case("q1", thresholds={"pass_rate": 1.0})
    bench.case("q3", must_pass=True)
    return bench


def reports(bench, parts, *args):
    """The paths of the reports of all parts, each with a store of its own, as on machines of their own."""
    paths = []
    for part in range(1, parts + 1):
        path = f"report-{part}.json"
        bench.run(
            "cases",
            *args,
            f"--agentbench-shard={part}/{parts}",
            f"--agentbench-json={path}",
            f"--agentbench-output=outputs-{part}",
        )
        paths.append(str(bench.path / path))
    return paths


def load(path):
    return json.loads((path).read_text(encoding="utf-8"))


def timeless(value):
    """The value without what differs from session to session: times, stores."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in TIMES}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def without_spent(totals):
    return {key: value for key, value in totals.items() if key != "spent_usd"}, totals["spent_usd"]


def assert_same_figures(merged, whole):
    merged["totals"], spent = without_spent(merged["totals"])
    whole["totals"], wholly = without_spent(whole["totals"])
    assert spent == pytest.approx(wholly)  # sums of the same numbers in another order
    for part in ("totals", "models", "datasets", "cases", "runs"):
        assert timeless(merged[part]) == timeless(whole[part]), part
    assert all(whole["totals"][outcome] for outcome in ("passed", "failed", "errors"))
    assert merged["session"]["exit_status"] == whole["session"]["exit_status"]
    assert merged["session"]["gate"] == whole["session"]["gate"]
    assert merged["session"]["profiles"] == whole["session"]["profiles"]
    assert merged["session"]["warnings"] == whole["session"]["warnings"]


@pytest.mark.slow
@pytest.mark.parametrize("gated", [(), ("--agentbench-fail-under=0.6", "--agentbench-min-completion=0.5")])
def test_eight_shards_merge_to_the_report_of_the_whole(campaign, gated, capsys):
    options = ("--agentbench-repetitions=3", *gated)
    whole = campaign.run("cases", *options, "--agentbench-output=outputs").report
    paths = reports(campaign, 8, *options)
    capsys.readouterr()
    code = main(["merge", *reversed(paths), "-o", str(campaign.path / "merged.json")])
    merged = load(campaign.path / "merged.json")
    assert code == whole["session"]["exit_status"] == 1
    jsonschema.Draft202012Validator(report_schema()).validate(merged)
    assert_same_figures(merged, whole)
    shown = capsys.readouterr().out
    assert "96 runs: " in shown
    assert ("gate failed:" in shown) == bool(gated)


def test_cases_are_dealt_in_turn_with_models_and_repetitions_together(bench):
    bench.models({"model_id": "demo"}, {"model_id": "other", "scripted": True})
    for case_id in "abcde":
        bench.case(case_id)
    both = ("--model=demo", "--model=other", "--agentbench-repetitions=2", "--collect-only", "-q")
    shown = [bench.run(*both, f"--agentbench-shard={part}/2").result.outlines for part in (1, 2)]
    dealt = [[line.partition("::")[2] for line in lines if "::" in line] for lines in shown]
    assert [sorted({name[0] for name in names}) for names in dealt] == [["a", "c", "e"], ["b", "d"]]
    assert [len(names) for names in dealt] == [12, 8]


@pytest.mark.slow
def test_parts_know_what_they_were_made_from(bench):
    """Another profile or an edited case is other inputs."""
    bench.agent()
    bench.questions(4)
    bench.profile("careful", run_timeout_seconds=7)

    def inputs(*args):
        return bench.run(*args).report["session"]["selection"]["inputs"]

    first = inputs("--agentbench-shard=1/2")
    assert inputs("--agentbench-shard=2/2") == first
    assert inputs("--agentbench-shard=2/2", "--agentbench-run-profile=careful") != first
    bench.questions(4, answer="Rome")
    assert inputs("--agentbench-shard=2/2") != first


def test_only_selected_cases_are_dealt_to_shards(bench):
    bench.agent()
    bench.questions(12)
    kept = "-k=q1 or q2 or q3"  # q1, q10, q11, q2, q3 in file order: q1 q2 q3 q10 q11
    assert list(bench.run(kept, "--agentbench-shard=2/2").runs) == ["cases/many.q2[agent]", "cases/many.q10[agent]"]


@pytest.mark.slow
def test_tests_that_are_no_cases_are_of_the_first_part(bench):
    bench.agent()
    bench.questions(4)
    bench.write("test_plain.py", "def test_plain(): assert False\n")
    first, second = (bench.run(f"--agentbench-shard={part}/2") for part in (1, 2))
    first.result.assert_outcomes(passed=2, failed=1, deselected=2)
    second.result.assert_outcomes(passed=2, deselected=3)
    assert first.report["session"]["faults"] == ["1 test that is no case failed."]
    assert second.report["session"]["faults"] == []


def test_a_part_without_a_case_is_fine_and_says_so(bench):
    bench.agent()
    bench.questions(2)
    finished = bench.run("--agentbench-shard=3/3", "--agentbench-fail-under=0.9")
    assert finished.exit == 0
    assert finished.report["runs"] == []
    assert finished.report["session"]["shard"] == "3/3"
    assert finished.report["session"]["selection"]["runs"] == 2


def test_a_dry_run_of_a_part_without_a_case_writes_no_report(bench):
    bench.agent()
    bench.questions(2)
    finished = bench.run("--agentbench-shard=3/3", "--agentbench-dry-run")
    assert finished.exit == 0
    assert finished.report is None


def test_a_dry_run_counts_the_part(bench):
    bench.models({"model_id": "demo"})
    bench.questions(5)
    finished = bench.run("--model=demo", "--agentbench-shard=2/2", "--agentbench-dry-run")
    assert finished.exit == 0
    assert re.search(r"^demo +2 ", finished.text, re.MULTILINE)


def test_a_selection_without_a_case_is_pytests_own(bench):
    bench.agent()
    bench.questions(2)
    assert bench.run("-k=nothing", "--agentbench-shard=1/2").exit == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2", "٢/٣"])
def test_a_wrong_part_is_refused(bench, wrong):
    bench.questions(1)
    finished = bench.run(f"--agentbench-shard={wrong}")
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert f"found {wrong!r}, expected I/N" in finished.text


@pytest.mark.slow
def test_workers_split_a_part_further(campaign):
    alone, spread = (
        campaign.run("cases", *extra, "--agentbench-shard=2/3", "--agentbench-no-reuse", "--agentbench-concurrency=4")
        for extra in ((), ("-n", "2"))
    )
    assert spread.report["session"]["selection"] == alone.report["session"]["selection"]
    assert timeless(spread.report["runs"]) == timeless(alone.report["runs"])
    empty = campaign.run("cases", "-n", "2", "--agentbench-shard=50/50")
    assert empty.exit == 0
    assert empty.report["session"]["selection"]["places"] == []


@pytest.mark.slow
def test_a_part_is_not_merged_if_all_its_workers_crashed(bench, capsys):
    bench.agent("import os, pytest\n@pytest.fixture(scope='session')\ndef agentbench_runner():\n    os._exit(3)\n")
    bench.questions(2)
    bench.run("-n", "1", "--max-worker-restart=0", "--agentbench-shard=1/1", "--agentbench-json=lost.json")
    assert main(["merge", str(bench.path / "lost.json")]) == 1
    assert "workers crashed" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lf", "--sw", "--sw-skip"])
def test_options_that_select_different_cases_per_shard_are_refused(bench, option):
    """pytest applies these before the deal: of two failures of part 1, `--lf` would give part 2 the second."""
    bench.agent()
    bench.questions(2)
    finished = bench.run("-p", "cacheprovider", "-p", "stepwise", option, "--agentbench-shard=1/2")
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert f"--agentbench-shard: found 1/2 together with {option[:4]}" in finished.text
    assert finished.report is None


@pytest.mark.slow
def test_another_order_of_cases_does_not_change_the_shards(bench):
    bench.agent()
    for case_id in "abcdef":
        bench.case(
            case_id,
            deterministic_checks=[check("it", kind="regex_match", pattern="Paris" if case_id in "bdf" else "Rome")],
        )
    bench.run("-p", "cacheprovider")
    parts = [bench.run("-p", "cacheprovider", "--ff", f"--agentbench-shard={part}/2").runs for part in (1, 2)]
    assert [sorted(run["case_id"] for run in runs.values()) for runs in parts] == [["a", "c", "e"], ["b", "d", "f"]]
