"""The efficiency of one report, and the composite of its parts: numbers by hand, and what missing ones do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.annotations import Annotations, ComplexityLevel, DomainExpert, TokenPrice
from pytest_agentbench.packs.research.arithmetic import complexity_adaptability, task_of
from pytest_agentbench.packs.research.config import PoetConfig, annotations_of
from pytest_agentbench.packs.research.efficiency import efficiency_of, resource_efficiency
from pytest_agentbench.packs.research.fact.citations import Counts
from pytest_agentbench.packs.research.poet import poet_of
from pytest_agentbench.packs.research.records import ExecutionMetrics, Report
from pytest_agentbench.packs.research.scores import EfficiencyScore, FactPart, Parts, RacePart, StrategicScore

FLAT = {
    "domain_expert_data.json": {"finance": {"avg_hourly_rate_usd": 200, "avg_task_time_hours": 2.5}},
    "complexity_level_data.json": {"4": {"expert_time_multiplier": 1.5, "difficulty_score": 4}},
    "token_pricing_data.json": {"gpt-4": {"input_price_per_1k": 0.01, "output_price_per_1k": 0.03}},
}
NESTED = {
    "domain_expert_data.json": {"domains": {"finance": {"expert_hourly_rate_usd": 200, "expert_time_hours": 2.5}}},
    "complexity_level_data.json": {
        "version": "1",
        "complexity_levels": {"4": {"name": "advanced", "expert_time_multiplier": 1.5}},
        "complexity_mapping": {"advanced": 4},
    },
    "token_pricing_data.json": {
        "pricing_models": {"gpt-4": {"input_cost_per_1k": 0.01, "output_cost_per_1k": 0.03, "provider": "OpenAI"}}
    },
}
WHOLE = {
    "total_duration_seconds": 2700,
    "token_usage": {"input_tokens": 2000, "output_tokens": 1000, "total_cost_usd": 7.5},
    "automation_level": 0.9,
}
CONFIG = PoetConfig()


def annotations(folder: Path, files: Mapping[str, Any] = FLAT, config: PoetConfig = CONFIG) -> Annotations:
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return annotations_of(folder, config)


def report(metrics: Mapping[str, Any], model: str = "gpt-4") -> Report:
    return Report(1, "research.1", model, "Why?", "Because.", "en", ExecutionMetrics.model_validate(metrics))


@pytest.mark.parametrize("files", [FLAT, NESTED])
@pytest.mark.parametrize("level", [4, "4"])
def test_both_spellings_of_annotations_give_the_same_numbers(
    tmp_path: Path, files: Mapping[str, Any], level: int | str
) -> None:
    score = efficiency_of(report(WHOLE), annotations(tmp_path, files), "finance", level, CONFIG)
    # The expert: 2.5 h x 1.5 = 3.75 h at 200 USD = 750 USD. The agent: 0.75 h, 7.50 USD.
    assert (score.expert_hours, score.expert_cost_usd, score.hours, score.ai_cost_usd) == (3.75, 750, 0.75, 7.5)
    assert (score.time_saving, score.time_saving_hours, score.cost_saving_usd) == (0.8, 3.0, 742.5)
    assert score.efficiency_score == pytest.approx(0.4 * 0.8 + 0.3 * 0.99 + 0.3 * 0.9)
    assert (score.difficulty, score.complexity_level, score.reasons, score.missing) == (4, 4, {}, None)


def test_a_level_may_be_named(tmp_path: Path) -> None:
    found = annotations(tmp_path, NESTED)
    assert task_of(found, CONFIG, "finance", "advanced").level == 4
    config = PoetConfig(task_complexity_mapping={"hard": 4})
    assert task_of(found, config, "finance", "hard").level == 4


def test_tokens_are_priced_where_no_cost_is_recorded(tmp_path: Path) -> None:
    annotated, metrics = annotations(tmp_path), {**WHOLE, "token_usage": {"input_tokens": 2000, "output_tokens": 1000}}
    score = efficiency_of(report(metrics), annotated, "finance", 4, CONFIG)
    assert (score.ai_cost_usd, score.ai_cost) == (pytest.approx(0.05), "priced")
    own = efficiency_of(report(metrics, "mine"), annotated, "finance", 4, CONFIG, priced_as="gpt-4")
    assert own.ai_cost_usd == pytest.approx(0.05)
    with pytest.raises(ConfigError, match=r"token_pricing_data.json: unknown model 'mine'; there is gpt-4"):
        efficiency_of(report(metrics, "mine"), annotated, "finance", 4, CONFIG)
    assert efficiency_of(report(WHOLE, "mine"), annotated, "finance", 4, CONFIG).ai_cost == "recorded"


def test_unknown_domains_and_levels_are_errors(tmp_path: Path) -> None:
    annotated = annotations(tmp_path)
    with pytest.raises(ConfigError, match=r"domain_expert_data.json: unknown domain 'art'; there is finance"):
        efficiency_of(report(WHOLE), annotated, "art", 4, CONFIG)
    with pytest.raises(ConfigError, match=r"complexity_level_data.json: unknown complexity level '9'; there is 4"):
        efficiency_of(report(WHOLE), annotated, "finance", 9, CONFIG)
    with pytest.raises(ConfigError, match="complexity_level: missing"):
        efficiency_of(report(WHOLE), annotated, "finance", None, CONFIG)


def test_domains_of_the_config_are_used_where_annotations_have_none(tmp_path: Path) -> None:
    config = PoetConfig(
        domain_expert_times={"art": 2.0, "finance": 9.0}, domain_expert_rates={"art": 50.0, "finance": 9.0}
    )
    annotated = annotations(tmp_path, config=config)
    assert task_of(annotated, config, "art", 4).expert.cost_usd == 150  # 2 h x 1.5 x 50 USD
    assert task_of(annotated, config, "finance", 4).expert.cost_usd == 750


def test_a_domain_of_the_annotations_by_its_other_name_wins_over_the_configs(tmp_path: Path) -> None:
    config = PoetConfig(domain_expert_times={"medical": 9.0}, domain_expert_rates={"medical": 9.0})
    experts = {"healthcare": {"avg_hourly_rate_usd": 250, "avg_task_time_hours": 2}}
    annotated = annotations(tmp_path, {**FLAT, "domain_expert_data.json": experts}, config)
    for name in ("medical", "healthcare"):
        assert task_of(annotated, config, name, 4).expert.cost_usd == 750  # 2 h x 1.5 x 250 USD


@pytest.mark.parametrize(("hours", "rate"), [(0, 200), (2.5, 0), (0, 0)])
def test_of_an_expert_of_no_hours_or_no_cost_no_share_is_saved(tmp_path: Path, hours: float, rate: float) -> None:
    experts = {"finance": {"avg_hourly_rate_usd": rate, "avg_task_time_hours": hours}}
    annotated = annotations(tmp_path, {**FLAT, "domain_expert_data.json": experts})
    score = efficiency_of(report(WHOLE), annotated, "finance", 4, CONFIG)
    assert (score.efficiency_score, score.cost_saving_usd) == (None, hours * 1.5 * rate - 7.5)
    assert (score.time_saving is None) == (hours == 0)
    assert ("takes 0 h" in str(score.missing)) == (hours == 0)
    assert "costs 0 USD" in str(score.missing)
    assert efficiency_of(report(WHOLE), annotated, "finance", 4, CONFIG, compat=True).missing is None


def test_no_time_and_no_cost_are_values_as_others(tmp_path: Path) -> None:
    metrics = {"total_duration_seconds": 0, "token_usage": {"total_cost_usd": 0}, "automation_level": 0}
    score = efficiency_of(report(metrics), annotations(tmp_path), "finance", 4, CONFIG)
    assert (score.time_saving, score.cost_saving_usd, score.efficiency_score) == (1, 750, pytest.approx(0.7))
    assert score.reasons == {}


@pytest.mark.parametrize(
    ("lacks", "part", "said"),
    [
        ("total_duration_seconds", "time_saving", "total_duration_seconds is missing"),
        ("automation_level", "automation_rate", "automation_level is missing"),
        ("token_usage", "cost_saving_usd", "no total_cost_usd and no input_tokens or output_tokens"),
    ],
)
def test_a_part_that_was_not_recorded_is_none_with_its_reason_and_the_others_stay(
    tmp_path: Path, lacks: str, part: str, said: str
) -> None:
    metrics = {name: value for name, value in WHOLE.items() if name != lacks}
    score = efficiency_of(report(metrics), annotations(tmp_path), "finance", 4, CONFIG)
    parts = ("time_saving", "cost_saving_usd", "automation_rate")
    assert [name for name in parts if getattr(score, name) is None] == [part]
    assert score.efficiency_score is None
    assert said in score.reasons[part]
    assert said in str(score.missing)


def test_half_the_tokens_are_not_priced(tmp_path: Path) -> None:
    metrics = {**WHOLE, "token_usage": {"input_tokens": 2000}}
    score = efficiency_of(report(metrics), annotations(tmp_path), "finance", 4, CONFIG)
    assert (score.ai_cost_usd, score.cost_saving_usd, score.ai_cost) == (None, None, None)
    assert score.reasons["cost_saving_usd"].endswith("no output_tokens")


def test_weights_of_the_config_are_heeded(tmp_path: Path) -> None:
    weights = {"time_weight": 0.0, "cost_weight": 0.0, "automation_weight": 1.0}
    config = PoetConfig.model_validate({"efficiency_weights": weights})
    assert efficiency_of(report(WHOLE), annotations(tmp_path), "finance", 4, config).efficiency_score == 0.9


def test_compat_takes_an_unknown_automation_for_none(tmp_path: Path) -> None:
    metrics = {name: value for name, value in WHOLE.items() if name != "automation_level"}
    score = efficiency_of(report(metrics), annotations(tmp_path), "finance", 4, CONFIG, compat=True)
    assert score.efficiency_score == pytest.approx(0.4 * 0.8 + 0.3 * 0.99)
    assert score.automation_rate is None
    assert score.missing is None


KNOWN = Annotations(
    Path("annotation"),
    {"finance": DomainExpert(avg_hourly_rate_usd=200, avg_task_time_hours=2.5)},
    {4: ComplexityLevel(expert_time_multiplier=1.5, difficulty_score=4)},
    {"gpt-4": TokenPrice(input_price_per_1k=0.01, output_price_per_1k=0.03)},
)
SECONDS = st.none() | st.floats(0, 1e6)
USD = st.none() | st.floats(0, 1e5)
SHARES = st.none() | st.floats(0, 1)


def scored(seconds: float | None, usd: float | None, automation: float | None) -> EfficiencyScore:
    metrics = {
        "total_duration_seconds": seconds,
        "token_usage": {"total_cost_usd": usd},
        "automation_level": automation,
    }
    return efficiency_of(report(metrics), KNOWN, "finance", 4, CONFIG)


@given(SECONDS, USD, SHARES)
def test_a_score_is_a_share_and_there_only_where_all_is_known(
    seconds: float | None, usd: float | None, automation: float | None
) -> None:
    score = scored(seconds, usd, automation)
    assert (score.efficiency_score is None) == (None in (seconds, usd, automation)) == (score.missing is not None)
    assert score.efficiency_score is None or 0 <= score.efficiency_score <= 1
    assert (score.time_saving is None) == (seconds is None)
    assert (score.cost_saving_usd is None) == (usd is None)


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1))
def test_less_time_less_cost_and_more_automation_never_score_lower(
    seconds: float, usd: float, automation: float, more_seconds: float, more_usd: float, less_automation: float
) -> None:
    better, worse = (
        scored(seconds, usd, automation),
        scored(seconds + more_seconds, usd + more_usd, automation * less_automation),
    )
    assert better.efficiency_score is not None
    assert worse.efficiency_score is not None
    assert better.efficiency_score >= worse.efficiency_score - 1e-12


@given(SHARES, st.none() | st.integers(0, 10**6), st.none() | st.integers(0, 10**6))
def test_resource_efficiency_needs_quality_and_tokens(
    quality: float | None, read: int | None, written: int | None
) -> None:
    usage = ExecutionMetrics.model_validate(
        {"token_usage": {"input_tokens": read, "output_tokens": written}}
    ).token_usage
    value = resource_efficiency(quality, usage)
    if quality is None or not read or written is None:
        assert value is None or (read == 0 and written)
    else:
        assert value == pytest.approx(quality / (read + written) * 1000)


STRATEGIC = StrategicScore(
    strategic_score=0.7, scores={}, created=(), repeated=0, below_quality=0, reused=(), knowledge_creation_value=0
)


def whole_parts() -> Parts:
    return Parts(
        RacePart(0.5, {"insight": 0.4}), FactPart(Counts(3, 1, 2, words=1500)), scored(2700, 7.5, 0.9), STRATEGIC, {}
    )


def test_the_composite_by_hand() -> None:
    row = poet_of(report(WHOLE), whole_parts(), CONFIG)
    # Quality: .7 x .5 + .3 x 3/4 = .575; efficiency .32 + .297 + .27 = .887.
    assert row.quality_score == pytest.approx(0.575)
    assert row.overall_poet_score == pytest.approx(0.3 * 0.887 + 0.5 * 0.575 + 0.2 * 0.7)
    assert row.complexity_adaptability == pytest.approx(0.575 * 4 / 5)
    assert row.resource_efficiency == pytest.approx(0.575 / 3)
    assert row.supported_per_1000_words == 2
    assert (row.domain, row.complexity_level, row.reasons) == ("finance", 4, {})


def test_every_weight_of_the_config_is_heeded() -> None:
    config = PoetConfig.model_validate(
        {
            "poet_weights": {"efficiency_value": 0, "quality_value": 1, "strategic_value": 0},
            "quality_value_weights": {"race_score": 0.2, "fact_score": 0.8},
            "evaluation_parameters": {"race_score_max": 2.0, "fact_accuracy_max": 1.5},
        }
    )
    assert poet_of(report(WHOLE), whole_parts(), config).overall_poet_score == pytest.approx(0.2 * 0.5 + 0.8 * 0.5)
    compat = poet_of(report(WHOLE), whole_parts(), config, compat=True)
    assert compat.overall_poet_score == pytest.approx(0.2 * 0.25 + 0.8 * 0.5)


@given(st.sets(st.sampled_from(["race", "fact", "efficiency", "strategic"])))
def test_a_missing_part_leaves_the_composite_none_and_the_other_parts_as_they_are(missing: set[str]) -> None:
    whole, parts = poet_of(report(WHOLE), whole_parts(), CONFIG), whole_parts()
    known = {name: getattr(parts, name) for name in ("race", "fact", "efficiency", "strategic") if name not in missing}
    row = poet_of(report(WHOLE), Parts(**known, why=dict.fromkeys(missing, "not run")), CONFIG)  # type: ignore[arg-type]
    assert (row.overall_poet_score is None) == bool(missing)
    assert row.reasons == dict.fromkeys(missing, "not run")
    assert (row.quality_score is None) == bool(missing & {"race", "fact"})
    for part in known:
        field = {"fact": "fact_accuracy"}.get(part, f"{part}_score")
        assert getattr(row, field) == getattr(whole, field)


def test_no_citation_and_no_checkable_citation_are_distinguished() -> None:
    none = poet_of(report(WHOLE), Parts(fact=FactPart(Counts())), CONFIG)
    unchecked = poet_of(report(WHOLE), Parts(fact=FactPart(Counts(unknown=3))), CONFIG)
    assert none.reasons["fact"] == "it has no citations"
    assert unchecked.reasons["fact"] == "0 of the report's 3 citations could be checked"


def test_a_task_of_less_than_half_an_hour_has_no_adaptability() -> None:
    quick = scored(2700, 7.5, 0.9).model_copy(update={"expert_hours": 0.49})
    assert complexity_adaptability(0.5, quick.difficulty, quick.expert_hours) is None
    assert complexity_adaptability(0.5, quick.difficulty, 0.5) == pytest.approx(0.4)
    assert complexity_adaptability(None, quick.difficulty, 3.0) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evaluation_parameters": {"strategic_score_max": 4}}, "expected 5: judges score 1-5"),
        ({"evaluation_parameters": {"race_score_max": 0}}, "greater than 0"),
        ({"knowledge_base_path": "a", "system_settings": {"knowledge_base_path": "b"}}, "expected one path"),
        ({"evaluation_thresholds": {"excelent_poet_score": 0.9}}, "found excelent_poet_score, expected excellent"),
        ({"domain_expert_times": {"art": 2}}, "art: found hours or a rate, expected both"),
        ({"efficiency_weights": {"time_weight": 0.5}}, "sum to 1.1, expected 1"),
    ],
)
def test_an_inconsistent_config_is_an_error(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PoetConfig.model_validate(given)


def test_unused_settings_of_a_config_are_reported() -> None:
    config = PoetConfig.model_validate(
        {
            "default_expert_time": 2,
            "token_pricing": {"input_cost_per_1k": 1},
            "system_settings": {"max_retries": 2},
            "reporting_settings": {"include_charts": True},
            "evaluation_parameters": {"race_score_max": 5},
        }
    )
    names = [each.split(":")[0] for each in config.unused(compat=False)]
    assert names == [
        "default_expert_time",
        "token_pricing",
        "system_settings.max_retries",
        "reporting_settings.include_charts",
        "evaluation_parameters.race_score_max",
    ]
    assert config.unused(compat=True) == config.unused(compat=False)[:-1]
    assert PoetConfig().unused(compat=False) == []
