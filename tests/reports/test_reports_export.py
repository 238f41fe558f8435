"""A report as a table, read back by the libraries that people read it with."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import DEMO, make_row

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.export import columns, csv_text, write_csv, write_parquet
from pytest_agentbench.reports.report import build_report

pyarrow_parquet = pytest.importorskip("pyarrow.parquet")


def table(report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(csv_text(report)), newline=""), strict=True))


def sample(n: int = 3):
    rows = [make_row("passed", f"c{i}", score=8.0, metric=0.5, dataset="d", tags=("a", "b;c")) for i in range(n)]
    for i, row in enumerate(rows):
        row["fields"] = {"level": "hard" if i % 2 else "easy", "id": str(i)}
        row["line"] = i + 1
    return [*rows, make_row("failed", "x", DEMO, message="no\nanswer"), make_row("error", "y")]


def test_csv_has_a_row_for_each_run_with_its_scores_costs_and_fields():
    report = build_report(sample(8), {})
    rows = table(report)
    assert [row["nodeid"] for row in rows] == [row["nodeid"] for row in report["runs"]]
    assert rows[1]["outcome"] == "passed"
    assert (rows[1]["line"], rows[1]["metric.exact_match"], rows[1]["judge.overall"]) == ("2", "0.5", "8.0")
    assert (rows[1]["cost_usd.run"], rows[1]["tokens.input"]) == ("0.0123", "1200")
    assert (rows[1]["field.level"], json.loads(rows[1]["tags"])) == ("hard", ["a", "b;c"])
    assert "field.id" not in rows[1]  # it makes no groups: every run has another one
    assert (rows[-2]["message"], rows[-2]["scripted"]) == (r"no\nanswer", "True")
    assert (rows[-1]["cost_usd.run"], rows[-1]["metric.exact_match"]) == ("", "")


def test_checks_are_listed_by_how_they_ended():
    row = make_row("failed")
    ends = {"a": "passed", "b": "failed", "c": "error", "d": "passed"}
    row["checks"] = [{"check_id": name, "kind": "k", "outcome": end, "message": ""} for name, end in ends.items()]
    (found,) = table(build_report([row], {}))
    assert [json.loads(found[f"checks.{how}"]) for how in ("passed", "failed", "error", "skipped")] == [
        ["a", "d"],
        ["b"],
        ["c"],
        [],
    ]


@pytest.mark.slow
@given(st.text(max_size=30), st.sampled_from(["", " ", "\t", "\n", "\r", "\x00"]), st.sampled_from("=+-@＝＋－＠"))
def test_no_text_becomes_a_formula_or_another_row(text, before, sign):
    attack = before + sign + text
    row = {**make_row("failed", message=attack), "label": attack, "metrics": {attack: -1.0}, "tags": [attack]}
    raw = "".join(csv_text(build_report([row], {})))
    assert len(raw.splitlines()) == 2
    assert not set(raw) & set("\x00\x1b\r\t")
    (found,) = table(build_report([row], {}))
    for name, cell in found.items():
        assert not name.lstrip().startswith(tuple("=+-@＝＋－＠"))
        if not name.startswith("metric."):
            assert not cell.lstrip().startswith(tuple("=+-@＝＋－＠"))
    if before in ("", " ", "\t"):  # else it is no formula: an escape is the first character
        assert found["label"].startswith("'")
    assert [cell for name, cell in found.items() if name.startswith("metric.")] == ["-1.0"]  # a number stays one


@pytest.mark.parametrize("rows", [[], [make_row("error")], [make_row("skipped")]], ids=["none", "error", "skipped"])
def test_a_report_without_results_is_a_table_too(rows, tmp_path):
    report = build_report(rows, {})
    assert len(table(report)) == len(rows)
    write_parquet(report, tmp_path / "runs.parquet")
    assert pyarrow_parquet.read_table(tmp_path / "runs.parquet").num_rows == len(rows)


def test_a_report_of_an_older_version_lacks_columns_and_nothing_else(tmp_path):
    row = make_row("passed")
    for name in ("line", "evaluation", "tool_use"):
        del row[name]
    report = build_report([row], {})
    assert table(report)[0]["line"] == ""
    write_parquet(report, tmp_path / "runs.parquet")


def test_parquet_has_the_same_table_typed_and_with_text_as_it_is(tmp_path):
    rows = sample()
    rows[0]["message"] = "=1+1\n\x1b[31m"
    rows[0]["tool_use"] = {"servers": 2, "completed": True, "rules": 1}
    report = build_report(rows, {})
    path = tmp_path / "folder" / "runs.parquet"
    write_parquet(report, path)
    found = pyarrow_parquet.read_table(path)
    assert found.column_names == [column.name for column in columns(report)]
    types = {field.name: str(field.type) for field in found.schema}
    assert (types["line"], types["final_score"], types["scripted"]) == ("int64", "double", "bool")
    assert (types["tool_use.servers"], types["tool_use.completed"], types["tool_use.rules"]) == (
        "int64",
        "bool",
        "double",
    )
    assert types["tags"] == types["checks.failed"] == "list<element: string>"
    first, *_, last = found.to_pylist()
    assert first["message"] == "=1+1\n\x1b[31m"
    assert first["tags"] == ["a", "b;c"]
    assert (last["final_score"], last["tokens.input"]) == (None, None)
    assert [entry.name for entry in path.parent.iterdir()] == ["runs.parquet"]


def test_half_of_a_surrogate_pair_is_replaced(tmp_path):
    row = {**make_row("failed", message="a\ud800b"), "tags": ["\udfff"], "metrics": {"\udfff": 1.0}}
    report = build_report([row], {})
    write_csv(report, tmp_path / "runs.csv")
    write_parquet(report, tmp_path / "runs.parquet")
    (found,) = pyarrow_parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert (found["message"], found["tags"], found["metric.\ufffd"]) == ("a\ufffdb", ["\ufffd"], 1.0)


def test_a_number_beyond_64_bits_is_named(tmp_path):
    row = make_row("passed")
    row["usage"] = {**row["usage"], "input_tokens": 2**63}
    with pytest.raises(UnwritableError, match=r"runs: cannot be written: tokens\.input has a number beyond 64 bits"):
        write_parquet(build_report([row], {}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_an_unwritable_export_is_an_error_with_its_path(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    for write in (write_csv, write_parquet):
        with pytest.raises(UnwritableError, match="file/runs: cannot be written"):
            write(build_report([], {}), tmp_path / "file" / "runs")


def test_whole_numbers_that_json_writes_as_fractions_stay_whole(tmp_path):
    report = build_report([{**make_row("passed"), "line": 3.0, "final_score": 8}], {})
    write_parquet(report, tmp_path / "runs.parquet")
    (found,) = pyarrow_parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert (table(report)[0]["line"], found["line"], found["final_score"]) == ("3", 3, 8.0)


ANY_VALUES = {
    "text": ("=1+1", "'=1+1", "=1+1"),
    "whole number": (3, "3", 3.0),
    "fraction": (0.5, "0.5", 0.5),
    "beyond 64 bits": (2**63, "9.223372036854776e+18", float(2**63)),
    "beyond all fractions": (10**400, str(10**400), str(10**400)),
    "list": ([1, "two"], '[1, "two"]', '[1, "two"]'),
    "texts": (["one"], '["one"]', '["one"]'),
    "object": ({"a": {"b": [None]}}, '{"a": {"b": [null]}}', '{"a": {"b": [null]}}'),
    "null": (None, "", None),
}
"""Values of a section's figure, with the cell of CSV, and the value of Parquet."""


