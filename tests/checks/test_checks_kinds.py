from __future__ import annotations

import asyncio
import json
import os
import unicodedata
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most
from support.other_user import NOBODY, as_nobody, needs_root

from pytest_agentbench.checks.base import CheckContext, Verdict, excerpt, includes, json_equal, normalized, parse_json
from pytest_agentbench.checks.run import BUILTIN_CHECKS, run_checks
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import BUILTIN_KINDS
from pytest_agentbench.records.run import WORKSPACE_NOTE, RunArtifact
from pytest_agentbench.workspaces.workspace import Workspace


def test_every_declared_kind_has_a_function():
    assert set(BUILTIN_CHECKS) == BUILTIN_KINDS


def test_a_result_has_the_expected_and_the_actual_value(check):
    result = check("status_is", status="timed_out")
    assert (result.check_id, result.kind, result.outcome) == ("c", "status_is", "failed")
    assert (result.message, result.expected, result.actual) == ("the run's status is success", "timed_out", "success")


@pytest.mark.parametrize(
    ("kind", "fields", "dimensions"),
    [
        ("final_response_present", {}, ("process",)),
        ("status_is", {"status": "success"}, ("process",)),
        ("tool_call_count", {"count": 0}, ("process", "efficiency")),
        ("path_exists", {"path": "x"}, ("task",)),
        ("output_artifact_present", {"uri": "x"}, ("task",)),
    ],
)
def test_dimensions_default_by_kind(check, kind, fields, dimensions):
    assert check(kind, **fields).dimensions == dimensions


@pytest.mark.parametrize(
    ("output", "outcome"), [("hi", "passed"), (" \n\u3000", "failed"), ("", "failed"), (None, "failed")]
)
def test_final_response_present(check, output, outcome):
    assert check("final_response_present", output=output).outcome == outcome


def test_final_response_of_openclaw_may_be_its_last_message_or_a_file(check, workspace):
    openclaw = {"runner_type": "openclaw"}
    said = {"type": "message", "role": "assistant", "content": "done"}
    assert check("final_response_present", output=None, trace=[said], run=openclaw).outcome == "passed"
    assert check("final_response_present", output=None, trace=[said]).outcome == "failed"
    (workspace.path / "a.bin").write_bytes(b"\xff")
    (workspace.path / "b.md").write_text("report")
    changes = [added("a.bin"), added("b.md")]
    result = check("final_response_present", output=" ", run={**openclaw, "changes": changes})
    assert (result.outcome, result.actual) == ("passed", "report")


def test_of_several_files_the_expected_one_is_the_answer(check, workspace):
    for name in ("a.md", "z.md"):
        (workspace.path / name).write_text(name)
    run = {"runner_type": "openclaw", "changes": [added("a.md"), added("z.md")]}
    context = {"openclaw": {"expected_artifact": "z.md"}}
    assert check("final_response_present", output=None, run=run, context=context).actual == "z.md"


def test_tool_call_count_is_exact(check):
    calls = [("read_file", {}), ("read_file", {}), ("exec_shell", None)]
    assert check("tool_call_count", count=3, calls=calls).outcome == "passed"
    result = check("tool_call_count", count=2, calls=calls)
    assert (result.outcome, result.expected, result.actual) == ("failed", "2", "3")
    assert result.message == "3 tool calls: read_file x2, exec_shell x1"


def test_files_are_looked_up_in_the_workspace_and_then_in_the_case_folder(check, workspace, tmp_path):
    assert check("file_exists", path="a.txt").message == "a.txt does not exist in the workspace or in the case folder"
    (tmp_path / "case" / "a.txt").write_text("beside")
    assert check("file_exists", path="a.txt").message == "a.txt in the case folder is a regular file"
    (workspace.path / "a.txt").write_text("written")
    assert check("file_exists", path="./a.txt").message == "./a.txt in the workspace is a regular file"
    assert check("file_contains", path="a.txt", text="written").outcome == "passed"
    assert check("file_contains", path="a.txt", text="written", workspace=None).outcome == "failed"


def test_the_type_of_a_path_decides_by_the_kind_of_check(check, workspace):
    (workspace.path / "folder").mkdir()
    os.symlink("/etc/passwd", workspace.path / "link")
    os.mkfifo(workspace.path / "fifo")
    for path in ("folder", "link", "fifo"):
        assert check("file_exists", path=path).outcome == "failed"
        assert check("path_exists", path=path).outcome == "passed"
        assert check("file_contains", path=path, text="root").outcome == "failed"
    assert check("path_exists", path="nothing").outcome == "failed"
    assert check("path_exists", path="link/below").outcome == "failed"


