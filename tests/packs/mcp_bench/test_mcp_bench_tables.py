from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from statistics import fmean

import pytest
from support.tool_use_runs import judgement, note, run, task, task_row, use

from pytest_agentbench.cli import main
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.report import build_report

pty = pytest.importorskip("pty")


def row(model, case_id, *servers, score, rounds=1, status="success", repetition=1):
    events = [event for at in range(rounds) for event in (note("round", number=at), *use(f"{servers[0]}:tool"))]
    artifact = run(events, usage=Usage(input_tokens=9, output_tokens=1, total_tokens=10), status=status)
    judged = None if score is None else judgement((score,) * 6)
    return task_row(task(*servers, case_id=case_id), artifact, judged, model, repetition)


ROWS = [
    row("small", "one", "A", score=2, rounds=17),
    row("small", "two", "A", "B", score=4),
    row("large", "one", "A", score=8, rounds=7),
    row("large", "two", "A", "B", score=9.2, rounds=9),
]


@pytest.fixture
def report(tmp_path):
    return save(tmp_path / "report.json", ROWS)


def save(path, rows):
    path.write_text(json.dumps(build_report(rows, {"profiles": {}})), encoding="utf-8")
    return str(path)


def overall(score):
    return (1 + 3 * score / 10) / 4


def printed(capsys, *arguments):
    assert main(["mcp", "report", *arguments]) == 0
    return capsys.readouterr().out


def markdown(capsys, *arguments):
    """Return the cells of each table by its title."""
    found = {}
    for block in printed(capsys, *arguments, "--markdown").split("**")[1:]:
        if "|" not in block:
            title = block
        else:
            lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("| ")]
            found[title] = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    return found


def test_the_tables_have_the_papers_columns_and_the_best_model_first(report, capsys):
    tables = markdown(capsys, report)
    assert [*tables] == [
        "Table 3: all tasks",
        "Table 4: tasks with a single server",
        "Table 5: tasks with several servers",
        "Table 6: rounds and tool calls per task, by the number of servers",
        "Overall score, by the number of servers",
        "Further figures, all tasks",
    ]
    best, worst = tables["Table 3: all tasks"]
    assert (best["model"], worst["model"]) == ("large", "small")
    assert {name: best[name] for name in best if name != "95 % interval"} == {
        "model": "large",
        "tasks": "2",
        "judged": "2",
        "valid tool names": "100.0",
        "schema compliance": "100.0",
        "execution success": "100.0",
        "task fulfillment": "0.860",
        "grounding": "0.860",
        "tool appropriateness": "0.860",
        "parameter accuracy": "0.860",
        "dependency awareness": "0.860",
        "parallelism and efficiency": "0.860",
        "overall": f"{fmean([overall(8), overall(9.2)]):.3f}",
    }
    assert tables["Table 4: tasks with a single server"][0]["overall"] == f"{overall(8):.3f}"
    assert tables["Table 5: tasks with several servers"][0]["overall"] == f"{overall(9.2):.3f}"
    effort = tables["Table 6: rounds and tool calls per task, by the number of servers"]
    assert (effort[0]["model"], effort[0]["rounds, 1 server"], effort[0]["rounds, 2 servers"]) == (
        "small",
        "17.0",
        "1.0",
    )
    assert effort[1]["rounds, all"] == "8.0"  # too few tasks for an interval


def test_runs_that_did_not_end_well_are_judged_by_nobody_and_counted_all_the_same(tmp_path, capsys):
    rows = [row("m", "one", "A", score=8), row("m", "two", "A", score=None, status="timed_out")]
    tables = markdown(capsys, save(tmp_path / "cut.json", rows))
    [found] = tables["Table 3: all tasks"]
    assert (found["tasks"], found["judged"], found["overall"]) == ("2", "1", f"{overall(8):.3f}")
    assert tables["Further figures, all tasks"][0]["completed"] == "50.0"
    assert rows[1]["final_score"] is rows[1]["tool_use"]["overall"] is None
    assert (rows[1]["outcome"], rows[1]["tool_use"]["rules"]) == ("failed", 1)


