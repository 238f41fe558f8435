"""`agentbench export inspect`: a report as logs that Inspect's viewer opens."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from exporting import Exporting, exporting, read_members
from sdks.sdks_support import needs

from pytest_agentbench.cli import main

__all__ = ["exporting"]

VARIABLE = "AGENTBENCH_TEST_INSPECT"
"""Names a virtual environment with inspect-ai."""
READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample

(info,) = list_eval_logs(sys.argv[1])
log = read_eval_log(info)
tooled = read_eval_log_sample(info, id="tooled", epoch=2)
print(json.dumps({
    "name": [info.task, info.task_id == log.eval.task_id],
    "status": log.status,
    "samples": sorted((sample.id, sample.epoch, bool(sample.error)) for sample in log.samples),
    "score": tooled.scores["agentbench"].value,
    "answer": tooled.output.completion,
    "tokens": tooled.model_usage["demo"].total_tokens,
    "events": [event.event for event in tooled.events],
    "roles": [message.role for message in tooled.messages],
    "summaries": len(log.samples),
}))
"""


def export_one(exporting: Exporting) -> Path:
    code, out, err = exporting.call("inspect", "logs")
    assert (code, err) == (0, ""), err
    (path,) = Path("logs").iterdir()
    assert out == f"{path}: 6 runs of demo\n"
    return path


def test_a_log_has_messages_events_scores_and_tokens_of_each_repetition(exporting):
    path = export_one(exporting)
    time, task, log_id = path.stem.split("_")
    members = read_members(path)
    samples = [f"samples/{case}_epoch_{epoch}.json" for case in ("down", "tooled", "wrong") for epoch in (1, 2)]
    assert sorted(members) == ["_journal/start.json", "header.json", *samples, "summaries.json"]
    header = members["header.json"]
    assert (header["status"], header["eval"]["task_id"], task) == ("success", log_id, "default")
    assert header["eval"]["created"].replace(":", "-").replace("+", "-") == time
    assert header["eval"]["config"] == {"epochs": 2}
    assert header["results"]["scores"][0]["metrics"]["pass_rate"]["value"] == 0.5

    tooled = members["samples/tooled_epoch_2.json"]
    assert [message["role"] for message in tooled["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = tooled["messages"][2]["tool_calls"]
    assert (call["function"], call["arguments"]["append"]) == ("write_file", False)
    assert tooled["messages"][3]["tool_call_id"] == call["id"]
    assert tooled["input"] == tooled["messages"][:2]
    assert tooled["output"]["choices"][0]["stop_reason"] == "stop"
    assert [event["event"] for event in tooled["events"]] == ["sample_init", "model", "tool", "model", "score"]
    (row,) = (row for row in json.loads(exporting.report.read_text())["runs"] if "tooled[demo-r2]" in row["nodeid"])
    assert tooled["model_usage"]["demo"]["total_tokens"] == row["usage"]["total_tokens"] > 0

    assert members["samples/wrong_epoch_1.json"]["scores"]["agentbench"]["value"] == "I"
    down = members["samples/down_epoch_1.json"]
    assert "overloaded" in down["error"]["message"]
    assert down["scores"] == {}


def test_the_import_reads_the_ids_and_answers_of_an_exported_log(exporting):
    path = export_one(exporting)
    assert main(["import", "inspect", str(path), "-o", "cases/back"]) == 0
    rows = [json.loads(line) for line in Path("cases/back/predictions.jsonl").read_text().splitlines()]
    # A row of a dataset has the file's name before its id.
    answers = {row["id"].rpartition("-")[2]: set(row["prediction"]) for row in rows}
    assert answers == {"tooled": {"Paris, noted. \u2713"}, "wrong": {"Rome"}}


def test_a_pass_with_skipped_checks_is_partial_and_a_skipped_run_is_no_sample(exporting):
    def skip(report: dict[str, Any]) -> None:
        for row in report["runs"]:
            if row["case_id"] == "tooled":
                row["checks"].append({**row["checks"][0], "check_id": "more", "outcome": "skipped"})
            if row["case_id"] == "wrong":
                row["outcome"] = "skipped"

    exporting.change(skip)
    exporting.call("inspect", "logs")
    (path,) = Path("logs").iterdir()
    members = read_members(path)
    assert members["samples/tooled_epoch_1.json"]["scores"]["agentbench"]["value"] == "P"
    assert not any("wrong" in name for name in members)
    assert members["header.json"]["eval"]["metadata"]["skipped_runs"] == 2


def test_a_strangers_report_leads_neither_out_of_the_folders_nor_to_other_files(exporting, tmp_path):
    def attack(report: dict[str, Any]) -> None:
        report["session"]["profiles"]["suite"] = "../../up"
        report["session"]["duration_seconds"] = 1e15
        for row in report["runs"]:
            row["case_id"] = "../../../evil\ud800"
            row["model_id"] = "/etc/x"
            row["artifact"] = "../../report.json"

    exporting.change(attack)
    code, _, _ = exporting.call("inspect", "logs/deep")
    assert code == 0
    (path,) = Path("logs/deep").iterdir()
    assert list(Path("logs").iterdir()) == [Path("logs/deep")]
    names = [name for name in read_members(path) if name.startswith("samples/")]
    assert len(names) == 6
    assert not any(".." in name or "//" in name for name in names)


def test_runs_that_are_not_stored_keep_the_texts_of_the_report(exporting):
    code, _, err = exporting.call("inspect", "logs", "--runs", "elsewhere")
    assert code == 0
    assert "elsewhere" in err
    (path,) = Path("logs").iterdir()
    sample = read_members(path)["samples/wrong_epoch_1.json"]
    assert sample["messages"] == []
    assert sample["output"]["completion"] == "Rome"


@pytest.mark.full
@needs(VARIABLE)
def test_inspect_reads_an_exported_log(exporting):
    export_one(exporting)
    python = str(Path(os.environ[VARIABLE]) / "bin/python")
    done = subprocess.run([python, "-c", READ, "logs"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["name"] == ["default", True]
    assert facts["status"] == "success"
    assert facts["samples"] == [[name, n, name == "down"] for name in ("down", "tooled", "wrong") for n in (1, 2)]
    assert (facts["score"], facts["answer"]) == ("C", "Paris, noted. \u2713")
    assert facts["tokens"] > 0
    assert facts["events"] == ["sample_init", "model", "tool", "model", "score"]
    assert facts["roles"] == ["system", "user", "assistant", "tool", "assistant"]