def test_absolute_paths_are_those_of_the_runs_private_tmp(check, workspace, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    assert check("file_exists", path=str(outside)).outcome in ("failed", "error")
    assert check("file_exists", path="/etc/passwd").outcome == "error"
    assert check("file_exists", path="/tmp/out.txt").outcome == "failed"
    workspace.write_text("/tmp/out.txt", "done")
    assert check("file_contains", path="/tmp/out.txt", text="done").outcome == "passed"


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/tmp/../etc/passwd", "a\0b"])
def test_a_path_that_climbs_is_the_cases_error(check, path):
    result = check("path_exists", path=path)
    assert (result.outcome, "path: found" in result.message) == ("error", True)


def test_links_do_not_lead_out(check, workspace, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    os.symlink(tmp_path / "secret", workspace.path / "way")
    os.link(tmp_path / "secret" / "key", workspace.path / "hard")
    os.symlink(tmp_path / "secret" / "key", tmp_path / "case" / "beside")
    for path in ("way/key", "hard"):
        result = check("file_contains", path=path, text="secret")
        assert (result.outcome, result.actual) == ("failed", None)
    assert check("file_contains", path="beside", text="secret").outcome == "error"


@needs_root
def test_paths_without_read_permission_fail(check, workspace, monkeypatch):
    """Else an agent could make an error of its failure."""
    for name in ("folder", "file"):
        workspace.write_text(f"{name}/a.txt", "x")
    (workspace.path / "file" / "a.txt").chmod(0)
    (workspace.path / "folder").chmod(0)
    for path in (workspace.path, *workspace.path.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    monkeypatch.chdir(workspace.path)  # the way here is root's
    with as_nobody():
        results = [
            check("file_contains", path="file/a.txt", text="x", workspace=Workspace(Path())),
            check("file_exists", path="folder/a.txt", workspace=Workspace(Path())),
            check("path_exists", path="folder/a.txt", workspace=Workspace(Path())),
        ]
    assert [(result.outcome, result.message) for result in results] == [
        ("failed", "file/a.txt in the workspace cannot be read: Permission denied"),
        *[("failed", "folder/a.txt in the workspace cannot be looked at: Permission denied")] * 2,
    ]


def test_file_contains_is_case_sensitive_and_needs_utf_8(check, workspace):
    workspace.write_text("a.txt", "Straße\n")
    assert check("file_contains", path="a.txt", text="raß").outcome == "passed"
    result = check("file_contains", path="a.txt", text="STRASSE")
    assert (result.outcome, result.expected, result.actual) == ("failed", "STRASSE", "Straße")
    workspace.write_bytes("a.txt", b"ok \xff")
    result = check("file_contains", path="a.txt", text="ok")
    assert (result.outcome, "not UTF-8: byte 0xff at 3" in result.message) == ("error", True)
    assert check("file_contains", path="gone.txt", text="x").outcome == "failed"


def test_output_artifact_present_needs_every_field_to_match(check):
    artifacts = [
        {"artifact_id": "1", "artifact_type": "report", "uri": "a.md"},
        {"artifact_id": "2", "artifact_type": "log", "uri": "b.log"},
    ]
    run = {"output_artifacts": artifacts}
    assert check("output_artifact_present", artifact_type="log", uri="b.log", run=run).outcome == "passed"
    result = check("output_artifact_present", artifact_type="log", uri="a.md", run=run)
    assert (result.outcome, result.actual) == ("failed", "1 (report, a.md), 2 (log, b.log)")


def test_openclaw_workspace_file_present(check, workspace):
    workspace.write_text("out/report.md", "# Informe\nLa STRASSE está aquí")
    workspace.write_text("template.md", "x")
    locked = {**added("template.md"), "change": "mode"}
    run = {"runner_type": "openclaw", "changes": [added("out/report.md"), locked]}

    def present(run=run, **fields):
        return check("openclaw_workspace_file_present", **{"relative_path": "out/report.md"} | fields, run=run).outcome

    assert present() == present(contains="# Informe") == "passed"
    assert present(contains="# informe") == "failed"
    assert present(contains_all=["informe", "straße", "esta"]) == present(contains_any=["x", "AQUI"]) == "passed"
    assert present(contains_all=["informe", "x"]) == present(contains_any=["x", "y"]) == "failed"
    assert present(relative_path="template.md") == present(relative_path="report.md") == "failed"
    assert present(run={**run, "runner_type": "llm_probe"}) == "failed"


def test_a_file_that_may_be_among_unlisted_changes_is_reported_as_such(check):
    run = {"runner_type": "openclaw", "changes": [added("a")], "metadata": {WORKSPACE_NOTE: {"more_changes": 1200}}}
    result = check("openclaw_workspace_file_present", relative_path="z", run=run)
    assert result.outcome == "failed"
    assert "the agent did not create or change z; 1,200 more changes that are not listed" in result.message


@pytest.mark.parametrize("changes", [None, []])
def test_a_file_does_not_count_as_made_if_the_changes_are_unknown(check, workspace, changes):
    workspace.write_text("out/report.md", "from before the run")
    run = {"runner_type": "openclaw", "changes": changes, "metadata": {WORKSPACE_NOTE: {"not_compared": "too large"}}}
    result = check("openclaw_workspace_file_present", relative_path="out/report.md", run=run)
    assert (result.outcome, result.actual) == ("failed", "changed: nothing")
    assert result.message == "the agent did not create or change out/report.md; not compared: too large"


@pytest.mark.parametrize("kind", ["file_exists", "path_exists", "file_contains", "regex_match"])
def test_a_missing_path_fails_even_without_a_workspace(check, kind):
    """Also if the run made no workspace."""
    fields = {"path": "gone.md", **({"text": "x"} if kind == "file_contains" else {})}
    fields |= {"pattern": "x"} if kind == "regex_match" else {}
    result = check(kind, **fields)
    assert (result.outcome, result.message) == (
        "failed", "gone.md does not exist in the workspace or in the case folder"
    )  # fmt: skip
    result = check(kind, workspace=None, **fields)
    assert (result.outcome, result.message) == (
        "failed", "gone.md does not exist in the case folder (the run made no workspace)"
    )  # fmt: skip
    result = check(kind, workspace=None, **{**fields, "path": "/tmp/gone.md"})
    assert (result.outcome, result.message) == ("failed", "/tmp/gone.md does not exist (the run made no workspace)")


def added(path: str) -> dict[str, object]:
    """A file that the run made."""
    return {"path": path, "change": "added", "after": {"kind": "file", "mode": 0o644, "size": 1}}


@given(st.text(max_size=30))
def test_normalisation_settles(text):
    plain = normalized(text)
    assert normalized(text.upper().casefold()) == normalized(text.upper())
    assert not any(unicodedata.combining(each) for each in plain)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("STRASSE", "straße", True),
        ("ﬁ", "fi", True),
        ("ς", "σ", True),
        ("ø", "o", False),
        ("É", "e", True),
        ("a b", "ab", False),
    ],
)
def test_normalisation_of_letters(one, other, same):
    assert (normalized(one) == normalized(other)) is same


def test_a_pattern_that_backtracks_without_end_is_an_error_after_a_moment(check, monkeypatch):
    monkeypatch.setattr("pytest_agentbench.checks.run.REGEX_SECONDS", 0.1)
    result = check("regex_match", pattern="(a|aa)+$", output="a" * 60 + "b")
    assert result.outcome == "error"
    assert "the pattern took over 0.1 s" in result.message


def test_regex_match_searches_the_output_or_a_file(check, workspace):
    assert check("regex_match", pattern=r"\banswer$").actual == "answer"
    assert check("regex_match", pattern="ANSWER").outcome == "failed"
    assert check("regex_match", pattern="ANSWER", ignore_case=True).outcome == "passed"
    workspace.write_text("log", "line 1\nline 2")
    assert check("regex_match", pattern="(?m)^line 2", path="log").outcome == "passed"
    result = check("regex_match", pattern="x", output=None)
    assert (result.outcome, result.message) == ("failed", "there is no final output")


SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 2}}}


