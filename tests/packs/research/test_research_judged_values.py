"""What becomes of judges' words on a report: RACE in its several forms, and the strategic value with its knowledge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from research_judges import Judge

from pytest_agentbench.packs.research.arithmetic import KNOWLEDGE_SCORES, STRATEGIC_SCORES
from pytest_agentbench.packs.research.asking import Unscored
from pytest_agentbench.packs.research.config import PoetConfig
from pytest_agentbench.packs.research.knowledge import KnowledgeBase, make_unit
from pytest_agentbench.packs.research.race_judging import RaceQuestion, Scored, judge_race, race, strip_apparatus
from pytest_agentbench.packs.research.records import RACE_DIMENSIONS, RaceCriteria, Report
from pytest_agentbench.packs.research.strategic import found_units, new_units, strategic_of

WEIGHTS = dict(zip(RACE_DIMENSIONS, (0.1, 0.2, 0.3, 0.4), strict=True))
CRITERIA = RaceCriteria(
    id=1,
    prompt="Which port grew most?",
    dimension_weight=WEIGHTS,
    criterions={
        name: [
            {"criterion": f"{name} breadth of view", "weight": 0.25, "explanation": "Wide?\n- and more"},
            {"criterion": f"{name} depth", "weight": 0.75},
        ]
        for name in RACE_DIMENSIONS
    },
)
ARTICLE = "Rotterdam grew [1] by four percent.\n\n## References\n[1] https://example.org/ports"


def scored(
    first: tuple[float, float | None] = (8.0, 2.0), second: tuple[float, float | None] = (4.0, 6.0), **names: str
) -> dict:
    """The scores of both criteria of each dimension; `names` renames those of one."""
    return {
        name: [
            Scored(names.get(name, f"{name} breadth of view"), *first),
            Scored(f"{name} depth", *second),
        ]
        for name in RACE_DIMENSIONS
    }


# -- RACE ----------------------------------------------------------------------------


def test_race_by_hand() -> None:
    """0.25 * 8 + 0.75 * 4 = 5 and 0.25 * 2 + 0.75 * 6 = 5: neither is better."""
    result = race(CRITERIA, scored())
    assert (result.overall, result.target, result.reference) == pytest.approx((0.5, 5, 5))
    result = race(CRITERIA, {**scored(), "readability": scored((8, 2), (10, 0))["readability"]})
    assert result.dimensions["readability"] == pytest.approx(9.5 / 10)
    assert result.dimensions["insight"] == pytest.approx(0.5)
    assert result.target == pytest.approx(0.6 * 5 + 0.4 * 9.5)
    assert result.overall == pytest.approx(6.8 / (6.8 + 0.6 * 5 + 0.4 * 0.5))
    assert result.weighted_dimensions == pytest.approx(0.6 * 0.5 + 0.4 * 0.95)


def test_race_without_a_reference_is_of_ten() -> None:
    result = race(CRITERIA, scored((8, None), (4, None)))
    assert (result.overall, result.target, result.reference) == (pytest.approx(0.5), pytest.approx(5), None)
    assert result.dimensions == pytest.approx(dict.fromkeys(RACE_DIMENSIONS, 0.5))


def test_the_original_takes_criteria_that_are_alike_and_else_their_mean_weight() -> None:
    """Its weights need not be those of the criteria: 0.25 for a part of a text, 0.5 for what is none of them."""
    partly = race(CRITERIA, scored(insight="BREADTH of  view"), compat=True)
    assert partly.dimensions["insight"] == pytest.approx(0.5)
    longer = race(CRITERIA, scored(insight="insight breadth of view, and more"), compat=True)
    assert longer.dimensions["insight"] == pytest.approx(0.5)
    other = race(CRITERIA, scored(insight="style"), compat=True)
    target, reference = 8 * 0.5 + 4 * 0.75, 2 * 0.5 + 6 * 0.75
    assert other.dimensions["insight"] == pytest.approx(target / (target + reference))


def test_a_criterion_that_has_no_weight_counts_for_nothing() -> None:
    listed = {name: [{"criterion": "a", "weight": 0.0}] for name in RACE_DIMENSIONS}
    criteria = RaceCriteria(id=1, prompt="p", dimension_weight=WEIGHTS, criterions=listed)
    result = race(criteria, {name: [Scored("a", 8, 2)] for name in RACE_DIMENSIONS})
    assert (result.overall, result.target, result.reference) == (None, 0, 0)


def question(article: str = ARTICLE, reference: str | None = "Hamburg [2] did not.") -> RaceQuestion:
    return RaceQuestion("research.1", "en", CRITERIA.prompt, article, reference, CRITERIA)


def reply(first: float = 6.0, second: float = 4.0) -> dict[str, Any]:
    return {
        name: [
            {"criterion": each.criterion, "analysis": "So.", "article_1_score": first, "article_2_score": second}
            for each in CRITERIA.criterions[name]
        ]
        for name in RACE_DIMENSIONS
    }


@pytest.mark.parametrize(
    ("article", "reference", "said"),
    [
        (" \n", "x", "the article is empty"),
        ("x", "\u3000", "the reference is empty"),
        ("", None, "the article is empty"),
    ],
)
def test_an_empty_text_is_not_judged(article, reference, said) -> None:
    with Judge(reply()) as judge:
        with pytest.raises(Unscored, match=said):
            judge.ask(lambda asking: judge_race(asking, question(article, reference)))
        assert judge.bodies == []


def test_no_reference_is_nothing_to_swap_with() -> None:
    reply = {
        name: [{"criterion": each.criterion, "target_score": 7} for each in CRITERIA.criterions[name]]
        for name in RACE_DIMENSIONS
    }
    with Judge(reply) as judge:
        result = judge.ask(lambda asking: judge_race(asking, question("x", None), samples=2, position_swap=True))
    assert (len(judge.bodies), result.overall, result.sd) == (2, pytest.approx(0.7), 0)
    assert result.weighted_dimensions == pytest.approx(0.7)
    assert result.dimensions == pytest.approx(dict.fromkeys(RACE_DIMENSIONS, 0.7))


def test_a_draw_without_any_points_leaves_no_mean() -> None:
    with Judge(reply(0, 0), reply(6, 4)) as judge:
        result = judge.ask(lambda asking: judge_race(asking, question(), samples=2))
    assert (result.overall, result.weighted_dimensions, set(result.dimensions.values())) == (None, None, {None})
    assert (len(result.draws), result.sd) == (2, None)
    assert len(result.scored) == 2


def test_texts_are_rid_of_their_apparatus_as_asked_for() -> None:
    with Judge(reply()) as judge:
        plain = judge.ask(lambda asking: strip_apparatus(asking, question(), "deterministic"))
        alone = judge.ask(lambda asking: strip_apparatus(asking, question(reference=None), "deterministic"))
        whole = judge.ask(lambda asking: strip_apparatus(asking, question(), "none"))
        assert judge.bodies == []
    assert (plain.article, plain.reference) == ("Rotterdam grew by four percent.", "Hamburg did not.")
    assert (alone.article, alone.reference) == ("Rotterdam grew by four percent.", None)
    assert whole == question()


def test_criteria_are_shown_with_their_explanations_on_one_line_each() -> None:
    with Judge(reply()) as judge:
        judge.ask(lambda asking: judge_race(asking, question()))
    prompts_sent = judge.bodies[0]["messages"][1]["content"]
    assert "# insight\n- insight breadth of view\n  Wide? - and more\n- insight depth\n\n# instruction" in prompts_sent


# -- strategic value --------------------------------------------------------------------

SCORES = dict(zip(STRATEGIC_SCORES, (2, 3, 4, 5, 1, 1, 2, 4), strict=True))


def answers(units: list[tuple[str, float]], reused: list[str]):
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        name = body["response_format"]["json_schema"]["name"]
        if name == "research_strategic":
            return {each: {"reason": f"{each}?", "score": float(score)} for each, score in SCORES.items()}
        if name == "research_knowledge":
            return {"units": [{"text": text, "quality": quality} for text, quality in units]}
        return {"reused": reused}

    return answer


def report(number: int, article: str) -> Report:
    return Report(number, f"research.{number}", "gpt", f"Question {number}?", article, "en")


def test_a_report_creates_units_and_the_next_report_reuses_them(tmp_path: Path) -> None:
    """0.6 * 14 / 20 + 0.4 * 8 / 20; of three units one is too poor, and qualities of the others add up."""
    base, config = KnowledgeBase(tmp_path / "base.jsonl"), PoetConfig()
    tin, lead = "Tin melts at 232 degrees.", "Lead melts at 327 degrees."
    with Judge(answers([(tin, 0.5), (lead, 0.3), ("Metals are nice.", 0.29)], [])) as judge:
        first = judge.ask(lambda asking: strategic_of(asking, report(1, f"{tin} {lead}"), base, config))
        assert len(judge.bodies) == 2  # nothing is known that could be used
    assert first.strategic_score == pytest.approx(0.58)
    assert first.scores == SCORES
    assert first.score_reasons["independence"] == "independence?"
    assert (first.known, first.repeated, first.below_quality, first.reused) == (0, 0, 1, ())
    assert [each.text for each in first.created] == [tin, lead]
    assert first.knowledge_creation_value == pytest.approx(0.8)
    with Judge(answers([("tin melts at 232 degrees", 0.9), ("Zinc boils.", 0.75)], [make_unit(tin, 0).id])) as judge:
        second = judge.ask(lambda asking: strategic_of(asking, report(2, f"Zinc boils. {tin}"), base, config))
        assert len(judge.bodies) == 3
        prompts_sent = judge.bodies[-1]["messages"][1]["content"]
    assert "232" in prompts_sent
    assert "327" not in prompts_sent  # the article says nothing of lead
    assert (second.known, second.repeated, second.below_quality) == (2, 1, 0)
    assert [each.text for each in second.created] == ["Zinc boils."]
    assert [each.text for each in second.reused] == [tin]
    assert second.knowledge_creation_value == 0.75


def test_weights_and_bounds_of_the_configuration_are_heeded(tmp_path: Path) -> None:
    config = PoetConfig.model_validate(
        {
            "strategic_weights": {"task_capability": 0.0, "knowledge_capability": 1.0},
            "knowledge_base_settings": {"max_knowledge_units_per_task": 2, "min_knowledge_quality_threshold": 0.6},
        }
    )
    base = KnowledgeBase(tmp_path / "base.jsonl")
    with Judge(answers([("Tin melts.", 0.5), ("Lead melts.", 0.6), ("Zinc melts.", 1.0)], [])) as judge:
        score = judge.ask(lambda asking: strategic_of(asking, report(1, "Metals."), base, config))
    assert score.strategic_score == pytest.approx(sum(SCORES[name] for name in KNOWLEDGE_SCORES) / 20)
    assert [each.text for each in score.created] == ["Lead melts."]
    assert score.below_quality == 1


def test_a_unit_is_new_where_no_other_is_as_alike() -> None:
    """Of five and six pairs of words four are shared by seven."""
    known, near = (
        make_unit("Tin melts at two hundred degrees.", 1),
        make_unit("Tin melts at two hundred and thirty.", 1),
    )
    assert new_units([near], [known], 4 / 7 + 0.001) == [near]
    assert new_units([near], [known], 4 / 7) == []
    assert new_units([near, near], [], 1.0) == [near]
    assert new_units([make_unit("x", 1), make_unit("X", 0.5)], [], 2.0) == [
        make_unit("x", 1)
    ]  # of one id, whatever is asked for


def test_known_units_that_may_stand_in_an_article_come_by_their_share() -> None:
    settings = PoetConfig().knowledge_base_settings
    whole, most, other = (
        make_unit("Tin melts early.", 1),
        make_unit("Tin melts early always.", 1),
        make_unit("Lead is heavy.", 1),
    )
    assert found_units("We saw that tin melts early.", [most, other, whole], settings) == [whole, most]
    many = [make_unit(f"Tin melts early {word}.", 1) for word in map("x".__mul__, range(1, 80))]
    assert len(found_units("We saw that tin melts early.", many, settings)) == 50


@pytest.mark.slow
def test_a_reply_with_a_unit_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    base = KnowledgeBase(tmp_path / "base.jsonl")
    with Judge(answers([("Tin melts.", 0.5)], [])) as judge:
        judge.ask(lambda asking: strategic_of(asking, report(1, "Tin melts."), base, PoetConfig()))
    with (
        Judge(answers([("Tin melts.", 0.5)], ["made-up"])) as judge,
        pytest.raises(Unscored, match="there is no known unit 'made-up'"),
    ):
        judge.ask(lambda asking: strategic_of(asking, report(2, "Tin melts."), base, PoetConfig()))
    line = json.loads((tmp_path / "base.jsonl").read_text().splitlines()[0])
    assert [each["text"] for each in line["units"]] == ["Tin melts."]
