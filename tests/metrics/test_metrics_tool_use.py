from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tool_use_runs import called, note, result, run, task, use

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.metrics.registry import (
    METRICS,
    TOOL_USE_METRICS,
    Measured,
    measure,
    measure_trace,
    metric,
    refusal,
    takes_trace,
)
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.records.check_specs import MetricAtLeast

CASE = task("A", "B")


def rates(artifact, case=CASE):
    return {name: measured(name, artifact, case).score for name in TOOL_USE_METRICS}


def measured(name, artifact, case=CASE, threshold=None):
    return measure_trace(MetricSpec(name=name, threshold=threshold), case, artifact, METRICS)


def test_the_rates_are_hand_computed_fractions():
    artifact = run(
        use("A:one", call_id="1"),
        use("A:two", '{"error": "no such city"}', call_id="2"),
        use("B:one", is_error=True, call_id="3", schema_valid=False),
        use("B:made_up", is_error=True, call_id="4", offered=False, schema_valid=None),
        use("B:two", call_id="5", schema_valid=None),
        called("A:one", call_id="6"),
    )
    assert rates(artifact) == {
        "valid_tool_name_rate": 5 / 6,
        "input_schema_compliance": 3 / 4,  # B:two has a broken schema
        "execution_success_rate": 3 / 6,  # the last call has no result: the run was cut off
        "soft_error_rate": 1 / 6,
        "valid_call_failure_rate": 1 / 4,  # of A:one, A:two, B:two and the last, which never ended
        "dependency_compliance": None,
        "planning_json_compliance": None,
    }
    assert measured("valid_tool_name_rate", artifact).details == {"hits": 5, "of": 6}


def test_failures_of_invalid_calls_are_not_failures_of_valid_ones():
    invalid = [
        use("A:none", is_error=True, offered=False, schema_valid=None),
        use("A:one", is_error=True, schema_valid=False),
    ]
    assert rates(run(*invalid))["valid_call_failure_rate"] is None
    assert rates(run(*invalid, use("A:one")))["valid_call_failure_rate"] == 0
    assert rates(run(*invalid, use("A:one", is_error=True)))["valid_call_failure_rate"] == 1


def test_without_calls_there_is_nothing_to_measure():
    assert set(rates(run()).values()) == {None}
    assert measured("valid_tool_name_rate", run()).passed is None


def test_a_threshold_is_missed_where_there_is_nothing_to_measure():
    found = measured("execution_success_rate", run(), threshold=0.5)
    assert (found.score, found.passed, found.error) == (None, False, None)


def test_calls_of_unknown_tools_alone_have_a_schema_rate_of_0():
    found = rates(run(use("A:none", offered=False, schema_valid=None, is_error=True)))
    assert (found["valid_tool_name_rate"], found["input_schema_compliance"]) == (0, 0)


def test_broken_schemas_alone_leave_nothing_to_measure():
    assert rates(run(use("A:odd", schema_valid=None)))["input_schema_compliance"] is None


def test_calls_that_an_own_agent_reports_of_its_own_tools():
    """Nobody knows its tools, nor how a call without a result ended."""
    unknown = {"offered": None, "schema_valid": None}
    artifact = run(use("mine", call_id="1", **unknown), called("yours", call_id="2", **unknown), runner_type="callable")
    found = rates(artifact)
    assert found["valid_tool_name_rate"] is found["input_schema_compliance"] is None
    assert found["execution_success_rate"] == 1


@pytest.mark.parametrize(
    ("content", "soft"),
    [
        ('{"error": "it failed"}', True),
        ('{"error": {"code": 1}, "data": []}', True),
        ('{"error": ""}', False),
        ('{"error": null, "data": 1}', False),
        ('{"errors": ["x"]}', False),
        ('[{"error": "x"}]', False),
        ('{"data": {"error": "x"}}', False),
        ('it said {"error": "x"}', False),
        ('{"error": ' + "[" * 100_000, False),
    ],
)
def test_a_soft_error_is_an_object_with_a_non_empty_error(content, soft):
    assert rates(run(use("A:one", content)))["soft_error_rate"] == soft


def test_a_flagged_error_is_no_soft_one():
    assert rates(run(use("A:one", '{"error": "x"}', is_error=True)))["soft_error_rate"] == 0


def test_ids_that_come_again_belong_to_their_own_results():
    artifact = run(use("A:one", call_id="call_0"), use("A:two", is_error=True, call_id="call_0"))
    assert rates(artifact)["execution_success_rate"] == 1 / 2


GRAPH = {"A:report": ("A:search", "B:convert"), "convert": ("A:search",)}


