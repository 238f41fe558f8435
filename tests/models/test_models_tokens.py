"""How many tokens a text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.models.prompts import TokenCounter
from pytest_agentbench.records.case import Model

PROSE = "The quick brown fox jumps over the lazy dog, and nobody minds. " * 20
CHINESE = "敏捷的棕色狐狸跳过了那只懒狗,谁也不介意。" * 20
RUSSIAN = "Быстрая коричневая лиса перепрыгивает через ленивую собаку. " * 20
JSON = '{"id": 18273, "price": 12.75, "tags": ["a1", "b2"], "at": "2025-03-04T05:06:07Z"},\n' * 20
REAL = {PROSE: 281, CHINESE: 440, RUSSIAN: 382, JSON: 880}
"""What o200k_base counts."""


def counter(name: str) -> TokenCounter:
    return TokenCounter(Model(model_id="m", requested_model=name))


@pytest.mark.parametrize(
    "name", ["gpt-4o", "openai/gpt-4o-2024-08-06", "gpt-5-mini", "o4-mini", "gpt-oss-120b", "ft:gpt-4.1-mini:me"]
)
def test_the_tokenizer_of_a_known_model_counts(name: str) -> None:
    pytest.importorskip("bpe_openai")
    assert {text: counter(name).count(text) for text in REAL} == REAL


def test_an_older_model_has_another_vocabulary() -> None:
    pytest.importorskip("bpe_openai")
    assert counter("gpt-4").count(CHINESE) > counter("gpt-4o").count(CHINESE)
    assert counter("gpt-4").count("Hello world") == 2


@pytest.mark.parametrize("name", ["claude-sonnet-4", "gpt-40b", "olmo-3", "qwen3-30b", "deepseek-o1x"])
@pytest.mark.parametrize("text", REAL)
def test_others_are_estimated_by_their_scripts(name: str, text: str) -> None:
    assert REAL[text] * 0.6 < counter(name).count(text) < REAL[text] * 1.6


def test_an_estimate_follows_the_counts_of_the_provider() -> None:
    guessing = counter("claude-sonnet-4")
    before = guessing.count(PROSE)
    guessing.learn(JSON, None)
    assert guessing.count(PROSE) == before
    guessing.learn(PROSE * 3, before * 6)
    assert guessing.count(PROSE) == pytest.approx(before * 2, abs=2)
    guessing.learn(PROSE * 1000, 10**9)
    assert guessing.count(PROSE) == pytest.approx(before * 4, abs=4)


def test_counts_of_the_exact_tokenizer_are_not_corrected() -> None:
    pytest.importorskip("bpe_openai")
    exact = counter("gpt-4o")
    exact.learn(PROSE, 10**6)
    assert exact.count(PROSE) == REAL[PROSE]


def test_nothing_is_nothing() -> None:
    assert counter("claude-sonnet-4").count("") == 0
    assert counter("claude-sonnet-4").count("a") == 1


@given(st.text(), st.integers(0, 40), st.sampled_from(["claude-sonnet-4", "gpt-4o"]))
def test_a_cut_is_a_beginning_that_fits(text: str, tokens: int, name: str) -> None:
    cutting = counter(name)
    cut = cutting.cut(text, tokens)
    assert text.startswith(cut)
    assert cutting.count(cut) <= tokens
    assert cut == text or cutting.count(text) > tokens


def test_much_text_is_counted_and_cut_in_no_time() -> None:
    text = (PROSE + CHINESE + JSON) * 200
    for name in ("claude-sonnet-4", "gpt-4o"):
        cutting = counter(name)
        with at_most(5):
            assert cutting.count(cutting.cut(text, 1000)) <= 1000


def test_a_count_that_has_to_be_the_same_everywhere_is_estimated() -> None:
    known = Model(model_id="m", requested_model="gpt-4o")
    alike = TokenCounter(known, everywhere_alike=True)
    assert {text: alike.count(text) for text in REAL} == {text: counter("claude-sonnet-4").count(text) for text in REAL}
    assert alike.tokenizer is counter("claude-sonnet-4").tokenizer is None


def test_a_counter_names_its_tokenizer() -> None:
    pytest.importorskip("bpe_openai")
    assert counter("gpt-4o").tokenizer == "o200k_base"
