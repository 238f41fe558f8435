from __future__ import annotations

import hashlib
import json
import math
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
from pytest_agentbench.identity.fingerprints import (
    VerdictInputs,
    canonical_json,
    evaluation_input,
    evaluation_profile_input,
    fingerprint,
    judge_input,
    run_fingerprint_input,
    run_profile_input,
)
from pytest_agentbench.records.case import (
    Attachment,
    Case,
    Criterion,
    Expectations,
    Message,
    MetricSpec,
    Model,
    Rubric,
    RunnerSpec,
)
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.gold import read_gold
from pytest_agentbench.store.artifacts import Store

CASE = Case(
    case_id="sum",
    title="A sum",
    path=Path("/cases/sum/test.yaml"),
    runner=RunnerSpec(type="llm_probe"),
    messages=(Message(role="user", content="2 + 2?"),),
    attachments=(Attachment(name="a.txt", path=Path("/a.txt"), size=3, sha256="ab" * 32),),
    checks=(Check.model_validate({"check_id": "said", "declarative": {"kind": "final_response_present"}}),),
)
MODEL = Model(model_id="gpt", requested_model="gpt-4o", parameters={"temperature": 0})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def run_key(case: Case = CASE, model: Model = MODEL, settings: dict | None = None, repetition: int = 1, **extra) -> str:
    return fingerprint(run_fingerprint_input(case, model, "llm_probe", settings or {}, repetition, extra))


def test_a_turns_own_time_is_part_of_the_run_and_an_unset_one_is_not():
    plain = CASE.model_copy(update={"turns": (Message(role="user", content="And 3 + 3?"),)})
    timed = CASE.model_copy(update={"turns": (Message(role="user", content="And 3 + 3?", max_seconds=30),)})
    assert run_fingerprint_input(plain, MODEL, "llm_probe", {}, 1)["turns"] == [
        {"role": "user", "content": "And 3 + 3?", "name": None}
    ]
    assert run_key(timed) not in (run_key(plain), run_key())


def reordered(value):
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def as_floats(value):
    """Every whole number as a float of the same value, where there is one."""
    if isinstance(value, dict):
        return {key: as_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_floats(item) for item in value]
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    return value


@pytest.mark.slow
@given(json_values)
def test_canonical_json_is_json_of_the_same_value(value):
    assert json.loads(canonical_json(value)) == value


@pytest.mark.slow
@given(json_values)
def test_neither_key_order_nor_number_notation_changes_it(value):
    assert canonical_json(as_floats(reordered(value))) == canonical_json(value)


@pytest.mark.parametrize(("one", "other"), [(0, 0.0), (0.0, -0.0), (1, 1.0), (10**22, 1e22), ((1, 2), [1, 2])])
def test_equal_by_value(one, other):
    assert fingerprint({"x": one}) == fingerprint({"x": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (0, None), (1, "1"), (0.1, 0.2), ("", None), ([], {}), ("\u00e9", "e\u0301")],
)
def test_different_values_differ(one, other):
    assert fingerprint({"x": one}) != fingerprint({"x": other})


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"b", "a", 10, 9}, b'["a","b",10,9]'),
        (frozenset({2.0}), b"[2]"),
        ((1, [2.5, None]), b"[1,[2.5,null]]"),
        (b"\x01\xff", b'"01ff"'),
        (float("-inf"), b'"-inf"'),
        ({1.0: 2, None: 1, False: True}, b'{"1":2,"false":true,"null":1}'),
        ({"é": "ü"}, b'{"\\u00e9":"\\u00fc"}'),
    ],
)
def test_canonical_forms(value, form):
    assert canonical_json(value) == form
    assert fingerprint([value]) == fingerprint(b"[" + form + b"]") == hashlib.sha256(b"[" + form + b"]").hexdigest()


