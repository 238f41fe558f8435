from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from reports_samples import DEMO, MODEL, make_row

from pytest_agentbench.cli.output import Standard
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.gate import Counts, apply_gate
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.table import count_cells
from pytest_agentbench.reports.terminal import write_summary

CONFTEST = """
import json
from pathlib import Path
from pytest_agentbench.reports.terminal import write_summary

def pytest_terminal_summary(terminalreporter):
    report = json.loads(Path("data.json").read_text("utf-8"))
    write_summary(terminalreporter, report, {"report": Path("outputs/report.json")})
"""
COMMAND = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"]
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
pty = pytest.importorskip("pty")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    (tmp_path / "pytest.ini").write_text("[pytest]")
    return tmp_path


def many_rows():
    qwen = MODEL.model_copy(update={"model_id": "通义千问", "label": None})
    rows = [make_row("passed", f"c{n}", DEMO, seconds=0.001) for n in range(4)]
    rows += [make_row("failed" if n else "passed", f"推理-{n}", qwen, score=2.0 + n, seconds=n + 1.0) for n in range(7)]
    rows += [make_row("failed", "逆\x1b[2Jだ", qwen, score=1.0, message="check x: \x1b]0;no\x07 it is wrong")]
    rows += [make_row("error", "gone", "my_agent", seconds=None, message="ProviderError: HTTP 503")]
    return [*rows, make_row("passed", "fine", "my_agent", usage=Usage(), seconds=100.0)]


def save(folder, rows, fail_under=None, warnings=()):
    verdict = apply_gate(Counts.of(row["outcome"] for row in rows), fail_under)
    report = build_report(rows, {"gate": verdict.as_dict(), "warnings": list(warnings)})
    (folder / "data.json").write_text(json.dumps(report), encoding="utf-8")


def environment(columns, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return {**clean, "COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8", "TERM": "xterm", **ALONE, **more}


def piped(folder, *options, columns=100, **env):
    done = subprocess.run(
        [*COMMAND, *options], cwd=folder, env=environment(columns, **env), capture_output=True, check=True
    )
    return done.stdout.decode("utf-8")


def on_terminal(folder, columns):
    master, slave = pty.openpty()
    with subprocess.Popen(COMMAND, cwd=folder, env=environment(columns), stdout=slave, stderr=slave, stdin=slave):
        os.close(slave)
        seen = b""
        while chunk := read(master):
            seen += chunk
    os.close(master)
    return seen.decode("utf-8")


def read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed: Linux says EIO
        return b""


def section(output):
    lines = output.replace("\r", "").splitlines()
    start = next(at for at, line in enumerate(lines) if " agentbench " in line)
    return lines[start : next(at for at, line in enumerate(lines) if at > start and " passed" in line and "==" in line)]


@pytest.mark.slow
def test_the_models_table_has_the_number_of_scored_cases(folder):
    save(folder, [make_row(case_id=f"c{n}", score=5.0 if n < 2 else None) for n in range(203)])
    title, line = section(piped(folder, columns=100))[1:3]
    assert title.index("judged") > title.index("score")
    assert "  2 of 203  " in line


@pytest.mark.slow
def test_piped_output_is_plain_and_aligned(folder):
    save(folder, many_rows(), 0.9, ["sandbox 'local' gives no isolation"])
    lines = section(piped(folder, columns=100))
    assert [line.rstrip() for line in lines[1:]] == [
        "model     runs  errors  pass rate  95 % CI  score     cost  tokens  time/run",
        "demo         4       0    100.0 %   51-100      -  $0.0492   5.12k      1 ms",
        "  scripted, not a model",
        "通义千问     8       0     12.5 %     2-47   4.50  $0.1144   10.2k     3.7 s",
        "my_agent     2       1    100.0 %   21-100      -        -       -      1:40",
        "  your own agent",
        "",
        "slowest runs",
        "     1:40  fine [my_agent]",
        "    7.0 s  推理-6 [通义千问]",
        "    6.0 s  推理-5 [通义千问]",
        "    5.0 s  推理-4 [通义千问]",
        "    4.0 s  推理-3 [通义千问]",
        "",
        "worst cases (5 of 8)",
        "   failed  逆\\x1b[2Jだ [通义千问]  check x: \\x1b]0;no\\x07 it is wrong",
        "   failed  推理-1 [通义千问]",
        "   failed  推理-2 [通义千问]",
        "   failed  推理-3 [通义千问]",
        "   failed  推理-4 [通义千问]",
        "",
        "14 runs: 6 passed, 7 failed, 1 error",
        "cost: run >=$0.1476, judge $0.0160",
        "warning: sandbox 'local' gives no isolation",
        "gate failed:",
        "  Pass rate 0.462 is below 0.900: 6 of 13 judged runs passed.",
        "  Completion 0.929 is below 0.950: 1 of 14 runs ended in infrastructure errors and were not judged.",
        "report: outputs/report.json",
        "a run with its conversation: agentbench show NODEID",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 130])
def test_a_terminal_gets_colours_within_its_width(folder, columns):
    save(folder, many_rows(), 0.1)
    output = on_terminal(folder, columns)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in section(output)]
    tables = lines[: next(at for at, line in enumerate(lines) if line.startswith("14 runs"))]
    assert max(map(count_cells, tables)) <= columns
    assert not any("\x1b" in line for line in lines)
    assert "\x1b[32m" in output
    assert ("━━━━━" in output) is (columns == 130)


