"""Reading a report.json back: fast for many runs, and as strict as its JSON Schema, whose words it uses."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import ValidationError
from support.random_reports import MODELS, random_rows

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.reading import compiled, read_report, report_schema
from pytest_agentbench.reports.report import build_report

DEFINITIONS = report_schema()["$defs"]
ROW = {"$ref": "#/$defs/run"}
QUICK = compiled(ROW, DEFINITIONS)
EXACT = jsonschema.Draft202012Validator({**ROW, "$defs": DEFINITIONS})
ROWS = list(random_rows(8, MODELS, 1))


@pytest.fixture
def read(tmp_path):
    """Reads a report, or text in its place."""

    def read(report):
        path = tmp_path / "report.json"
        path.write_text(report if isinstance(report, str) else json.dumps(report), encoding="utf-8")
        return read_report(path)

    return read


@pytest.fixture
def refused(read):
    """Why it is none, after the path."""

    def refused(report):
        with pytest.raises(ConfigError) as raised:
            read(report)
        return str(raised.value).partition("report.json: ")[2]

    return refused


def test_rows_that_sessions_write_pass_the_quick_check():
    for row in ROWS:
        QUICK.validate_python(row)
        EXACT.validate(row)


def places(value, at=()):
    """The path of everything in a JSON value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*at, key))


json_values = st.sampled_from(
    [None, True, False, 0, 1, -1, 11, 1.0, 1.5, -0.5, "", "passed", "ab" * 8, "x\n", [], [None], [1], {}, {"x": 1}]
)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.data())
def test_the_quick_check_accepts_nothing_that_the_schema_refuses(data):
    row = copy.deepcopy(data.draw(st.sampled_from(ROWS)))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([at for at in places(row) if at]))
        holder = row
        for key in path:
            holder = holder[key]
        match data.draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[last] = copy.deepcopy(data.draw(json_values))
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder["new"] = copy.deepcopy(data.draw(json_values))
    try:
        QUICK.validate_python(row)
    except ValidationError:
        return
    assert EXACT.is_valid(row)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcome": "great"}, "runs[7].outcome: 'great' is not one of ['passed', 'failed', 'error', 'skipped']"),
        ({"cost_usd": None}, "runs[7].cost_usd: None is not of type 'object'"),
        ({"metrics": {"f1": "high"}}, "runs[7].metrics.f1: 'high' is not of type 'number', 'null'"),
        ({"surprise": 1}, "runs[7]: Additional properties are not allowed ('surprise' was unexpected)"),
    ],
)
def test_the_first_bad_run_is_named(refused, change, said):
    rows = [*ROWS[:7], {**ROWS[7], **change}, {**ROWS[8], "outcome": 5}]
    assert refused({**build_report(ROWS, {}), "runs": rows}).startswith(said)


@pytest.mark.parametrize("runs", [None, {}, "many", 3])
def test_runs_that_are_no_list_are_said(refused, runs):
    assert refused({**build_report(ROWS[:1], {}), "runs": runs}) == "runs: not a list"


def test_a_run_that_is_no_object_is_said(refused):
    assert refused({**build_report(ROWS[:1], {}), "runs": [None]}).startswith("runs[0]: None is not of type 'object'")


def test_whole_numbers_may_be_written_as_fractions(read):
    """So does JSON Schema have it, and other programs write them."""
    rows = [{**ROWS[0], "repetition": 1.0}]
    assert read({**build_report(ROWS[:1], {}), "runs": rows})["runs"] == rows


@pytest.mark.parametrize("number", ["1e999", "-1e999", "-1e100", "NaN", "Infinity"])
def test_numbers_beyond_all_bounds_are_none(refused, number):
    text = json.dumps(build_report([{**ROWS[0], "duration_seconds": 1234.5}], {})).replace("1234.5", number, 1)
    assert refused(text) == f"is no JSON: found {number}, expected a number between -1e100 and 1e100"


def test_whole_numbers_beyond_all_bounds_are_none_either(refused):
    text = json.dumps(build_report(ROWS[:1], {})).replace('"runs": 1,', f'"runs": {"9" * 400},', 1)
    assert refused(text) == f"is no JSON: found {'9' * 40}, expected a number between -1e100 and 1e100"


def test_the_session_section_of_a_report_is_validated(refused):
    report = build_report(ROWS[:1], {})
    assert refused({**report, "session": {**report["session"], "warnings": "none"}}).startswith("session.warnings: ")
    del report["totals"]
    assert refused(report) == "report: 'totals' is a required property"


def test_a_schema_with_other_keywords_is_not_half_checked():
    with pytest.raises(ValueError, match="found minItems in a schema"):
        compiled({"type": "array", "items": {"type": "string"}, "minItems": 1}, {})
