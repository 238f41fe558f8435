"""`agentbench compare A B` on reports on disk: its output, its files and its exit status."""

from __future__ import annotations

import json
from html import unescape

import jsonschema
import pytest
from support.random_reports import MODELS, random_report

from pytest_agentbench.cli import main
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report

COMPARISON = jsonschema.Draft202012Validator({"$ref": "#/$defs/comparison", "$defs": report_schema()["$defs"]})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Reports are named as seen from the folder that the command is run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(folder, name, *outcomes, **changes):
    """A report of one run a case on gpt4o, with these outcomes."""
    rows = random_report(len(outcomes), MODELS[:1], 1)["runs"]
    report = build_report(
        [{**row, "outcome": o, "must_pass": False, **changes} for row, o in zip(rows, outcomes, strict=True)], {}
    )
    (folder / name).write_text(json.dumps(report), encoding="utf-8")
    return name


@pytest.fixture
def worse(folder):
    """A baseline, and a report in which 7 of 8 cases became worse."""
    return saved(folder, "a.json", *["passed"] * 8), saved(folder, "b.json", *["failed"] * 7, "passed")


def printed(capsys, *args):
    code = main(["compare", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_significant_regression_is_exit_status_1(worse, capsys):
    code, out, _ = printed(capsys, *worse)
    assert code == 1
    assert out.splitlines()[0] == "b.json compared with a.json"
    assert "exact McNemar, p = 0.016): worse." in out
    assert "regressions (7):" in out
    assert out.splitlines()[-2:] == ["comparison failed:", f"  Significant regression: {out.splitlines()[2].strip()}"]


def test_the_other_way_round_it_is_better(worse, capsys):
    code, out, _ = printed(capsys, *reversed(worse))
    assert code == 0
    assert "exact McNemar, p = 0.016): better." in out
    assert "gains (7):" in out
    assert "failed:" not in out


def test_json_equals_the_comparison_of_report_json(worse, capsys):
    code, out, _ = printed(capsys, *worse, "--json")
    found = json.loads(out)
    COMPARISON.validate(found)
    assert (code, found["baseline"]["report"], found["current"]["report"]) == (1, "a.json", "b.json")
    assert found["failures"][0].startswith("Significant regression: gpt4o: pass rate 100.0 % -> 12.5 % over 8 cases")


@pytest.mark.parametrize(("allowed", "code"), [("2", 0), ("1", 1)])
def test_more_regressions_than_allowed_are_exit_status_1(folder, capsys, allowed, code):
    sides = saved(folder, "a.json", *["passed"] * 8), saved(folder, "b.json", "failed", "failed", *["passed"] * 6)
    assert printed(capsys, *sides, "--max-regressions", allowed)[0] == code


def test_a_case_that_must_pass_is_exit_status_1_though_nothing_changed(folder, capsys):
    sides = [saved(folder, name, "failed", "passed", must_pass=True) for name in ("a.json", "b.json")]
    code, out, _ = printed(capsys, *sides)
    assert code == 1
    assert "must pass: 0 of 1 runs passed." in out


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (
            (["passed"] * 4, ["passed"] * 3 + ["error"]),
            "Completion of gpt4o 0.750 is below 0.950: 1 of 4 runs ended in",
        ),
        (
            (["passed"] * 3 + ["error"], ["passed"] * 4),
            "a.json is too incomplete to compare gpt4o with: completion 0.7",
        ),
    ],
)
def test_an_outage_on_either_side_is_exit_status_1(folder, capsys, sides, said):
    a, b = saved(folder, "a.json", *sides[0]), saved(folder, "b.json", *sides[1])
    code, out, _ = printed(capsys, a, b)
    assert code == 1
    assert said in out


@pytest.mark.slow
def test_two_models_of_one_report(folder, capsys):
    (folder / "both.json").write_text(json.dumps(random_report(60, MODELS[1:3], 2)), encoding="utf-8")
    code, out, _ = printed(capsys, "both.json#claude", "both.json#qwen3-32b")
    assert code == 1
    assert out.splitlines()[0] == "both.json#qwen3-32b compared with both.json#claude"
    assert "qwen3-32b against claude: pass rate " in out