@pytest.mark.slow
def test_a_whole_campaign_is_the_weighted_mean_of_its_56_and_48_tasks(tmp_path, capsys):
    """Repetitions first become one figure of their task; a task without calls has no rates, but a score."""
    rows = [
        row("m", f"{kind}{at}", *servers, score=1 + (at * 7 + number) % 10, rounds=at % 3, repetition=number)
        for kind, servers, tasks in (("single", "A", 56), ("two", "AB", 30), ("three", "ABC", 18))
        for at in range(tasks)
        for number in range(1, 2 + at % 3)
    ]

    def of(kind, tasks):
        scores = [[1 + (at * 7 + number) % 10 for number in range(1, 2 + at % 3)] for at in range(tasks)]
        return fmean(fmean(overall(x) if at % 3 else 3 * x / 30 for x in task) for at, task in enumerate(scores))

    tables = markdown(capsys, save(tmp_path / "campaign.json", rows))
    single, multi = of("single", 56), (30 * of("two", 30) + 18 * of("three", 18)) / 48
    found = {
        title[:7]: (cells[0]["tasks"], cells[0]["overall"]) for title, cells in tables.items() if "tasks" in cells[0]
    }
    assert found == {
        "Table 3": ("104", f"{56 / 104 * single + 48 / 104 * multi:.3f}"),
        "Table 4": ("56", f"{single:.3f}"),
        "Table 5": ("48", f"{multi:.3f}"),
    }


def test_numbers_that_are_too_large_to_add_up_are_said(tmp_path, capsys):
    huge = [row("m", "one", "A", score=8), row("m", "two", "A", score=8)]
    for each in huge:
        each["tool_use"]["calls"] = 10**400
    rows = build_report([], {"profiles": {}}) | {"runs": huge}
    (tmp_path / "huge.json").write_text(json.dumps(rows))
    assert main(["mcp", "report", str(tmp_path / "huge.json")]) == 1
    assert "expected a number between -1e100 and 1e100" in capsys.readouterr().err


def test_models_of_several_reports_stand_in_one_table(tmp_path, capsys):
    first, second = save(tmp_path / "1.json", ROWS[:1]), save(tmp_path / "2.json", ROWS[1:])
    joined = printed(capsys, first, second, "--json")
    assert joined == printed(capsys, save(tmp_path / "all.json", ROWS), "--json")
    assert [model["model_id"] for model in json.loads(joined)["models"]] == ["small", "large"]


def test_json_has_the_figures_of_report_json(report, capsys):
    with open(report, encoding="utf-8") as file:
        models = json.load(file)["models"]
    found = json.loads(printed(capsys, report, "--json"))["models"]
    assert [model["tool_use"] for model in found] == [model["tool_use"] for model in models]


def test_a_run_that_two_reports_have_is_refused(report, tmp_path, capsys):
    other = save(tmp_path / "again.json", ROWS[:1])
    assert main(["mcp", "report", report, other]) == 1
    assert "again.json: found a run of tasks.json::one[small], which" in capsys.readouterr().err
    assert main(["mcp", "report", report, report]) == 1


def test_a_report_without_mcp_tasks_is_an_error_with_the_reason(tmp_path, capsys):
    assert main(["mcp", "report", save(tmp_path / "other.json", [])]) == 1
    assert "other.json: found no run of an MCP task" in capsys.readouterr().err


def test_a_file_that_is_not_a_report_is_refused(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert main(["mcp", "report", str(tmp_path / "x.json")]) == 1
    assert "x.json: is no report.json" in capsys.readouterr().err


def test_a_models_name_breaks_no_table(tmp_path, capsys):
    path = save(tmp_path / "odd.json", [row("a|b\x1b[2J", "one", "A", score=5)])
    text = printed(capsys, path, "--markdown")
    assert "\x1b" not in text
    assert "| a\\|b\\x1b[2J |" in text
    assert "\x1b" not in printed(capsys, path)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [70, 145, 200])