@pytest.mark.parametrize(
    ("events", "hits", "of", "needing"),
    [
        ([use("A:search"), use("B:convert"), use("A:report")], 3, 3, 2),
        ([use("A:search"), use("A:report"), use("B:convert")], 2, 3, 2),
        ([called("A:search", call_id="1"), called("B:convert", call_id="2"), result("A:search")], 1, 1, 0),
        (
            [
                *(called("A:search", call_id="1"), called("B:convert", call_id="2")),
                *(result("A:search", call_id="1"), result("B:convert", call_id="2")),
            ],
            *(1, 2, 1),
        ),
        ([use("A:search", is_error=True), use("B:convert")], 1, 2, 1),
        ([use("A:search", is_error=True), use("A:search"), use("B:convert", is_error=True)], 3, 3, 1),
        ([use("A:search"), use("B:convert", offered=False)], 1, 1, 0),
        ([use("A:search")], 1, 1, 0),
    ],
    ids=str.split("in-order too-early cut-off parallel after-a-failure second-try made-up nothing-needed"),
)
def test_the_share_of_executed_calls_before_which_all_had_succeeded_that_they_need(events, hits, of, needing):
    case = task("A", "B", dependencies=GRAPH)
    found = measured("dependency_compliance", run(*events), case)
    assert (found.score, found.details) == (hits / of, {"hits": hits, "of": of, "needing": needing})


@pytest.mark.parametrize("events", [(), (called("A:search"),), (use("A:made_up", offered=False),)])
def test_without_an_executed_call_no_dependency_is_measured(events):
    assert measured("dependency_compliance", run(*events), task("A", dependencies=GRAPH)).score is None


def test_plans_count_by_their_first_attempt():
    artifact = run(
        note("plan", round=1, attempt=1, ok=True),
        note("plan", round=2, attempt=1, ok=False, problems=["no JSON"]),
        note("plan", round=2, attempt=2, ok=True),
    )
    assert rates(artifact)["planning_json_compliance"] == 1 / 3


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(True, True), (True, False), (True, None), (False, None)]),
            st.booleans(),
            st.sampled_from(["fine", '{"error": "x"}']),
        ),
        max_size=12,
    )
)
def test_rates_are_exact_fractions_within_their_limits(calls):
    events = [
        use("A:t", content, is_error=failed, call_id=str(at), offered=offered, schema_valid=valid)
        for at, ((offered, valid), failed, content) in enumerate(calls)
    ]
    found = rates(run(*events))
    if not calls:
        assert set(found.values()) == {None}
        return
    count = len(calls)
    assert found["valid_tool_name_rate"] == float(Fraction(sum(call[0][0] for call in calls), count))
    assert found["execution_success_rate"] == float(Fraction(sum(not call[1] for call in calls), count))
    assert found["execution_success_rate"] >= found["soft_error_rate"]
    scored = [call[0][1] for call in calls if call[0][0] and call[0][1] is not None]
    if scored:
        assert found["input_schema_compliance"] == float(Fraction(sum(scored), len(scored)))
    else:
        assert found["input_schema_compliance"] == (None if any(call[0][0] for call in calls) else 0)


# -- metrics of traces among the others


def test_texts_are_no_trace():
    with pytest.raises(ConfigError, match="looks at how a run used its tools"):
        score("valid_tool_name_rate", "a", "b")
    assert "looks at how" in measure(MetricSpec(name="soft_error_rate"), "a", "b", METRICS).error


def test_a_check_of_a_text_cannot_ask_for_one():
    spec = MetricSpec(name="soft_error_rate")
    assert refusal(spec, METRICS) is None
    assert "looks at how a run used its tools" in refusal(spec, METRICS, checked=True)
    assert MetricAtLeast(kind="metric", name="soft_error_rate", reference="x").name == spec.name


def test_ones_own_metric_of_a_trace_has_options_and_may_find_nothing_to_measure():
    try:

        @metric("test_few_calls", trace=True)
        def few_calls(case, artifact, most: int = 2):
            calls = artifact.tool_calls
            return Measured(float(len(calls) <= most), {"calls": len(calls)}) if calls else None

        assert takes_trace(few_calls)
        spec = MetricSpec(name="test_few_calls", args={"most": 1}, threshold=1)
        found = measure_trace(spec, CASE, run(use("A:one"), use("A:one")), METRICS)
        assert (found.score, found.passed, found.details) == (0, False, {"calls": 2})
        assert measure_trace(MetricSpec(name="test_few_calls"), CASE, run(), METRICS).score is None
        assert "args.most" in refusal(MetricSpec(name="test_few_calls", args={"most": "x"}), METRICS)
    finally:
        del METRICS["test_few_calls"]


def test_a_metric_of_a_trace_cannot_ask_a_model():
    with pytest.raises(ConfigError, match="plain function"):

        @metric("test_asks", trace=True)
        async def asks(case, artifact):
            return 1.0


def test_an_exception_of_a_metric_is_its_error_and_no_score():
    spec = MetricSpec(name="soft_error_rate", args={"unknown": 1}, threshold=0.5)
    found = measure_trace(spec, CASE, run(), METRICS)
    assert found.score is None
    assert "unexpected keyword argument" in found.error


def test_details_are_json():
    found = [measured(name, run(use("A:one"))) for name in TOOL_USE_METRICS]
    assert json.loads(json.dumps([each.details for each in found]))[0] == {"hits": 1, "of": 1}