def test_canonical_form_is_stable():
    """Stored results stay valid only while these bytes stay the same."""
    assert canonical_json({"b": [1.0, None, True], "a": "é\ud800"}) == b'{"a":"\\u00e9\\ud800","b":[1,null,true]}'
    assert fingerprint({}) == fingerprint(b"{}") == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: {True: None}}, {None: b"x"}, {"s": {3, 1, 2}}, object])
def test_any_value_of_yaml_or_an_agent_has_a_canonical_form(value):
    json.loads(canonical_json(value))


@pytest.mark.parametrize(
    "change",
    [
        {"title": "Another"},
        {"tags": ("smoke",)},
        {"path": Path("/elsewhere/test.yaml")},
        {"metadata": {"owner": "me"}},
        {"must_pass": True},
        {"checks": ()},
        {"rubric": Rubric()},
        {"attachments": (CASE.attachments[0].model_copy(update={"path": Path("/moved/a.txt")}),)},
    ],
)
def test_fields_without_effect_on_a_run_do_not_change_its_fingerprint(change):
    assert run_key(CASE.model_copy(update=change)) == run_key()


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (Message(role="user", content="2 + 3?"),)},
        {"messages": (Message(role="system", content="2 + 2?"),)},
        {"turns": (Message(role="user", content="And now?"),)},
        {"context": {"llm_probe": {"tools": ["read_file"]}}},
        {"tools": ("read_file",)},
        {"attachments": ()},
        {"attachments": (CASE.attachments[0].model_copy(update={"sha256": "cd" * 32}),)},
        {"attachments": (CASE.attachments[0].model_copy(update={"name": "b.txt"}),)},
    ],
)
def test_inputs_of_the_agent_change_the_run_fingerprint(change):
    assert run_key(CASE.model_copy(update=change)) != run_key()


def test_model_settings_repetition_and_extra_change_the_run():
    keys = [
        run_key(),
        run_key(model=MODEL.model_copy(update={"requested_model": "gpt-5"})),
        run_key(model=MODEL.model_copy(update={"parameters": {"temperature": 1}})),
        run_key(model=MODEL.model_copy(update={"base_url": "http://localhost:1/v1"})),
        run_key(settings={"max_turns": 3}),
        run_key(repetition=2),
        run_key(image="agent@sha256:1"),
    ]
    assert len(set(keys)) == len(keys)


def test_prices_limits_and_keys_do_not_change_the_run():
    update = {"label": "GPT", "api_key_env": "OTHER_KEY", "judge": "demo"}
    assert run_key(model=MODEL.model_copy(update=update)) == run_key()


def evaluation_key(case: Case = CASE, profile: EvaluationProfile | None = None, judges=(), run: str = "r") -> str:
    profile_print = fingerprint(evaluation_profile_input(profile or evaluation_profile(), judges))
    return fingerprint(evaluation_input(run, case, profile_print))


def evaluation_profile(**fields) -> EvaluationProfile:
    return EvaluationProfile(schema_version=1, evaluation_profile_id="p", title="P", **fields)


WHOLE = CASE.model_copy(
    update={
        "turns": (Message(role="user", content="Und auf \u00bbDeutsch\u00ab?", name="Eva"),),
        "context": {1: 1.0, "nested": [{"pi": 3.5, "none": None}], "at": date(2024, 2, 29)},
        "tools": ("web_search", "calc"),
        "metadata": {"source": {"page": 3}},
        "expectations": Expectations.model_validate({"soft_expectations": [{"text": "Says why.", "weight": 2}]}),
        "rubric": Rubric(criteria=(Criterion(name="Clarity", what_good_looks_like="Short."),)),
        "metrics": (MetricSpec(name="f1_score", threshold=0.5, args={"language": "de"}, compat="v1"),),
        "reference": "4",
        "require_hard": True,
    }
)


