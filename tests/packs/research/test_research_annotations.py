from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import DomainExpert, TokenPrice, read_annotations
from pytest_agentbench.packs.research.config import PoetConfig, read_poet_config

FLAT = {
    "domain_expert_data": {"finance": {"avg_hourly_rate_usd": 200, "avg_task_time_hours": 2.5}},
    "complexity_level_data": {"1": {"expert_time_multiplier": 0.5, "difficulty_score": 1}, "3": {}},
    "token_pricing_data": {"gpt-4": {"input_price_per_1k": 0.01, "output_price_per_1k": 0.03}},
}
NESTED = {
    "domain_expert_data": {
        "description": "d",
        "domains": {"finance": {"expert_hourly_rate_usd": 200, "expert_time_hours": 2.5, "factors": ["x"]}},
    },
    "complexity_level_data": {
        "complexity_levels": {"1": {"expert_time_multiplier": 0.5, "difficulty_score": 1}, "3": {}}
    },
    "token_pricing_data": {"pricing_models": {"gpt-4": {"input_cost_per_1k": 0.01, "output_cost_per_1k": 0.03}}},
}


@pytest.fixture
def folder(tmp_path):
    def write(**files: object) -> Path:
        for name, data in files.items():
            text = data if isinstance(data, str) else json.dumps(data)
            (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize("files", [FLAT, NESTED])
def test_both_spellings_are_equivalent(folder, files):
    annotated = read_annotations(folder(**files))
    assert annotated.domain("finance") == DomainExpert(avg_task_time_hours=2.5, avg_hourly_rate_usd=200)
    assert annotated.price("gpt-4") == TokenPrice(input_price_per_1k=0.01, output_price_per_1k=0.03)
    assert (annotated.level(1).expert_time_multiplier, annotated.level(1).difficulty_score) == (0.5, 1)
    assert (annotated.level(3).expert_time_multiplier, annotated.level(3).difficulty_score) == (1, 3)


@pytest.mark.parametrize("name", ["medical", "healthcare"])
def test_healthcare_is_medical_too(folder, name):
    experts = {name: {"avg_hourly_rate_usd": 1, "avg_task_time_hours": 1}}
    annotated = read_annotations(folder(**{**FLAT, "domain_expert_data": experts}))
    assert annotated.domain("medical") == annotated.domain("healthcare")


def test_an_unknown_domain_level_or_model_is_an_error(folder):
    annotated = read_annotations(folder(**FLAT, task_type_data={"default": {"expert_time_hours": 1}}))
    with pytest.raises(ConfigError, match="unknown domain 'finanse'; did you mean 'finance'"):
        annotated.domain("finanse")
    with pytest.raises(ConfigError, match="unknown complexity level '2'; there is 1, 3"):
        annotated.level(2)
    with pytest.raises(ConfigError, match="unknown model 'default'; there is gpt-4"):
        annotated.price("default")


@pytest.mark.parametrize("value", [-1, "many", None, [1], "NaN"])
@pytest.mark.parametrize("field", ["avg_hourly_rate_usd", "avg_task_time_hours"])
def test_the_cost_of_an_expert_must_be_a_non_negative_number(folder, field, value):
    experts = {"finance": {**FLAT["domain_expert_data"]["finance"], field: value}}
    with pytest.raises(ConfigError, match=rf"domain_expert_data.json:1:\d+: finance.{field}: found"):
        read_annotations(folder(**{**FLAT, "domain_expert_data": experts}))


def test_all_errors_of_all_files_are_reported_at_once(folder):
    files = {
        "domain_expert_data": [1],
        "complexity_level_data": {"one": {}, "2": {"expert_time_multiplier": 0, "difficulty_score": 6}},
    }
    with pytest.raises(ConfigError) as caught:
        read_annotations(folder(**files))
    message = str(caught.value)
    for part in (
        "domain_expert_data.json:1:1: found no object",
        "token_pricing_data.json: is missing, expected the files",
        "expert_time_multiplier: found 0",
        "difficulty_score: found 6",
        "one",
    ):
        assert part in message


def test_the_error_of_a_truncated_file_has_its_place(folder):
    with pytest.raises(ConfigError, match=r"token_pricing_data.json:\d+:\d+: not valid YAML"):
        read_annotations(folder(**{**FLAT, "token_pricing_data": '{"gpt": {"input_price'}))


@given(
    rate=st.floats(0, 1e6),
    hours=st.floats(0, 1e4),
    names=st.permutations(["avg", "expert"]),
)
def test_hours_and_rates_are_read_as_they_stand(rate, hours, names):
    first, second = names
    data = {f"{first}_hourly_rate_usd": rate}
    data["avg_task_time_hours" if second == "avg" else "expert_time_hours"] = hours
    found = DomainExpert.model_validate(data)
    assert (found.avg_hourly_rate_usd, found.avg_task_time_hours) == (rate, hours)


def test_levels_are_found_by_number_and_by_name(folder):
    levels = {"1": {"name": "simple"}, "2": {"name": "moderate"}}
    annotated = read_annotations(folder(**{**FLAT, "complexity_level_data": levels}))
    assert [annotated.level_number(name, {"hard": 2}) for name in (1, "1", "simple", "hard")] == [1, 1, 1, 2]
    for unknown in (3, "3", "tough"):
        with pytest.raises(ConfigError, match="unknown complexity level"):
            annotated.level_number(unknown, {})


@pytest.fixture
def config(tmp_path):
    def read(text: object) -> PoetConfig:
        path = tmp_path / "poet_algorithm_config.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return read_poet_config(path)

    return read


def test_the_seeds_example_is_read_and_sections_that_are_left_out_have_its_values(config):
    found = config(
        {
            "poet_weights": {"efficiency_value": 0.2, "quality_value": 0.5, "strategic_value": 0.3},
            "query_selection": {"threshold": 4.5, "enable_dynamic_weighting": False},
            "evaluation_settings": {"max_workers": 8, "enable_parallel_processing": False, "language_support": ["zh"]},
        }
    )
    assert (found.poet_weights.strategic_value, found.query_selection.threshold) == (0.3, 4.5)
    assert (found.evaluation_settings.workers, found.evaluation_settings.language_support) == (1, ("zh",))
    assert sum(found.race_weights.by_dimension.values()) == pytest.approx(1)
    assert config({}) == PoetConfig()


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("poet_weights", {"efficiency_value": 0.5}, "weights that sum to 1.2, expected 1"),
        ("race_weights", {"insight": -0.35, "readability": 0.85}, "race_weights.insight: found -0.35"),
        ("query_selection", {"threshold": 6}, "query_selection.threshold: found 6"),
        ("query_selection", {"enable_dynamic_weighting": "yes"}, "enable_dynamic_weighting: found 'yes'"),
        ("evaluation_settings", {"max_workers": 0}, "evaluation_settings.max_workers: found 0"),
        ("evaluation_settings", {"language_support": ["fr"]}, "found 'fr', expected 'zh' or 'en'"),
        ("performance_thresholds", {"good_threshold": 0.9}, "expected poor <= acceptable <= good <= excellent"),
        ("weights", {}, "weights"),
    ],
)
def test_config_errors_contain_their_place(config, section, values, said):
    with pytest.raises(ConfigError) as caught:
        config({section: values})
    assert said in str(caught.value)
    assert "poet_algorithm_config.json:1:" in str(caught.value)


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any))
def test_weights_that_sum_to_1_are_taken(parts):
    shares = [part / sum(parts) for part in parts]
    names = ("comprehensiveness", "insight", "instruction_following", "readability")
    given_weights = dict(zip(names, shares, strict=True))
    assert PoetConfig.model_validate({"race_weights": given_weights}).race_weights.by_dimension == given_weights