@pytest.mark.slow
def test_a_passed_gate_is_reported_with_its_rates(folder):
    save(folder, [make_row(), make_row("failed", "b")], 0.5)
    assert "gate passed: pass rate 0.500 (wanted 0.5), completion 1.000 (wanted 0.95)" in piped(folder)


@pytest.mark.slow
def test_an_output_without_unicode_still_works(folder):
    save(folder, many_rows())
    assert "pass rate" in piped(folder, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")


@pytest.mark.slow
def test_quiet_sessions_print_less(folder):
    save(folder, many_rows(), 0.9)
    quiet, silent = piped(folder, "-q"), piped(folder, "-qq")
    assert "slowest" not in quiet
    assert "report: outputs/report.json" in quiet
    assert "gate failed:" in silent
    assert "pass rate  95" not in silent
    assert "pass rate  95" not in piped(folder, "--no-summary")


@pytest.mark.slow
def test_metrics_take_the_place_of_scores(folder):
    save(folder, [make_row("passed", "a", metric=1.0), make_row("failed", "b", metric=0.5)])
    lines = section(piped(folder))
    assert re.split(r"  +", lines[1]) == [
        "model",
        "runs",
        "pass rate",
        "95 % CI",
        "exact_match",
        "cost",
        "tokens",
        "time/run",
    ]
    assert re.split(r"  +", lines[2])[4] == "0.75"


@pytest.mark.slow
def test_of_two_metrics_the_first_stays(folder):
    rows = [make_row(metric=0.5, case_id=f"case-{n}") for n in range(2)]
    for row in rows:
        row["metrics"]["similarity"] = 0.25
    save(folder, rows)
    wide, narrow = (section(piped(folder, columns=columns))[1].split() for columns in (120, 80))
    assert wide[wide.index("exact_match") + 1] == "similarity"
    assert ("exact_match" in narrow, "similarity" in narrow) == (True, False)


def test_cases_of_one_id_in_two_files_keep_their_own_messages(capsys):
    one, other = (make_row("failed", message=f"check {name}: wrong") for name in ("one", "other"))
    write_summary(Standard(), build_report([one, {**other, "nodeid": "cases/b/test.yaml::capital[gpt4o]"}], {}))
    said = capsys.readouterr().out
    assert "check one: wrong" in said
    assert "check other: wrong" in said


@pytest.mark.slow
def test_repetitions_are_counted_by_case(folder):
    rows = [make_row("failed" if n % 3 else "passed", "flaky", repetition=n) for n in (1, 2, 3)]
    save(folder, rows)
    assert "   1 of 3  flaky [gpt4o]" in piped(folder)


@pytest.mark.slow
def test_a_session_without_a_run_reports_only_the_reason_of_the_gate(folder):
    save(folder, [])
    assert "agentbench" not in piped(folder)
    save(folder, [], 0.5)
    assert "No run was judged" in piped(folder)


def dataset_rows(levels, *, model=DEMO, dataset="math", tags=()):
    return [
        make_row(
            "passed" if n % 4 < passes else "failed",
            f"{dataset}.{level}-{n}",
            model,
            seconds=0.001,
            metric=passes / 4,
            dataset=dataset,
            metadata={"level": level},
            tags=tags,
        )
        for level, passes in levels.items()
        for n in range(4)
    ]


def groups_of(output):
    lines = [line.rstrip() for line in section(output)]
    start = lines.index("breakdown")
    return lines[start + 1 : next(at for at, line in enumerate(lines) if at > start and not line)]


@pytest.mark.slow
def test_the_groups_of_a_dataset_are_a_table(folder):
    save(folder, dataset_rows({"easy": 4, "难\x1b[2J": 1}, tags=("t",)))
    assert groups_of(piped(folder, columns=80)) == [
        "field  value      items  pass rate  95 % CI  exact_match",
        "level  easy           4    100.0 %   51-100         1.00",
        "level  难\\x1b[2J      4     25.0 %     5-70         0.25",
    ]
    assert "breakdown" not in piped(folder, "-q")


@pytest.mark.slow
def test_of_many_groups_the_weakest_are_named(folder):
    save(folder, dataset_rows({f"l{n}": 0 if n == 17 else 1 + n % 4 for n in range(18)}))
    lines = groups_of(piped(folder, columns=80))
    assert len(lines) == 14
    assert lines[1].split()[:5] == ["level", "l17", "4", "0.0", "%"]
    assert lines[-1] == "  the weakest 12 of 18 groups; all: datasets[].breakdown in report.json"


@pytest.mark.parametrize("columns", [40, 80, 130])
@pytest.mark.slow
def test_groups_of_several_datasets_and_models_fit_the_width(folder, columns):
    levels = {"a level with quite a long name": 4, "b": 1}
    rows = dataset_rows(levels) + dataset_rows(levels, model="a-model-with-a-long-name" * 2, dataset="数据" * 20)
    save(folder, rows)
    output = on_terminal(folder, columns)
    lines = groups_of(re.sub(r"\x1b\[[0-9;]*m", "", output))
    assert len(lines) == 5
    assert max(map(count_cells, lines)) <= columns
    assert columns == 40 or lines[0].split()[:4] == ["dataset", "model", "field", "value"]


@pytest.mark.slow
def test_without_groups_there_is_no_table(folder):
    save(folder, [make_row(dataset="math"), make_row()])
    assert "breakdown" not in section(piped(folder))
    levels = ({"level": level} for level in "abab")
    save(folder, [make_row("error", f"q{n}", dataset="math", metadata=level) for n, level in enumerate(levels)])
    assert "breakdown" not in section(piped(folder))