def test_fingerprints_of_whole_documents_stay_equal():
    options = {"region": "eu", "retries": 2.0}
    model = MODEL.model_copy(update={"base_url": "http://localhost:1/v1", "options": options})
    settings = {"max_rounds": 3, "stop": ["a", "b"], "top_p": 0.9}
    run = run_key(WHOLE, model, settings, 2, agent={"name": "add"}, metadata=WHOLE.metadata)
    assert run == "c9b969daf4d3f4c569de75a1121e559de6e2800ac120735e01ea1d688b0c0a42"
    assert run_key() == "61bec2ed6c9462ce410308df5211fd2984c1325a75a7a64723529961b528e590"
    assert (
        evaluation_key(WHOLE, run=run, judges=(model,))
        == "e778bdb15ea9e8b3d2bc33c1956eba8dee18b444f0dda596374382b584b56948"
    )
    assert evaluation_key() == "49a8b28df2e463419b87eefea4217a9f027040f5bed5296cad64515826decbae"


def test_every_record_has_a_fingerprint_of_its_own():
    keys = {run_key(model=MODEL.model_copy(update={"options": {"seed": seed}})) for seed in range(600)}
    metrics = [(MetricSpec(name="f1_score", threshold=index / 600),) for index in range(600)]
    keys |= {evaluation_key(CASE.model_copy(update={"metrics": each})) for each in [*metrics, *metrics]}
    assert len(keys) == 1200


def test_an_edited_rubric_changes_the_evaluation_only():
    edited = CASE.model_copy(update={"rubric": Rubric(scoring_instructions="Be kind.")})
    assert run_key(edited) == run_key()
    assert evaluation_key(edited) != evaluation_key()


@pytest.mark.parametrize(
    "change",
    [
        {"checks": ()},
        {"expectations": Expectations.model_validate({"hard_expectations": [{"text": "Says 4."}]})},
        {"reference": "4"},
        {"golds": read_gold(["4", "four"])},
        {"require_hard": True},
    ],
)
def test_fields_that_decide_a_case_change_the_evaluation_fingerprint(change):
    assert evaluation_key(CASE.model_copy(update=change)) != evaluation_key()


def test_settings_of_judges_change_the_evaluation_fingerprint():
    judges = ({"judge_id": "j", "type": "llm_probe", "model": "m"},)
    keys = [
        evaluation_key(),
        evaluation_key(run="another"),
        evaluation_key(profile=evaluation_profile(judge_system_prompt="Be strict.")),
        evaluation_key(profile=evaluation_profile(judges=judges)),
        evaluation_key(profile=evaluation_profile(aggregation={"method": "mean"})),
        evaluation_key(profile=evaluation_profile(anchors={"enabled": True})),
        evaluation_key(profile=evaluation_profile(security_policy={"allow_local_python_hooks": True})),
        evaluation_key(judges=(MODEL,)),
        evaluation_key(judges=(MODEL.model_copy(update={"parameters": {}}),)),
        evaluation_key(judges=(MODEL.model_copy(update={"options": {"region": "eu"}}),)),
    ]
    assert len(set(keys)) == len(keys)


def test_names_and_titles_do_not():
    renamed = EvaluationProfile(schema_version=1, evaluation_profile_id="q", title="Q", metadata={"a": 1})
    assert evaluation_key(profile=renamed) == evaluation_key()


def test_a_lane_gives_the_same_evaluation_fingerprint(tmp_path):
    profile = evaluation_profile(judge_system_prompt="Be strict.")
    model_store = Store(tmp_path).of_model(None, RunProfile.default(), profile, "gpt", (MODEL,))
    covered = evaluation_input("r", CASE, model_store.evaluation_profile_fingerprint)
    assert fingerprint(covered) == evaluation_key(profile=profile, judges=(MODEL,))


