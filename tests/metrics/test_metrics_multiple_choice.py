from __future__ import annotations

import pytest

from pytest_agentbench.metrics.multiple_choice import find_readings
from pytest_agentbench.metrics.registry import METRICS, measure
from pytest_agentbench.metrics.scoring import score
from pytest_agentbench.records.case import MetricSpec

CHOOSE_B = """
B
b
(B)
[B]
B.
**B**
_B_
`B`
$B$
Ｂ
（B）
- B
Option B
B. Paris
B) Paris
(B) Paris
B: Paris
B - Paris
**B) Paris**
The answer is B
The answer is (B).
The answer is B, because A is wrong
The answer is B because it is
The answer is B) Paris
The answer is therefore B
The answer is option (B)
The answer is **B. Paris**
The answer to question 5 is: B
Answer: (B) Paris
ANSWER: B
Answer: b
The correct option is **B**.
The best answer is "B".
A dog is an animal, so the answer is B
I think the answer is B
I would choose B because I know it
I'd go with option B.
Option B is correct, and A is not
B is correct
(B) is the best answer
<answer>B</answer>
{"answer": "B"}
\\boxed{B}
$\\boxed{\\text{B}}$
\\boxed{\\textbf{(B) Paris}}
So it is \\( \\boxed{B} \\), not A.
答案是B
答案：B
答案选 B。
正确答案是 B 项
选B
故选 B。
本题选（B）
B是正确的
答えはB
정답은 B입니다
选项B
正答はBである
सही उत्तर B है
उत्तर: B
الإجابة الصحيحة هي B
الجواب: B
La respuesta correcta es B
Die richtige Antwort ist B.
Réponse : B
Ans: B
Selected: (B)
Correct: B
The correct statement is B.
Answer - B
It's B.
It is B because A is wrong
So, B.
We eliminate A and C. Hence, B.
The answer isn't A, it's B.
The correct answer is not A. It is B.
Answer: B. Because A is wrong
1. B
"""

CHOOSE_NOTHING = """
A dog is an animal.
I think so.
The answer is A dog
The answer is Bob
The answer is not B
The answer isn't B
The answer cannot be B
I don't choose B
B is wrong
Option B is incorrect
Plan B was used
BB
A or B
A, B
The answer is A or B
The answer is A and B
The answer is A, B and I
The answer is A. The answer is B.
Either (A) or (B)
\\boxed{A} or \\boxed{B}
\\boxed{Paris}
不选B
答案不是B
It's not B.
It is B-side music
So B is wrong
Incorrect: B
Ruled out: B
No es B
Ce n'est pas B
So A, B.
Vitamin B is needed
Paris
"""


def chosen(text: str) -> str | None:
    return measure(MetricSpec(name="multiple_choice"), "B", text, METRICS).details["chosen"]


@pytest.mark.parametrize("text", CHOOSE_B.strip().splitlines())
def test_the_letter_that_an_answer_chooses(text):
    assert chosen(text) == "B"
    assert score("multiple_choice", "b", text) == 1
    assert score("multiple_choice", "(A)", text) == 0


@pytest.mark.parametrize("text", ["", *CHOOSE_NOTHING.strip().splitlines()])
def test_words_that_look_like_letters_and_two_letters_choose_nothing(text):
    assert chosen(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "A is tempting.\n\nAnswer: B",
        "At first the answer is A.\nBut no: the answer is B.",
        "Final answer:\n\n**B**",
        "So the correct choice is\n(B)",
        "The answer is A.\n\\boxed{B}",
        "\\boxed{A}\nNo, wait.\n\\boxed{B}\nThe answer is C.",
        "The answer is B.\n\nA is too long, C too short.",
        "B. Paris\nIt is the capital.",
        "B. Paris\n\nWhy not the others:\nA. London is in the UK.\nC. Rome is in Italy.",
        "A: wrong\nB: correct\nC: wrong",
        "The answer is A.\nWait, that is wrong. It's B.",
        "The answer is B.\nRuled out: A",
        "<think>The answer is A.</think>\nThe answer is B.",
        "<think>A. Or A?</think>B",
    ],
)
def test_the_last_line_that_names_a_letter_decides_and_a_box_before_all(text):
    assert chosen(text) == "B"


def test_options_that_are_listed_are_not_chosen():
    assert chosen("A. London\nB. Paris") is None


@pytest.mark.parametrize("ground_truth", ["B", "Paris", "paris.", "1", 'The answer is "B"'])
@pytest.mark.parametrize("prediction", ["B", "Paris", "paris", "\\boxed{Paris}", "B. Paris"])
def test_with_the_choices_texts_and_indices_stand_for_letters(ground_truth, prediction):
    assert score("multiple_choice", ground_truth, prediction, choices=["London", "Paris", "Rome"]) == 1


def test_an_options_text_comes_before_its_index():
    assert score("multiple_choice", "2", "B", choices=[1, 2, 3]) == 1
    assert score("multiple_choice", "0", "A", choices=[1, 2, 3]) == 1
    assert score("multiple_choice", "2", "\\boxed{2}", choices=["1", "2", "3"]) == 1


@pytest.mark.parametrize(
    ("ground_truth", "choices", "message"),
    [
        ("", None, "the ground truth is '', expected a letter$"),
        ("Paris", None, "expected a letter$"),
        ("D", ["x", "y"], "expected a letter, the text of one option or its index from 0"),
        ("2", ["x", "y"], "expected a letter, the text of one option"),
        ("x", ["x", "x"], "expected a letter, the text of one option"),
        ("A", ["x"] * 27, "found 27 choices, expected at most 26"),
    ],
)
def test_a_ground_truth_that_names_no_option_is_an_error(ground_truth, choices, message):
    with pytest.raises(ValueError, match=message):
        score("multiple_choice", ground_truth, "A", choices=choices)


@pytest.mark.parametrize("text", ["<think>The answer is B.", "<think>The answer is B.</think>\nI cannot say."])
def test_thoughts_choose_nothing(text):
    assert chosen(text) is None


@pytest.mark.parametrize(
    ("ground_truth", "answer_is", "letters"),
    [
        ("2", None, {"text": "B", "index": "C"}),
        ("2", "integer", {"text": "B", "index": "C"}),
        ("3", "integer", {"index": "D"}),
        ("8", "integer", {"text": "D"}),
        ("B", None, {"letter": "B"}),
        ("2", "index", {}),
        ("2", "text", {}),
        ("nine", None, {}),
    ],
)
def test_the_readings_of_a_ground_truth(ground_truth, answer_is, letters):
    assert find_readings(ground_truth, ["1", "2", "4", "8"], answer_is) == letters


def test_a_letter_that_is_the_text_of_another_option_reads_two_ways():
    assert find_readings("A", ["B", "A"]) == {"letter": "A", "text": "B"}


def test_a_reply_that_goes_on_with_a_further_question_answers_first():
    result = measure(MetricSpec(name="multiple_choice"), "B", "Answer: B\n\nQuestion: 2?\nAnswer: C", METRICS)
    assert (result.score, result.details) == (1, {"expected": "B", "chosen": "B", "run_on": True})
