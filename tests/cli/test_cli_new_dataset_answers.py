"""`agentbench new dataset` on the shapes of sets with free answers: right replies score 1, wrong ones less.

All rows are our own; their fields are the sets' fields.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from new_dataset_support import Shape, make_benchmark, require_all_fields, require_scores, scores

from pytest_agentbench.cli.dataset_guesses import guess_dataset

REPORTS = Path(__file__).parents[3] / "shared" / "data" / "reports" / "init_dataset"

SHAPES = {
    "right and wrong numbers": Shape(
        [
            {"question": "One and one?", "correct_answer": 2, "incorrect_answers": [1, 3, 4]},
            {"question": "One and two?", "correct_answer": 3, "incorrect_answers": [1, 2, 4]},
        ],
        ["2", "3"],
        ["1", "2"],
    ),
    "gsm8k": Shape(
        [
            {"question": "Ann has 4 eggs and eats 1. How many?", "answer": "4 - 1 = <<4-1=3>>3\n#### 3"},
            {"question": "A house of $80,000 and a car of $1,000?", "answer": "It is $81,000\n#### 81,000"},
        ],
        ["It is 3.", "So \\boxed{81000}"],
        ["4", "80000"],
    ),
    "math": Shape(
        [
            {
                "problem": "Half of one?",
                "level": "1",
                "type": "A",
                "solution": "It is $\\frac12$.",
                "answer": "\\frac12",
            },
            {"problem": "The root of 8?", "level": "1", "type": "A", "solution": "So.", "answer": "2\\sqrt{2}"},
        ],
        ["\\boxed{\\frac{1}{2}}", "$\\sqrt{8}$"],
        ["2", "$\\sqrt{2}$"],
        [],
        ["level", "type", "solution"],
    ),
    "svamp": Shape(
        [
            {
                "ID": "x1",
                "Body": "Ben has 3 pens.",
                "Question": "How many with 4 more?",
                "Equation": "3+4",
                "Answer": 7.0,
            },
            {
                "ID": "x2",
                "Body": "Ann has 5 cups.",
                "Question": "How many with 1 less?",
                "Equation": "5-1",
                "Answer": 4.0,
            },
        ],
        ["7", "She has 4 cups."],
        ["3", "5"],
        ["Ben has 3 pens.\n\nHow many with 4 more?"],
        ["Equation"],
    ),
    "pubmed_qa": Shape(
        [
            {
                "question": "Does it?",
                "context": {"contexts": ["It did."]},
                "long_answer": "It does.",
                "final_decision": "yes",
            },
            {
                "question": "Can it?",
                "context": {"contexts": ["It can not."]},
                "long_answer": "It can not.",
                "final_decision": "no",
            },
        ],
        ["yes", "no"],
        ["no", "yes"],
        [],
        ["long_answer"],
    ),
    "boolq": Shape(
        [
            {"question": "is ice cold", "title": "Ice", "passage": "Ice is cold.", "answer": True},
            {"question": "is fire cold", "title": "Fire", "passage": "Fire is hot.", "answer": False},
        ],
        ["True", "False"],
        ["False", "True"],
        ["Ice is cold.\n\nis ice cold"],
        ["title"],
    ),
    "truthfulqa": Shape(
        [
            {
                "question": f"What happens if you eat {thing}?",
                "best_answer": f"Nothing happens at all if you eat {thing}",
                "correct_answers": ["Nothing", "You are full"],
                "incorrect_answers": ["You grow"],
            }
            for thing in ("seeds", "apples")
        ],
        ["Nothing happens if you eat seeds", "Nothing at all happens if you eat apples"],
        ["A plant grows", "Doctors stay away"],
        [],
        ["correct_answers", "incorrect_answers"],
    ),
    "drop": Shape(
        [
            {
                "passage": "The Owls won.",
                "question": "Who won?",
                "answers_spans": {"spans": ["Owls"], "types": ["span"]},
            },
            {
                "passage": "The Bees lost.",
                "question": "Who lost?",
                "answers_spans": {"spans": ["Bees"], "types": ["span"]},
            },
        ],
        ["Owls", "Bees"],
        ["Bees", "Owls"],
        ["The Owls won.\n\nWho won?"],
        ["answers_spans.types"],
    ),
    "squad": Shape(
        [
            {"context": "The Owls won.", "question": "Who won?", "answers": {"text": ["Owls"], "answer_start": [4]}},
            {"context": "The Bees lost.", "question": "Who lost?", "answers": {"text": ["Bees"], "answer_start": [4]}},
        ],
        ["Owls", "Bees"],
        ["Bees", "Owls"],
        ["The Owls won.\n\nWho won?"],
        ["answers.answer_start"],
    ),
    "squad with several answers": Shape(
        [
            {"context": "The Owls won.", "question": "Who won?", "answers": {"text": ["The Owls", "Owls"]}},
            {"context": "The Bees lost.", "question": "Who lost?", "answers": {"text": ["The Bees"]}},
        ],
        ["Owls", "The Bees"],
        ["Bees", "Owls"],
    ),
    "trivia_qa": Shape(
        [
            {
                "question": "Who wrote it?",
                "answer": {"value": "Ann Poe", "aliases": ["Ann Poe", "A. Poe"], "type": "x"},
            },
            {"question": "Who read it?", "answer": {"value": "Ben", "aliases": ["Ben", "Benjamin"], "type": "x"}},
        ],
        ["A. Poe", "Benjamin"],
        ["Ben", "Ann Poe"],
        [],
        ["answer.type", "answer.value"],
    ),
    "nq": Shape(
        [{"question": "Who ran?", "answer": ["Ann", "Annie"]}, {"question": "Who slept?", "answer": ["Ben"]}],
        ["Annie", "Ben"],
        ["Ben", "Ann"],
    ),
    "math without answers": Shape(
        [
            {"problem": "Half of one?", "level": "1", "solution": "So it is $\\boxed{\\frac{1}{2}}$."},
            {"problem": "The root of 8?", "level": "1", "solution": "It is not $2$ but $\\boxed{2\\sqrt{2}}$."},
        ],
        ["$0.5$", "\\boxed{\\sqrt{8}}"],
        ["$1$", "$2$"],
    ),
    "hotpotqa": Shape(
        [
            {
                "question": "Are both red?",
                "answer": "yes",
                "supporting_facts": {"title": ["A"], "sent_id": [0]},
                "level": "hard",
            },
            {
                "question": "Which is red?",
                "answer": "Mars",
                "supporting_facts": {"title": ["B"], "sent_id": [1]},
                "level": "hard",
            },
        ],
        ["yes", "Mars"],
        ["no", "Venus"],
        [],
        ["supporting_facts", "level"],
    ),
    "simpleqa": Shape(
        [
            {"metadata": "{'topic': 'Science'}", "problem": "Who found radium?", "answer": "Marie Curie"},
            {"metadata": "{'topic': 'Science'}", "problem": "Who found argon?", "answer": "Lord Rayleigh"},
        ],
        ["Marie Curie", "Lord Rayleigh"],
        ["Ann", "Ben"],
        [],
        ["metadata"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_right_replies_are_right_and_wrong_ones_are_wrong(tmp_path, monkeypatch, capsys, shape):
    require_scores(tmp_path, monkeypatch, capsys, shape)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_each_field_is_used_or_named(shape):
    require_all_fields(shape)


REPORTED = {
    "body_and_question": (["6", "8", "7"], ["5", "13", "21"]),
    "body_lower_case": (["9 cups", "13"], ["5", "10"]),
    "content_and_steps": (["$4a^2-b^2$", "12"], ["$4a^2+b^2$", "7"]),
    "lettered_options": (["C", "B", "D"], ["A", "C", "B"]),
    "options_by_letter": (["D", "B"], ["A", "A"]),
    "options_in_one_text": (["B", "C", "A"], ["A", "A", "B"]),
}


@pytest.mark.parametrize("name", REPORTED)
def test_reported_files_are_scored_right(tmp_path, monkeypatch, name):
    source = REPORTS / f"{name}.jsonl"
    if not source.is_file():
        pytest.skip("the shared data is not here")
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    benchmark = make_benchmark(tmp_path, monkeypatch, rows)
    right, wrong = REPORTED[name]
    assert scores(benchmark, right) == [1.0] * len(right)
    assert scores(benchmark, wrong) == [0.0] * len(wrong)
    first = next(iter(benchmark.get_items())).question
    for shown in ("Body", "body", "Question", "question", "content"):
        assert rows[0].get(shown, "") in first
    assert rows[0].get("steps", "-") not in first


def test_more_unused_fields_than_fit_a_screen_are_named_in_the_file(tmp_path, monkeypatch, capsys):
    rows = [
        {"question": f"{n}?", "answer": "a", **{f"extra {at}": f"value {at}" for at in range(14)}} for n in range(2)
    ]
    make_benchmark(tmp_path, monkeypatch, rows)
    printed = capsys.readouterr().out
    assert printed.count("  unused     ") == 11
    assert "  unused     and 4 more, which dataset.yaml names\n" in printed
    text = Path("dataset.yaml").read_text(encoding="utf-8")
    assert all(f"#   extra {at}: value {at}\n" in text for at in range(14))


def test_a_copy_of_the_row_with_its_answer_is_not_shown(tmp_path, monkeypatch):
    rows = [{"question": f"Why {n}?", "answer": f"a{n}", "text": f"Question: Why {n}? Answer: a{n}"} for n in range(3)]
    benchmark = make_benchmark(tmp_path, monkeypatch, rows)
    assert [item.question for item in benchmark.get_items()] == ["Why 0?", "Why 1?", "Why 2?"]
    rows = [{"question": f"Who {n}?", "answer": f"a{n}", "text": f"It was a{n}."} for n in range(3)]
    assert guess_dataset(rows).context == "text"


@pytest.mark.parametrize(
    ("rows", "question"),
    [
        (
            [{"steps": f"A long way to it, step {n}", "content": f"Why {n}?", "answer": "a"} for n in range(2)],
            "content",
        ),
        ([{"rationale": f"As is known of {n}", "thing": f"Why {n}?", "correct": "a"} for n in range(2)], "thing"),
        (
            [{"explanation": f"As is known of {n}", "question": f"Why {n}?", "answer": "a"} for n in range(2)],
            "question",
        ),
    ],
)
def test_a_solution_is_never_the_question(rows, question):
    assert guess_dataset(rows).question.field == question


def test_a_verdict_on_an_answer_is_no_answer():
    guess = guess_dataset([{"question": f"Why {n}?", "correct": True, "target": "So."} for n in range(2)])
    assert guess.answer.field == "target"
    guess = guess_dataset([{"question": f"Why {n}?", "correct": n == 1} for n in range(2)])
    assert guess.answer is None
    assert [field for field, _ in guess.unused] == ["correct"]