@pytest.mark.parametrize(
    ("output", "outcome", "message"),
    [
        ('{"n": 2}', "passed", "satisfies"),
        ('Here:\n```json\n{"n": 2}\n```\nDone.', "passed", "satisfies"),
        ('```\n{"n": 1}\n```\n and now\n```JSON\n{"n": 3}\n```', "passed", "satisfies"),
        ('{"n": 1}', "failed", "$.n: 1 is less than the minimum of 2"),
        ("{}", "failed", "$: 'n' is a required property"),
        ("n is 2", "failed", "the final output is not JSON"),
        ('{"n": NaN}', "failed", "NaN is no JSON value"),
        ("[" * 100_000, "failed", "nested too deeply"),
        ('{"n": ' * 300 + "1" + "}" * 300, "failed", "nested too deeply"),
    ],
)
def test_json_schema(check, output, outcome, message):
    result = check("json_schema", schema=SCHEMA, output=output)
    assert result.outcome == outcome
    assert message in result.message
    assert len(result.actual) < 500


def test_json_schema_is_itself_checked_and_fetches_nothing(check):
    assert (
        "schema: $.type: 'objekt' is not valid" in check("json_schema", schema={"type": "objekt"}, output="{}").message
    )
    remote = check("json_schema", schema={"$ref": "http://127.0.0.1:9/schema.json"}, output="{}")
    assert (remote.outcome, "is not in it, and nothing is fetched" in remote.message) == ("error", True)


