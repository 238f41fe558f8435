from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fault_endpoint import FaultEndpoint, always
from support.stored import find_stored, list_stored

from pytest_agentbench.errors import ConfigError, JudgeError
from pytest_agentbench.metrics.llm_judgement import agreement
from pytest_agentbench.metrics.registry import METRICS, MetricContext, measure, measure_async
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.records.case import MetricSpec, Model
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.secrets.redaction import Redactor

PRICES = {"input_per_1m": 100_000, "output_per_1m": 0}  # a reply's 10 tokens: 1 USD


def says(*votes: object) -> Callable[[dict], dict]:
    """A judge whose replies come in this order, whoever asks: verdicts, or raw texts; the last one for good."""
    left = list(votes)

    def answer(body: dict) -> dict:
        vote = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(vote, bool):
            vote = json.dumps({"reason": "It is so." if vote else "It is not.", "correct": vote})
        return {"role": "assistant", "content": vote}

    return answer


def judged(
    endpoint: FaultEndpoint,
    prediction: str = "It is Paris.",
    *,
    reference: str = "Paris",
    cache: Path | None = None,
    redactor: Redactor | None = None,
    compat: str | None = None,
    **args: object,
) -> MetricResult:
    """The metric's result with a threshold of 1, as the engine gets it."""
    given = {"reference": reference, "cache": cache, "redactor": redactor, "compat": compat}
    [result] = together(endpoint, 1, prediction, **given, **args)
    return result


def together(
    endpoint: FaultEndpoint,
    count: int,
    prediction: str = "It is Paris.",
    *,
    reference: str = "Paris",
    cache: Path | None = None,
    redactor: Redactor | None = None,
    compat: str | None = None,
    **args: object,
) -> list[MetricResult]:
    """The results of `count` runs that gave the same answer, judged at the same time."""
    model = Model(
        model_id="judge", requested_model="judge-1", base_url=endpoint.base_url, api_key_env=None, prices=PRICES
    )

    async def ask() -> list[MetricResult]:
        endpoints = Endpoints(backoff=Backoff(first=0.001))
        context = MetricContext(
            case_id="c",
            question="The capital of France?",
            client=lambda name: endpoints.client(model),
            redactor=redactor,
            cache=cache,
        )
        spec = MetricSpec(name="llm_judgement", threshold=1.0, args=args, compat=compat)
        try:
            asked = (measure_async(spec, reference, prediction, METRICS, context) for _ in range(count))
            return await asyncio.gather(*asked)
        finally:
            await endpoints.close()

    return asyncio.run(ask())


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "judgements"


# -- what votes come to


@pytest.mark.parametrize(
    ("votes", "expected", "agreed"),
    [
        ([True], 1, None),
        ([False], 0, None),
        ([True, True, False], 1, 1 / 3),
        ([False, True, False], 0, 1 / 3),
        ([True, False], 0, 0),
        ([True, True, False, False], 0, 1 / 3),
        ([True] * 4, 1, 1),
    ],
)
def test_the_majority_decides_and_a_tie_is_incorrect(votes, expected, agreed):
    with FaultEndpoint(answer=says(*votes)) as endpoint:
        result = judged(endpoint, repetitions=len(votes))
    assert (result.score, result.passed, result.error) == (expected, expected == 1, None)
    assert sorted(vote["correct"] for vote in result.details["votes"]) == sorted(votes)
    assert result.details["agreement"] == (None if agreed is None else pytest.approx(agreed))
    assert result.details["reason"] == ("It is so." if expected else "It is not.")
    assert (result.details["model"], result.details["cached"], result.details["failed"]) == ("judge-1", 0, 0)
    assert result.usage.cost_usd == pytest.approx(len(votes))


@given(st.lists(st.booleans(), max_size=12))
def test_agreement_is_the_share_of_pairs(votes):
    pairs = list(combinations(votes, 2))
    assert agreement(votes) == (sum(a == b for a, b in pairs) / len(pairs) if pairs else None)