def test_the_models_that_metrics_ask_change_the_evaluation(tmp_path):
    model_store = Store(tmp_path).of_model(None, RunProfile.default(), evaluation_profile(), "gpt")
    judges = [(), (MODEL,), (MODEL.model_copy(update={"base_url": "http://elsewhere/v1"}),)]
    renamed = MODEL.model_copy(update={"model_id": "other", "label": "Other"})
    *keys, other = (
        fingerprint(evaluation_input("r", CASE, model_store.evaluation_profile_fingerprint, each))
        for each in (*judges, (renamed,))
    )
    assert len(set(keys)) == 3
    assert other == keys[1]


def test_how_many_runs_go_at_once_is_no_setting_of_a_run():
    def profile(**fields) -> str:
        given = RunProfile(schema_version=1, run_profile_id="p", title="P", **fields)
        return fingerprint(run_profile_input(given))

    assert profile(execution_policy={"max_concurrency": 9, "run_repetitions": 5}) == profile()
    assert profile(runner_defaults={"temperature": 0.0}) == profile(runner_defaults={"temperature": 0})
    assert profile(runner_defaults={"temperature": 1}) != profile()
    assert profile(parallel_tools="never") != profile()


def test_secrets_and_folders_of_servers_are_not_in_the_profile_fingerprint():
    def covered(**server) -> dict:
        servers = {"A": {"command": "x", **server}}
        return run_profile_input(RunProfile(schema_version=1, run_profile_id="p", title="P", mcp_servers=servers))

    assert covered(env={"TOKEN": "hush"}, cwd="/home/me/server") == covered(cwd="/srv/server") == covered()
    assert covered(args=["--fast"]) != covered()
    assert run_profile_input(RunProfile.default())["mcp_servers"] == {}


@pytest.mark.parametrize(
    ("fields", "digits"),
    [
        ({}, "accb7badfd6d29c3"),
        ({"runner_defaults": {"temperature": 1}}, "42a80a1b5f2f15ed"),
        ({"sandbox": {"type": "docker", "image": "a:1"}}, "0f4aaab0811646da"),
        ({"network": {"web": "deny"}}, "f64c942fb754556d"),
    ],
)
def test_runs_of_profiles_without_mcp_keep_their_folder(fields, digits):
    """The digits are those of the version before profiles had `planner` and their servers were used."""
    profile = RunProfile(schema_version=1, run_profile_id="p", title="P", **fields)
    assert fingerprint(run_profile_input(profile)).startswith(digits)


def test_how_long_a_judge_is_waited_for_does_not_matter():
    judge = {"judge_id": "j", "type": "llm_probe", "model": "m"}
    plain, patient = (
        evaluation_profile(judges=({**judge, **more},)) for more in ({}, {"retries": 9, "timeout_seconds": 600})
    )
    assert evaluation_key(profile=patient) == evaluation_key(profile=plain)
    assert judge_input(patient) == judge_input(plain)


def test_where_a_judges_prompt_was_read_from_does_not_matter():
    assert "judge_system_prompt_path" not in evaluation_profile_input(evaluation_profile())


def test_a_profile_without_mcp_tasks_keeps_its_fingerprint():
    assert "mcp_tasks" not in evaluation_profile_input(evaluation_profile())
    assert "mcp_tasks" not in evaluation_profile_input(evaluation_profile(mcp_tasks={"shuffle": "axes"}))
    shuffled = evaluation_profile_input(evaluation_profile(mcp_tasks={"shuffle": "bands"}))
    assert shuffled["mcp_tasks"] == {"shuffle": "bands", "language": "en"}


@given(title=st.text(), reference=st.lists(st.text()))
def test_deciders_that_are_written_once_give_the_hashes_of_the_whole(title, reference):
    case = CASE.model_copy(update={"title": title, "reference": tuple(reference)})
    whole = {run: evaluation_input(run, case, "p" * 64, extra={"zone": title}) for run in ("", "r" * 64)}
    found = VerdictInputs(whole[""])
    assert found.fingerprint("r" * 64) == fingerprint(whole["r" * 64])
    assert found.measure == fingerprint({**whole[""], "title": ""})