@pytest.mark.parametrize(("value", "cell", "stored"), ANY_VALUES.values(), ids=ANY_VALUES)
def test_any_value_of_a_section_is_exported(value, cell, stored, tmp_path):
    row = {**make_row("passed"), "tool_use": {"rules": value}}
    report = {"runs": [row], "datasets": []}
    write_parquet(report, tmp_path / "runs.parquet")
    (found,) = pyarrow_parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert table(report)[0]["tool_use.rules"].removesuffix(".0") == cell
    assert found["tool_use.rules"] == stored


@pytest.mark.parametrize(
    ("figure", "values", "stored"),
    [
        ("servers", [1, 2.0, None], [1, 2, None]),
        ("servers", [1, 2.5, None], ["1", "2.5", None]),
        ("servers", [1, 2**63], ["1", str(2**63)]),
        ("servers", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ("completed", [True, None], [True, None]),
        ("completed", [True, "yes", {}], ["true", "yes", "{}"]),
        ("rules", [1, "x", [1], None], ["1", "x", "[1]", None]),
    ],
)
def test_a_figure_whose_kind_cannot_hold_a_value_is_a_column_of_text(figure, values, stored, tmp_path):
    rows = [{**make_row("passed", f"c{i}"), "tool_use": {figure: value}} for i, value in enumerate(values)]
    rows.append(make_row("error", "without"))
    write_parquet({"runs": rows, "datasets": []}, tmp_path / "runs.parquet")
    found = pyarrow_parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [row[f"tool_use.{figure}"] for row in found] == [*stored, None]


@pytest.mark.parametrize("ids", [[1, 2], ["a", 2**70]])
def test_ids_of_research_reports_are_text(ids, tmp_path):
    rows = [{**make_row("passed", f"c{i}"), "research": {"row_id": i, "evaluation": "0f"}} for i in ids]
    report = build_report(rows, {})
    write_parquet(report, tmp_path / "runs.parquet")
    found = pyarrow_parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [row["research.row_id"] for row in found] == [*map(str, ids)]
    assert [(row["research.row_id"], row["research.evaluation"]) for row in table(report)] == [
        (str(each), "0f") for each in ids
    ]