@pytest.mark.parametrize("compat", [None, "v1"])
@pytest.mark.parametrize("prediction", ["", " \n\t"])
def test_an_empty_answer_is_not_paid_for(prediction, compat):
    with FaultEndpoint(answer=says(True)) as endpoint:
        result = judged(endpoint, prediction, compat=compat)
    assert (result.score, result.usage, endpoint.requests) == (0, None, [])
    assert "empty" in result.details["reason"]


def test_without_a_reference_there_is_nothing_to_compare_with():
    with FaultEndpoint(answer=says(True)) as endpoint:
        result = judged(endpoint, reference="")
    assert (result.score, result.usage, endpoint.requests) == (None, None, [])
    assert "nothing to compare" in result.error


@pytest.mark.parametrize("repetitions", [0, -1, 1.5, "two", True, None])
def test_repetitions_are_a_whole_number(repetitions):
    with FaultEndpoint(answer=says(True)) as endpoint:
        result = judged(endpoint, repetitions=repetitions)
    assert (result.score, endpoint.requests) == (None, [])
    assert f"repetitions: found {repetitions!r}" in result.error


@pytest.mark.slow
def test_votes_that_fail_count_for_nothing_beside_those_that_come():
    with FaultEndpoint(answer=says(*["no"] * 7, True)) as endpoint:  # 3 votes, 3 replies each: one gets no further
        result = judged(endpoint, repetitions=3)
    details = result.details
    assert (result.score, len(details["votes"]), details["failed"], details["agreement"]) == (1, 2, 1, 1)
    assert result.usage.cost_usd == pytest.approx(9)


@pytest.mark.slow
def test_an_evaluation_without_votes_is_an_error_with_its_cost():
    with FaultEndpoint(answer=says("I would say so.")) as endpoint:
        result = judged(endpoint, repetitions=2)
    assert (result.score, result.passed, len(endpoint.requests)) == (None, None, 6)
    assert "2 of 2 votes failed (2 invalid_output)" in result.error
    assert "not JSON" in result.error
    assert result.usage.cost_usd == pytest.approx(6)


def test_an_outage_leaves_the_cost_unknown():
    with FaultEndpoint(choose=always("401")) as endpoint:
        result = judged(endpoint)
    assert result.score is None
    assert "Incorrect API key provided" in result.error
    assert (result.usage is not None, result.usage.cost_usd) == (True, None)


def test_the_original_takes_the_word_alone():
    with FaultEndpoint(answer=says("Correct")) as endpoint:
        assert judged(endpoint, compat="v1").score == 1
    with FaultEndpoint(answer=says("Correct.")) as endpoint:
        assert judged(endpoint, compat="v1").score == 0


# -- what is kept


def test_a_vote_is_paid_once(tmp_path, cache):
    with FaultEndpoint(answer=says(True, False, True)) as endpoint:
        first = judged(endpoint, cache=cache, repetitions=3)
        again = judged(endpoint, cache=cache, repetitions=3)
        assert len(endpoint.requests) == len(list_stored(tmp_path)) == 3
        assert (again.score, again.details["votes"]) == (first.score, first.details["votes"])
        assert (first.details["cached"], again.details["cached"], again.usage) == (0, 3, None)
        more = judged(endpoint, cache=cache, repetitions=5)
        assert (more.details["cached"], len(endpoint.requests)) == (3, 5)
        assert more.usage.cost_usd == pytest.approx(2)
        judged(endpoint, "It is Rome.", cache=cache)
        judged(endpoint, cache=cache, compat="v1")
        assert len(endpoint.requests) == 7


