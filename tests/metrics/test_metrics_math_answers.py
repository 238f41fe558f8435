from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_samples import HOSTILE, LENGTH
from support.cpu_seconds import at_most

from pytest_agentbench.metrics.math_answers import agree, have_same_words, read_answer

numbers = st.integers(-999, 999) | st.decimals(-99, 99, places=2).map(lambda number: number.normalize().__format__("f"))
lists = st.lists(numbers.map(str), min_size=2, max_size=6, unique_by=float)
separators = st.sampled_from([", ", ",", "; ", " , "])
parts = ("(", ")", "[", "]", "\\{", "\\}", "{", "}", ",", ";", ":", "=", "|", "_", "^", "-", " ", "1", "23", "x", "$")
words = (
    "\\frac",
    "\\cup",
    "\\pm",
    "\\in",
    "\\text{",
    " or ",
    "is",
    "\n",
    "\\boxed{",
    "####",
    "base 2",
    "no",
    "\\(",
    "\\]",
)
texts = st.lists(st.sampled_from(parts + words), max_size=14).map("".join) | st.text(max_size=40)


def same(one, other):
    return agree(read_answer(one), read_answer(other), lambda expected, found: expected == found)


@given(texts, texts)
def test_any_text_is_read_and_compared(one, other):
    assert same(one, one)
    assert isinstance(same(one, other), bool)
    assert isinstance(have_same_words(one, other), bool)


@given(lists, separators, st.randoms())
def test_a_list_is_the_same_in_any_order_and_with_other_separators(elements, separator, random):
    shuffled = random.sample(elements, len(elements))
    assert read_answer(", ".join(elements)).kind == "list"
    assert same(", ".join(elements), separator.join(shuffled)) or separator == ","  # 1,234 is one number
    assert same(", ".join(elements), "\\{" + "; ".join(shuffled) + "\\}")
    assert not same(", ".join(elements), ", ".join([*shuffled[1:], "12345"]))
    assert not same(", ".join(elements), ", ".join(shuffled[1:]))


@given(lists, st.sampled_from(["()", "[]", "[)", "(]"]))
def test_a_sequence_has_an_order_and_two_numbers_also_their_brackets(elements, brackets):
    opening, closing = brackets
    text = opening + ", ".join(elements) + closing
    assert same(text, f"$\\left{opening} {','.join(elements)} \\right{closing}$")
    assert not same(text, opening + ", ".join(elements[::-1]) + closing)
    assert not same(text, opening + ", ".join([*elements[1:], "12345"]) + closing)
    assert same(text, "(" + ", ".join(elements) + ")") == (len(elements) > 2 or brackets == "()")


@given(st.lists(st.integers(1, 999), min_size=2, max_size=4), st.integers(2, 9))
def test_ratios_agree_in_proportion(terms, factor):
    ratio = ":".join(map(str, terms))
    assert same(ratio, " : ".join(str(term * factor) for term in terms))
    assert not same(ratio, ":".join(map(str, [*terms[:-1], terms[-1] + 1])))


@given(st.integers(0, 10**9), st.sampled_from([2, 3, 7, 8, 12, 16, 36]))
def test_numbers_in_a_base_agree_by_digits_and_base(number, base):
    digits = ""
    while number or not digits:
        number, digit = divmod(number, base)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    assert read_answer(f"{digits}_{base}").kind == "base"
    assert same(f"{digits}_{base}", f"$\\text{{{digits}}}_{{{base}}}$")
    assert not same(f"{digits}_{base}", f"-{digits}_{base}")
    assert not same(f"{digits}_{base}", f"{digits}1_{base}")
    assert not same(f"{digits}_{base}", digits)


KINDS = [
    ("- 31", "expression", 0),
    ("1,234", "expression", 0),
    ("1, 234", "list", 2),
    ("1,000, 2,000", "list", 2),
    ("(1,000, 2,000)", "sequence", 2),
    ("(1,234)", "sequence", 2),
    ("1,234,5", "list", 3),
    ("(x+1)(x-2)", "expression", 0),
    ("((3))", "expression", 0),
    ("x = 2 or x = 3", "list", 2),
    ("\\pm 2", "list", 2),
    ("]1, 2]", "sequence", 2),
    ("[1, 2[", "sequence", 2),
    ("]1, 2", "expression", 0),
    ("[1,2) U (3,4)", "union", 2),
    ("\\{x : x > 2\\}", "expression", 0),
    ("\\{\\}", "expression", 0),
    ("A:B = 2:3", "ratio", 2),
    ("3 to 4", "ratio", 2),
    ("129_8", "expression", 0),
    ("128_8", "expression", 0),
    ("1Z_36", "base", 0),
    ("12_1", "expression", 0),
    ("a1, 2[", "expression", 0),
    ("[1, 2]]", "expression", 0),
    ("{5}", "expression", 0),
    ("{5, 6}", "list", 2),
    ("{x : x > 2, x < 3}", "expression", 0),
    ("\\{5\\}", "list", 1),
    ("((1, 2))", "sequence", 2),
    ("(1,2):(3,4)", "expression", 0),
    ("ab cd", "text", 0),
    ("odd", "text", 0),
    ("\\text{A} \\text{B}", "text", 0),
    ("\\text{(3, 4)}", "sequence", 2),
    ("12 base 37", "expression", 0),
    ("x \\in [0, 1]", "sequence", 2),
    ("f(1, 2) = (3, 4)", "expression", 0),
    ("no", "text", 0),
    ("ab", "expression", 0),
    ("is it ab", "text", 0),
    ("12 square meters", "expression", 0),
    ("5 million", "text", 0),
    ("(" * 30 + "1, 2" + ")" * 30, "expression", 0),
]