HOSTILE = {"type": "object", "properties": {"a": {"pattern": "^(a|aa)+$"}}, "patternProperties": {"^(b|bb)+$": {}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "output"),
    [
        (HOSTILE, json.dumps({"a": "a" * 60 + "!"})),
        (HOSTILE, json.dumps({"b" * 60 + "!": 1})),
        ({"$ref": "#"}, "{}"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"}, "{}"),
        ({"pattern": "(" * 3_000 + ")" * 3_000}, '"a"'),
    ],
    ids=["pattern", "pattern-properties", "itself", "itself-twice", "nested"],
)
def test_a_schema_that_would_hold_the_session_up_is_an_error_of_its_check(check, schema, output):
    with at_most(10):
        result = check("json_schema", schema=schema, output=output)
        assert (result.outcome, "schema: " in result.message) == ("error", True)


@pytest.mark.parametrize(
    ("path", "value", "outcome"),
    [
        ("$.a.b[1]", 2, "passed"),
        ("$.a.b[1]", 2.0, "passed"),
        ("$.a.b[1]", "2", "failed"),
        ("$.a.b[0]", True, "failed"),
        ("$.a.b[*]", [1, 2], "passed"),
        ("$.a.b[*]", 1, "failed"),
        ("$.a.b[*]", 2, "failed"),
        ("$..c", None, "passed"),
        ("$.a", {"c": None, "b": [1, 2]}, "passed"),
        ("$.gone", None, "failed"),
        ("$.gone", [], "passed"),
        ("$.a[?@ > 1]", 1, "failed"),
        ("$.[", 1, "error"),
        ("a.b", 1, "error"),
    ],
)
def test_json_path_equals(check, path, value, outcome):
    output = '```json\n{"a": {"b": [1, 2], "c": null}}\n```'
    assert check("json_path_equals", json_path=path, value=value, output=output).outcome == outcome


def test_tool_called(check):
    calls = [
        ("write_file", {"path": "a", "options": {"mode": "w", "bom": False}}),
        ("read_file", {"path": "a"}),
        ("write_file", {"path": "b"}),
        ("exec_shell", None),
    ]

    def called(name, **fields):
        return check("tool_called", name=name, calls=calls, **fields).outcome

    assert called("read_file") == called("write_file", min_count=2) == called("exec_shell") == "passed"
    assert called("gone") == called("read_file", min_count=2) == "failed"
    assert called("write_file", arguments={"options": {"mode": "w"}}) == "passed"
    assert (
        called("write_file", arguments={"options": {"bom": 0}}) == called("exec_shell", arguments={"x": 1}) == "failed"
    )
    assert called("write_file", arguments={"path": "b"}, after="read_file") == "passed"
    assert called("write_file", arguments={"path": "a"}, after="read_file") == "failed"
    assert called("read_file", after="exec_shell") == called("read_file", after="gone") == "failed"
    assert called("write_file", after="write_file") == "passed"
    assert called("write_file", after="write_file", min_count=2) == called("read_file", after="read_file") == "failed"
    result = check("tool_called", name="read_file", arguments={"path": "z"}, calls=calls)
    assert (result.expected, result.actual) == ('call of read_file with {"path": "z"}', 'read_file with {"path": "a"}')


def test_tool_not_called(check):
    calls = [("exec_shell", {"command": "rm -rf /"})]
    assert check("tool_not_called", name="exec_shell", calls=calls).outcome == "failed"
    assert check("tool_not_called", name="exec_shell", arguments={"command": "ls"}, calls=calls).outcome == "passed"
    assert check("tool_not_called", name="write_file", calls=calls).outcome == "passed"


def test_max_turns_counts_requests_and_else_messages(check):
    request = {"type": "runner", "name": "request"}
    said = {"type": "message", "role": "assistant", "content": "x"}
    assert check("max_turns", count=2, trace=[request, request, said, said, said]).outcome == "passed"
    assert check("max_turns", count=1, trace=[said, said]).outcome == "failed"
    assert check("max_turns", count=1).outcome == "error"


def test_cost_and_duration(check):
    usage = {"usage": {"cost_usd": 0.02}}
    assert check("max_cost_usd", usd=0.02, run=usage).outcome == "passed"
    assert check("max_cost_usd", usd=0.01, run=usage).message == "the run cost $0.02"
    assert check("max_cost_usd", usd=1).outcome == "error"
    assert check("max_seconds", seconds=2.5).outcome == "passed"
    assert check("max_seconds", seconds=2).outcome == "failed"


def test_metric(check, workspace):
    assert check("metric", name="exact_match", reference="the answer").outcome == "passed"
    result = check("metric", name="similarity", reference="the anvil", threshold=0.9)
    assert (result.outcome, result.expected, result.actual) == ("failed", "the anvil", "the answer")
    workspace.write_text("out", "Paris")
    assert check("metric", name="contains_answer", reference="paris", path="out").outcome == "passed"
    result = check("metric", name="similarty", reference="x")
    assert (result.outcome, "did you mean 'similarity'" in result.message) == ("error", True)


def test_a_plugins_kind_gets_its_fields_and_may_break(check):
    def is_haiku(spec, context):
        lines = (context.artifact.final_output or "").splitlines()
        return Verdict("passed" if len(lines) == spec.lines else "failed", f"{len(lines)} lines")

    assert check("is_haiku", lines=3, output="a\nb\nc", kinds={"is_haiku": is_haiku}).outcome == "passed"
    result = check("is_haiku", kinds={"is_haiku": is_haiku})
    assert (result.outcome, "AttributeError" in result.message) == ("error", True)
    result = check("is_haiku", kinds={"is_haiku": lambda spec, context: True})
    assert (result.outcome, result.message) == (
        "error",
        "TypeError: the check is_haiku returned bool, expected a Verdict",
    )
    result = check("is_haiku")
    assert (result.outcome, "no check of kind 'is_haiku' is registered" in result.message) == ("error", True)


@given(st.text(max_size=3000))
def test_an_excerpt_is_short_and_ends_as_the_text_does(text):
    kept = excerpt(text)
    assert len(kept) <= 401
    assert len(kept.splitlines()) <= 9
    assert text.strip()[-1:] == kept[-1:]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, json_values)