def test_equal_answers_that_are_judged_at_once_pay_for_one_vote(cache):
    with FaultEndpoint(answer=says(True, False)) as endpoint:
        results = together(endpoint, 3, cache=cache, repetitions=1)
        assert len(endpoint.requests) == 1
    assert [result.score for result in results] == [1, 1, 1]
    assert sorted(result.details["cached"] for result in results) == [0, 1, 1]
    assert sorted(result.usage is None for result in results) == [False, True, True]


@pytest.mark.slow
def test_a_failed_judgement_is_requested_again(tmp_path, cache):
    with FaultEndpoint(answer=says("no")) as endpoint:
        assert judged(endpoint, cache=cache).score is None
        assert list_stored(tmp_path) == []
        endpoint.answer = says(True)
        assert judged(endpoint, cache=cache).score == 1


def test_a_broken_file_is_asked_again(tmp_path, cache):
    with FaultEndpoint(answer=says(True)) as endpoint:
        judged(endpoint, cache=cache)
        find_stored(tmp_path, "*.json")[0].write_text('{"half":')
        assert judged(endpoint, cache=cache).details["cached"] == 0
        assert judged(endpoint, cache=cache).details["cached"] == 1


def test_a_cache_that_cannot_be_written_loses_no_verdict(tmp_path, caplog):
    (tmp_path / "outputs").write_text("no folder")
    with FaultEndpoint(answer=says(True)) as endpoint, caplog.at_level(logging.WARNING):
        assert judged(endpoint, cache=tmp_path / "outputs/judgements", repetitions=2).score == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_secrets_are_neither_sent_nor_kept(tmp_path, cache):
    redactor = Redactor({"MY_API_KEY": "hunter2-hunter2"})
    echo = json.dumps({"reason": "It says hunter2-hunter2.", "correct": False})
    with FaultEndpoint(answer=says(echo)) as endpoint:
        judged(endpoint, "The key is hunter2-hunter2.", cache=cache, redactor=redactor)
        assert "hunter2" not in json.dumps(endpoint.requests[0].body)
    assert "hunter2" not in find_stored(tmp_path, "*.json")[0].read_text()


# -- from plain Python


@pytest.fixture
def served(monkeypatch):
    with FaultEndpoint(answer=says(True)) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
        yield endpoint


def test_score_asks_the_model_of_its_argument(served):
    assert score("llm_judgement", "Paris", "It is Paris.", model="some-judge", question="The capital?") == 1
    [request] = served.requests
    assert request.body["model"] == "some-judge"
    assert "The capital?" in request.message


def test_score_repeats_and_knows_the_originals_form(served):
    served.answer = says("Correct", "Incorrect", "Correct")
    assert score("llm_judgement", "Paris", "Paris.", compat="v1", model="some-judge", repetitions=3) == 1
    assert len(served.requests) == 3


def test_score_works_where_a_loop_is_running(served):
    async def notebook() -> float:
        return score("llm_judgement", "Paris", "It is Paris.", model="some-judge")

    assert asyncio.run(notebook()) == 1


def test_score_without_a_model_is_an_error_that_names_the_argument(served):
    with pytest.raises(ConfigError, match=r"model='gpt-5\.4-mini'"):
        score("llm_judgement", "Paris", "It is Paris.")
    assert served.requests == []


def test_score_without_a_key_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        score("llm_judgement", "Paris", "It is Paris.", model="some-judge")


@pytest.mark.slow
def test_score_raises_where_no_vote_came(served):
    served.answer = says("well...")
    with pytest.raises(JudgeError, match="1 of 1 votes failed"):
        score("llm_judgement", "Paris", "It is Paris.", model="some-judge")


def test_score_takes_one_text(served):
    with pytest.raises(ValueError, match="expected one text"):
        score("llm_judgement", "Paris", ["Paris", "Rome"], model="some-judge")


def test_where_nothing_can_be_asked_it_is_an_error():
    result = measure(MetricSpec(name="llm_judgement"), "Paris", "Paris", METRICS)
    assert result.score is None
    assert "list it under `metrics`" in result.error