def variants(folder):
    """A report of two variants of gpt4o, of which the second passes all cases."""
    rows = random_report(8, MODELS[:1], 1)["runs"]
    changes = {"base": {"variant": "base", "outcome": "failed"}, "short": {"variant": "short", "outcome": "passed"}}
    both = [{**row, "must_pass": False, **change} for row in rows for change in changes.values()]
    entries = {name: {"as_written": {}, "digest": None, "changed": []} for name in changes}
    report = {**build_report(both, {}), "variants": entries, "reference_variant": "base"}
    (folder / "ab.json").write_text(json.dumps(report), encoding="utf-8")
    return "ab.json"


def test_the_variants_of_one_report_are_compared_with_their_reference(folder, capsys):
    code, out, err = printed(capsys, variants(folder))
    assert err == ""
    assert (code, out.splitlines()[0]) == (0, "variants compared with base")
    assert "gpt4o:short against gpt4o:base: pass rate 0.0 % -> 100.0 % over 8 cases" in out
    assert "gains (8):" in out
    [model] = json.loads(printed(capsys, "ab.json", "--json")[1])
    assert (model["model_id"], model["verdict"]) == ("gpt4o:short", "better")


def test_the_name_of_a_variant_names_its_column(folder, capsys):
    _, out, _ = printed(capsys, f"{variants(folder)}#base", "ab.json#short")
    assert "gpt4o:short against gpt4o:base: pass rate 0.0 % -> 100.0 %" in out
    assert (
        "found no run of a model 'shrt'; the report has gpt4o:base, gpt4o:short"
        in printed(capsys, "ab.json#base", "ab.json#shrt")[2]
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [((), "a.json: found no two columns with common cases"), (("--html", "x"), "--html: found one report")],
)
def test_one_report_without_columns_to_compare_is_an_error(worse, capsys, args, said):
    code, _, err = printed(capsys, worse[0], *args)
    assert code == 1
    assert said in err


def test_a_file_with_a_number_sign_in_its_name_is_a_file(folder, capsys):
    saved(folder, "run#4.json", "passed")
    assert printed(capsys, "run#4.json", "run#4.json")[0] == 0


def test_a_report_needs_only_its_runs(worse, folder, capsys):
    old = json.loads((folder / "a.json").read_text())
    del old["models"], old["cases"], old["datasets"]
    for row in old["runs"]:
        row.pop("line", None)
    (folder / "old.json").write_text(json.dumps(old), encoding="utf-8")
    assert printed(capsys, "old.json", "b.json")[0] == 1
    assert printed(capsys, "b.json", "old.json")[0] == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.json", "missing.json: cannot be read: No such file or directory"),
        ("a.json#nobody", "a.json#nobody: found no run of a model 'nobody'; the report has gpt4o"),
        ("text.json", "text.json: is no JSON"),
    ],
)
def test_a_file_that_is_no_report_is_an_error(folder, capsys, name, said):
    saved(folder, "a.json", "passed")
    (folder / "text.json").write_text("<html>")
    code, out, err = printed(capsys, "a.json", name)
    assert (code, out) == (1, "")
    assert said in err


@pytest.mark.slow
def test_markdown_and_page_are_written(worse, folder, capsys):
    code, _, _ = printed(capsys, *worse, "--markdown", "out/comment.md", "--html", "out/page.html")
    assert code == 1
    comment = unescape((folder / "out" / "comment.md").read_text(encoding="utf-8"))
    assert comment.startswith("### Compared with <code>a.json</code>")
    assert "**7 cases worse than before**" in comment
    assert "<code>Significant regression: gpt4o: pass rate 100.0 % -> 12.5 % over 8 cases" in comment
    assert (folder / "out" / "page.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_a_path_that_cannot_be_written_is_an_error(worse, folder, capsys):
    (folder / "file").write_text("")
    code, _, err = printed(capsys, *worse, "--markdown", "file/comment.md")
    assert code == 1
    assert "file/comment.md: cannot be written" in err


def test_hostile_names_and_messages_act_nowhere(folder, capsys):
    hostile = "<script>alert(1)</script> @everyone \x1b[31m \u202e | `x`\n# title"
    saved(folder, "a.json", *["passed"] * 8, case_id=hostile, message=hostile)
    saved(folder, "b.json", *["failed"] * 8, case_id=hostile, message=hostile)
    code, out, _ = printed(capsys, "a.json", "b.json", "--markdown", "comment.md")
    assert code == 1
    assert not set(out) & {"\x1b", "\u202e"}
    comment = (folder / "comment.md").read_text(encoding="utf-8")
    assert "<script>" not in comment
    assert "\n# title" not in comment
    assert not set(comment) & {"\x1b", "\u202e"}