def test_json_equality_is_an_equality(one, other):
    assert json_equal(one, one)
    assert json_equal(one, other) == json_equal(other, one)
    assert includes(one, one)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4), st.data())
def test_a_mapping_includes_each_of_its_parts(whole, data):
    keys = data.draw(st.sets(st.sampled_from(sorted(whole)))) if whole else set()
    assert includes(whole, {key: whole[key] for key in keys})


@given(st.text(max_size=40))
def test_any_text_is_json_or_a_value_error(text):
    for wrapped in (text, f"```json\n{text}\n```"):
        try:
            parse_json(wrapped)
        except ValueError:
            continue


@pytest.mark.slow
def test_ten_thousand_simple_checks_cost_little(check, tmp_path):
    declared = [{"check_id": f"c{at}", "declarative": {"kind": "final_response_present"}} for at in range(10_000)]
    case = Case.model_validate(
        {"case_id": "a", "title": "a", "path": Path("t"), "runner": {"type": "x"}, "checks": declared}
    )
    artifact = RunArtifact(
        run_id="r", case_id="a", runner_type="x", model={}, repetition=1, status="success",
        started_at=datetime.now(UTC), duration_seconds=1,
    )  # fmt: skip
    with at_most(2):
        results = asyncio.run(run_checks(CheckContext(case, artifact, None, METRICS), SecurityPolicy()))
        assert len(results) == 10_000
