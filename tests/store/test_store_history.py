from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.records.run import Usage
from pytest_agentbench.store.contents import read_history


class Output:
    """An output folder, written file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, document: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document if isinstance(document, str) else json.dumps(document))

    def run(self, cost, *, case="sum", profile="default_ab12cd34", model="gpt4o", name="run_1.json", **fields):
        document = {"status": "success", "usage": {"cost_usd": cost}, **fields}
        self.put(f"runs/suit_{profile}/run_profile_12345678/{model}/{case}/{name}", document)

    def verdict(self, profile="strict_0badcafe", *, case="sum", n=1, **fields):
        folder = f"evaluations/suit_default/evaluation_profile_12345678/eval_profile_{profile}/gpt4o/{case}"
        self.put(f"{folder}/final_result_{n}.json", fields)

    def history(self, profile="strict"):
        return read_history(str(self.root), "gpt4o", profile)

    def run_costs(self, case="sum"):
        return sorted(usage.cost_usd for usage in self.history().runs.get(case, ()))


@pytest.fixture
def output(tmp_path):
    return Output(tmp_path)


def test_an_output_folder_that_is_not_there_has_no_history(output):
    history = read_history(str(output.root / "none"), "gpt4o", "strict")
    assert (dict(history.runs), dict(history.verdicts)) == ({}, {})


def test_runs_of_all_suites_and_repetitions_and_superseded_ones_are_history(output):
    output.run(1.0)
    output.run(2.0, name="run_2.json")
    output.run(3.0, name="run_1.0badcafe.json")
    output.run(4.0, profile="nightly")
    output.run(9.0, model="other")
    output.run(7.0, case="other")
    assert output.run_costs() == [1.0, 2.0, 3.0, 4.0]
    assert output.run_costs("other") == [7.0]


def test_unreadable_runs_and_provider_errors_have_no_costs(output):
    output.run(1.0)
    output.run(2.0, name="run_2.json", status="failed")
    output.run(3.0, name="run_3.json", status="provider_error")
    output.run(4.0, name="run_4.fingerprint_input.json")
    output.run(5.0, name="run_5.json.unreadable")
    output.run(6.0, name="run_6.json", usage=None)
    output.run(7.0, name="run_7.json", usage={"cost_usd": "much"})
    for number, text in enumerate(("", "{", "[]", "null", "[" * 100_000), start=8):
        output.put(f"runs/suit_default/run_profile_12345678/gpt4o/sum/run_{number}.json", text)
    assert output.run_costs() == [1.0, 2.0]


def test_a_verdict_used_what_its_judge_and_its_metrics_did(output):
    metrics = [{"usage": {"cost_usd": 0.25, "total_tokens": 5}}, {"usage": None}, "?"]
    output.verdict(judge={"usage": {"cost_usd": 1.0, "total_tokens": 10}}, metrics=metrics)
    output.verdict(n=2, judge=None, judge_usage={"cost_usd": 3.0, "total_tokens": 1})
    output.verdict(n=3, judge=None, metrics=[])  # asked nobody
    used = [(usage.cost_usd, usage.total_tokens) for usage in output.history().verdicts["sum"]]
    assert sorted(used) == [(1.25, 15), (3.0, 1)]


def test_an_unknown_part_makes_the_sum_unknown(output):
    output.verdict(judge={"usage": {"cost_usd": 1.0}}, metrics=[{"usage": {}}])
    assert output.history().verdicts["sum"] == [Usage()]


def test_verdicts_of_other_profiles_are_not_counted(output):
    output.verdict("strict_0badcafe", judge={"usage": {"cost_usd": 1.0}})
    output.verdict("strict_00000000ab", n=2, judge={"usage": {"cost_usd": 2.0}})  # the profile as it once was
    output.verdict("strict_too_0badcafe", n=3, judge={"usage": {"cost_usd": 4.0}})
    assert sorted(usage.cost_usd for usage in output.history().verdicts["sum"]) == [1.0, 2.0]
    assert [usage.cost_usd for usage in output.history("strict_too").verdicts["sum"]] == [4.0]