def test_the_kind_of_an_answer():
    for text, kind, parts in KINDS:
        answer = read_answer(text)
        assert (answer.kind, len(answer.parts)) == (kind, parts), (text, kind, parts)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x = 2 + 3 = 5", "5"),
        ("2x = 4\nx = 2", "x = 2"),
        ("\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}", "\\begin{pmatrix} 1\\\\ 2 \\end{pmatrix}"),
        ("We look at: all good words\nThe roots are 3 and 5.", "3 , 5"),
        ("The answer is the sum of $a$ which is, after all, $5$.", "5"),
        ("The answer is $5$, after all, as $a$ is $3$.", "5"),
        ("First $x$, a letter and then some more, $y$.", "y"),
        ("12 square meters", "12"),
        ("1\\,000", "1000"),
        ("1{,}5", "1{,}5"),
        ("- 31.", "- 31"),
    ],
)
def test_the_part_of_a_text_that_answers(text, part):
    assert read_answer(text).text == part


AGREEMENTS = [
    ("(- 31)", "-31", True),
    ("((3))", "3", True),
    ("{5}", "5", True),
    ("\\{5\\}", "5", True),
    ("x = 1/2", "x=0.5", True),
    ("x = 1/2", "0.5", True),
    ("x = 1/2", "y = 1/2", False),
    ("x_1 = 2", "x_{1} = 2.0", False),
    ("-1,250.5", "- 1250.5", True),
    ("1 250", "1250", True),
    ("1 25", "125", False),
    ("2 1/2", "2.5", True),
    ("-2\\frac12", "-2.5", True),
    ("2\\frac{1}{2}", "2.5", True),
    ("21/2", "2.5", False),
    ("\\frac{-3}{4}", "-0.75", True),
    ("1/0", "1/0", True),
    ("1/0", "2/0", False),
    ("1e3", "1000", True),
    (".5", "0.5", True),
    ("5.", "5", True),
    ("1/3", "0.333333", True),
    ("1/3", "0.3333", False),
    ("1000000", "1000001", False),
    ("[1,2) U (3,4)", "(3,4) \\cup [1,2)", True),
    ("[1,2) U (3,4)", "(1,2) U (3,4)", False),
    ("(1, 2)", "(1, 2, 3)", False),
    ("1:2", "1:2:3", False),
    ("1:2", "1:2.000001", True),
    ("a:b", "a:b", True),
    ("a:b", "b:a", False),
    ("0:1", "0:1", True),
    ("\\{100200\\}", "100,200", True),
    ("100, 200", "100,200", True),
    ("100, 200, 300", "100,200,300", True),
    ("1, 1, 2", "2, 1", True),
    ("1, 2", "1, 3", False),
    ("(1, 2), (3, 4)", "(3, 4), (1, 2)", True),
    ("(1, 2), (3, 4)", "(2, 1), (3, 4)", False),
    ("Yes", "yes!", True),
    ("no solution", "**No solution.**", True),
    ("\\pm 2", "2, -2", True),
    ("3 \\mp 1 \\pm x", "3 - 1 + x, 3 + 1 - x", True),
    ("1 or 2", "2 and 1", True),
    ("1; 2", "{2, 1}", True),
    ("\\left[0; 1\\right)", "[0, 1[", True),
    ("]0, 1]", "(0, 1]", True),
]


def test_answers_agree_as_what_they_are():
    for one, other, expected in AGREEMENTS:
        assert same(one, other) is expected, (one, other)
        assert same(other, one) is expected, (one, other)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        *enumerate(["two", "three", "four", "five", "six", "seven", "eight", "nine"], 2),
        *((11, "eleven"), (12, "twelve"), (16, "sixteen")),
    ],
)
def test_bases_have_names(number, name):
    assert same(f"10_{{\\text{{{name}}}}}", f"10_{number}")
    assert same(f"10 base {name}", f"10_{{{number}}}")
    assert not same(f"10_{name}", f"10_{number + 1}")


def test_long_lists_are_compared_by_their_texts():
    elements = [str(number) for number in range(500)]
    assert same(", ".join(elements), ", ".join(elements[::-1]))
    assert not same(", ".join(elements), ", ".join(elements[1:]))
    assert not same(", ".join(elements), ", ".join([*elements[1:], "0.0"]))
    assert same(", ".join(elements[:100]), ", ".join([*elements[1:100], "0.0"]))


MORE = {
    "dollars": "$x$ and " * (LENGTH // 8),
    "open formulas": "\\(x" * (LENGTH // 3),
    "statements": "is = : " * (LENGTH // 7),
    "signs": "\\pm 1," * (LENGTH // 6),
    "equations": "x=" * (LENGTH // 2),
    "unions": "(1,2)\\cup" * (LENGTH // 9),
    "units": "5 cm cm " * (LENGTH // 8),
    "nested lists": "(1," * 500 + ")" * 500,
    "blanks": " " * LENGTH + "x",
    "stars": "*" * LENGTH,
}


@pytest.mark.slow
def test_long_texts_are_read_in_a_second():
    for kind, whole in (HOSTILE | MORE).items():
        text = whole[-10_000:]
        with at_most(1, kind):
            same(text, "3, 5, 7")
            same(text, text[1:] + "1")
            same("1, 2", text)
            have_same_words(text, text)
