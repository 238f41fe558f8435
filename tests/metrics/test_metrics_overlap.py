from __future__ import annotations

import re
import string
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import sentence_bleu

from pytest_agentbench.metrics.registry import missing_extra
from pytest_agentbench.metrics.scoring import score

printable = st.text(string.printable, max_size=60)
sentences = st.lists(
    st.sampled_from(["the", "The", "cat", "cats", "sat", "a", "1,234", "U.S.", "don't", ".", "!"]), max_size=15
).map(" ".join)
chinese = st.text("北京是中国的首都。，12", max_size=20)


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "expected"),
    [
        ("Paris", "Paris.", 1),
        ("the cat", "The cat!", 1),
        ("cat", "a cat and a cat", 2 * 1 / 3 / (1 + 1 / 3)),  # one of "cat and cat" is expected
        ("cat cat", "cat", 2 / 3),
        ("1,234", "1234", 1),
        ("U.S.", "US", 1),
        ("don't", "don’t", 1),
        ("Ｐａｒｉｓ", "paris", 1),
        ("café", "cafe\u0301", 1),
        ("STRASSE", "Straße", 1),
        ("北京是中国的首都", "中国的首都是北京", 1),
        ("北京。", "北京", 1),
        ("巴黎", "答案是巴黎", 2 * 0.4 / 1.4),
        ("東京 タワー", "東京タワー", 1),
        ("กรุงเทพ", "กรุงเทพฯ", 12 / 13),  # six clusters and seven
        ("서울", "서울특별시", 4 / 7),
        ("हिन्दी", "हिन", 0),
        ("👍", "👍", 1),
        ("👍", "👎", 0),
        ("A", "The", 0),
        ("A", "a", 1),
        ("+", "-", 0),
        ("", "", 1),
        ("", "x", 0),
        ("x", "", 0),
    ],
)
def test_f1_counts_each_token_as_often_as_both_have_it(ground_truth, prediction, expected):
    assert score("f1_score", ground_truth, prediction) == pytest.approx(expected)


def squad_tokens(text: str) -> list[str]:
    """The published normalisation of SQuAD, for ASCII."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


@given(sentences, sentences)
def test_f1_is_that_of_squad_for_english(one, other):
    expected, found = Counter(squad_tokens(one)), Counter(squad_tokens(other))
    common = (expected & found).total()
    if expected and found:
        assert score("f1_score", one, other) == pytest.approx(2 * common / (expected.total() + found.total()))


@given(printable, printable)
def test_rouge_is_that_of_the_library_for_ascii(one, other):
    for stem in (False, True):
        library = RougeScorer(["rougeL"], use_stemmer=stem).score(one, other)["rougeL"].fmeasure
        assert score("rouge_score", one, other, stem=stem) == library


@pytest.mark.parametrize(
    ("ground_truth", "prediction", "expected"),
    [
        ("Paris", "Paris.", 1),
        ("a b c", "c b a", 1 / 3),
        ("北京是中国的首都", "中国的首都是北京", 5 / 8),
        ("東京タワー", "東京", 4 / 7),
        ("हिन्दी भाषा", "हिन्दी", 2 / 3),
        ("👍 ok", "ok", 2 / 3),
        ("…", "…", 0),
    ],
)
def test_rouge_counts_the_longest_common_subsequence(ground_truth, prediction, expected):
    assert score("rouge_score", ground_truth, prediction) == pytest.approx(expected)


@pytest.mark.slow
def test_rouge_of_long_texts_equals_that_of_the_library():
    one = " ".join(str(n % 13) for n in range(1_500))
    other = " ".join(str(n * n % 11) for n in range(1_600))
    assert len(one) * len(other) > 4_000_000  # where the library's table would become large
    library = RougeScorer(["rougeL"]).score(one, other)["rougeL"].fmeasure
    assert score("rouge_score", one, other) == library


@pytest.mark.slow
def test_rouge_of_texts_with_a_million_words():
    text = "word " * 1_000_000
    assert score("rouge_score", text, text) == 1
    compared = 100_000  # of each text, from where they first differ
    assert score("rouge_score", f"x {text}", f"z {text}") == 1 - 1 / 1_000_001  # a common end of any length counts
    assert score("rouge_score", f"x {text} y", f"z {text} q") == pytest.approx((compared - 1) / 1_000_002)


def test_stems_agree():
    assert score("rouge_score", "running dogs", "run dog") == 0
    assert score("rouge_score", "running dogs", "run dog", stem=True) == 1
    assert score("rouge_score", "y" * 5_000, "y" * 5_000, stem=True) == 1


@given(sentences, sentences)
def test_bleu_is_that_of_the_library_for_english(one, other):
    assert score("bleu_score", one, other) == pytest.approx(sentence_bleu(other, [one]).score / 100)


@given(chinese, chinese)
def test_bleu_is_that_of_the_library_for_chinese(one, other):
    ours = score("bleu_score", one.replace("，", "。"), other.replace("，", "。"))
    library = sentence_bleu(other.replace("，", "。"), [one.replace("，", "。")], tokenize="zh").score / 100
    assert ours == pytest.approx(library)


def test_bleu_counts_japanese_and_thai_by_character():
    assert 0 < score("bleu_score", "東京タワーです", "東京タワーでした") < 1
    assert 0 < score("bleu_score", "กรุงเทพมหานคร", "กรุงเทพ") < 1


MISSING = """
import sys
sys.modules.update(dict.fromkeys(["sacrebleu", "rouge_score", "math_verify"]))  # as if they were not installed
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench import score
from pytest_agentbench.metrics.registry import METRICS
from pytest_agentbench.metrics.registry import measure, missing_extra
from pytest_agentbench.records.case import MetricSpec

for name in ("bleu_score", "rouge_score", "math_equal"):
    try:
        score(name, "a b", "b a")
    except UnavailableError as error:
        assert str(error) == missing_extra(name) == measure(MetricSpec(name=name), "a", "b", METRICS).error
        print(error)
    if name != "math_equal":
        assert score(name, "a b", "a b", compat="v1") == 1
"""


@pytest.mark.slow
def test_the_error_of_a_missing_library_names_the_command_to_install_it():
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line, module in zip(lines, ("sacrebleu", "rouge_score", "math_verify"), strict=True):
        assert line.endswith(f"needs the module {module}; install it with: pip install 'pytest-agentbench[metrics]'")
    assert missing_extra("bleu_score") is None


@pytest.mark.slow
def test_libraries_are_not_imported_before_they_are_used():
    heavy = "{'regex', 'numpy', 'nltk', 'sympy', 'sacrebleu'}"
    each = "from pytest_agentbench.metrics.registry import METRICS; [*METRICS.values()]"
    code = f"import sys; {each}; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