def test_a_terminal_shows_every_figure_whole(report, columns):
    lines = on_terminal(report, columns)
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= columns
    assert any(line.split() == ["model", "large", "small"] for line in lines) is (columns < 152)
    best = f"{fmean([overall(8), overall(9.2)]):.3f}"
    assert any(best in line and ("overall" in line or "large" in line) for line in lines)


@pytest.mark.slow
def test_many_models_on_a_narrow_terminal_stand_in_several_tables(tmp_path):
    models = [f"model-of-a-long-name-{at}" for at in range(30)]
    path = save(tmp_path / "many.json", [row(model, "one", "A", score=5) for model in models])
    lines = on_terminal(path, 80)
    assert max(map(len, lines)) <= 80
    shown = [word for line in lines for word in line.split() if word.startswith("model-of")]
    assert [shown.count(model) for model in models] == [len(shown) // 30] * 30


def on_terminal(report, columns):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pytest_agentbench.cli", "mcp", "report", report]
    environ = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environ):
        os.close(slave)
        seen = b""
        try:
            while chunk := os.read(master, 65536):
                seen += chunk
        except OSError:  # how Linux tells that the other end is closed
            pass
    os.close(master)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).splitlines()


def test_published_results_stand_next_to_ones_own_with_their_caveats(capsys, report):
    out = printed(capsys, report, "--beside", "paper", "--markdown")
    found = markdown(capsys, report, "--beside", "paper")

    names = [row["model"] for row in found["Table 3: all tasks"]]
    assert names == [
        *("large", "gpt-5 (published)", "o3 (published)", "gpt-oss-120b (published)", "small"),
        "llama-3-1-8b-instruct (published)",
    ]
    assert "nova-micro-v1 (published)" in [row["model"] for row in found["Table 5: tasks with several servers"]]
    assert "Published: MCP-Bench, section 6.1" in out
    assert "Another judge model gives other scores" in out
    assert "(published)" not in printed(capsys, report, "--markdown")


def test_figures_of_a_file_are_fractions(capsys, report, tmp_path):
    file = tmp_path / "ours.yaml"
    group = {"tasks": 104, "figures": {"grounding": 0.7, "valid_tool_name_rate": 0.985, "overall": 0.9}}
    content = {"schema_version": 1, "source": "A report", "models": [{"model": "x", "groups": {"total": group}}]}
    file.write_text(json.dumps(content))

    row = markdown(capsys, report, "--beside", str(file))["Table 3: all tasks"][0]

    assert (row["model"], row["tasks"], row["judged"]) == ("x (published)", "104", "104")
    assert (row["valid tool names"], row["grounding"], row["overall"]) == ("98.5", "0.700", "0.900")
    assert row["execution success"] == "-"
    assert json.loads(printed(capsys, report, "--beside", str(file), "--json"))["published"]["source"] == "A report"


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ([], "models: found none, expected at least one model"),
        ([{"model": "x", "groups": {"total": {"tasks": 9, "figures": {"overall": 74.9}}}}], "at most 1"),
        ([{"model": "x", "groups": {"all": {"tasks": 9, "figures": {}}}}], "'total', 'single_server' or"),
    ],
)
def test_a_wrong_file_of_published_results_is_refused_by_its_place(capsys, report, tmp_path, models, said):
    file = tmp_path / "ours.yaml"
    file.write_text(json.dumps({"schema_version": 1, "source": "A report", "models": models}))

    assert main(["mcp", "report", report, "--beside", str(file)]) == 1
    shown = capsys.readouterr().err
    assert f"{file}:1:" in shown
    assert said in shown
