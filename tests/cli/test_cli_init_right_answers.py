"""What `agentbench init dataset` writes for the shapes of public sets: right replies score 1, wrong ones less.

All rows are our own; only their fields are those of the sets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from pytest_agentbench import create_benchmark
from pytest_agentbench.cli import main
from pytest_agentbench.cli.dataset_guesses import guess_dataset

REPORTS = Path(__file__).parents[3] / "shared" / "data" / "reports" / "init_dataset"


class Shape(NamedTuple):
    rows: list[dict]
    right: list[str]
    wrong: list[str]
    shown: Sequence[str] = ()
    """What the prompt of the first row contains."""
    unused: Sequence[str] = ()
    """The fields that are named as unused."""


SHAPES = {
    "mmlu": Shape(
        [
            {"question": "20 * 2?", "choices": ["10", "20", "40", "80"], "answer": 2, "subject": "arithmetic"},
            {"question": "20 + 60?", "choices": ["10", "20", "40", "80"], "answer": 3, "subject": "arithmetic"},
        ],
        ["C", "The answer is (D)."],
        ["B", "C"],
        ["A. 10\nB. 20\nC. 40\nD. 80"],
        ["subject"],
    ),
    "mmlu with numbers": Shape(
        [
            {"question": "2 * 2?", "choices": ["1", "2", "4", "8"], "answer": 2},
            {"question": "2 + 6?", "choices": ["1", "2", "4", "8"], "answer": 3},
        ],
        ["C", "D"],
        ["B", "C"],
        ["A. 1\nB. 2\nC. 4\nD. 8"],
    ),
    "winogrande": Shape(
        [
            {"sentence": "Ann saw Eve since _ waved.", "option1": "Ann", "option2": "Eve", "answer": "2"},
            {"sentence": "Ben hit Tom since _ was mad.", "option1": "Ben", "option2": "Tom", "answer": "1"},
        ],
        ["B", "A"],
        ["A", "B"],
        ["Ann saw Eve since _ waved.\n\nA. Ann\nB. Eve"],
    ),
    "social_iqa": Shape(
        [
            {
                "context": "Ann fell.",
                "question": "Why?",
                "answerA": "ice",
                "answerB": "sun",
                "answerC": "air",
                "label": "1",
            },
            {
                "context": "Ben ran.",
                "question": "Why?",
                "answerA": "art",
                "answerB": "cat",
                "answerC": "bus",
                "label": "3",
            },
        ],
        ["A", "C"],
        ["B", "B"],
        ["Ann fell.\n\nWhy?\n\nA. ice\nB. sun\nC. air"],
    ),
    "right and wrong numbers": Shape(
        [
            {"question": "One and one?", "correct_answer": 2, "incorrect_answers": [1, 3, 4]},
            {"question": "One and two?", "correct_answer": 3, "incorrect_answers": [1, 2, 4]},
        ],
        ["2", "3"],
        ["1", "2"],
    ),
    "mmlu_pro": Shape(
        [
            {
                "question": "1 + 1?",
                "options": list("1234567"),
                "answer": "B",
                "answer_index": 1,
                "cot_content": "So 2.",
            },
            {
                "question": "3 + 3?",
                "options": list("1234567"),
                "answer": "F",
                "answer_index": 5,
                "cot_content": "So 6.",
            },
        ],
        ["B", "F"],
        ["A", "E"],
        ["A. 1\nB. 2"],
        ["cot_content", "answer_index"],
    ),
    "arc": Shape(
        [
            {"question": "A metal?", "choices": {"text": ["air", "iron"], "label": ["A", "B"]}, "answerKey": "B"},
            {"question": "A gas?", "choices": {"text": ["gold", "air"], "label": ["1", "2"]}, "answerKey": "2"},
            {"question": "A liquid?", "choices": {"text": ["water", "air"], "label": ["1", "2"]}, "answerKey": "1"},
        ],
        ["B", "B", "water"],
        ["A", "A", "B"],
        ["A. air\nB. iron"],
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
    "aqua": Shape(
        [
            {"question": "3 * 3?", "options": ["A)6", "B)9", "C)12"], "rationale": "Nine.", "correct": "B"},
            {"question": "4 + 8?", "options": ["A)6", "B)9", "C)12"], "rationale": "Twelve.", "correct": "C"},
        ],
        ["B", "C) 12"],
        ["A", "B"],
        ["3 * 3?\n\nA)6\nB)9\nC)12"],
        ["rationale"],
    ),
    "aqua by text": Shape(
        [
            {"question": "3 * 3?", "options": ["A)6", "B)9", "C)12"], "correct": "9"},
            {"question": "4 + 8?", "options": ["A)6", "B)9", "C)12"], "correct": "12"},
        ],
        ["B", "C"],
        ["A", "B"],
        ["A. 6\nB. 9\nC. 12"],
    ),
    "mathqa": Shape(
        [
            {"Problem": "3 * 3?", "Rationale": '"9"', "options": "a ) 6 , b ) 9 , c ) 12", "correct": "b"},
            {"Problem": "4 + 8?", "Rationale": '"12"', "options": "a ) 6 , b ) 9 , c ) 12", "correct": "c"},
        ],
        ["B", "c"],
        ["A", "b"],
        ["a ) 6 , b ) 9 , c ) 12"],
        ["Rationale"],
    ),
    "agieval": Shape(
        [
            {"passage": "Ann runs.", "question": "Who runs?", "options": ["(A)Ann", "(B)Ben"], "label": "A"},
            {"passage": "Ben sits.", "question": "Who sits?", "options": ["(A)Ann", "(B)Ben"], "label": "B"},
        ],
        ["A", "(B)"],
        ["B", "A"],
        ["Ann runs.\n\nWho runs?\n\n(A)Ann\n(B)Ben"],
    ),
    "cmb": Shape(
        [
            {
                "exam_type": "x",
                "question": "哪个是骨",
                "answer": "B",
                "option": {"A": "肝", "B": "股骨", "C": "皮", "D": ""},
            },
            {"exam_type": "x", "question": "哪个是腺", "answer": "A", "option": {"A": "肝", "B": "股骨", "C": "皮"}},
        ],
        ["B", "A"],
        ["C", "B"],
        ["A. 肝\nB. 股骨\nC. 皮"],
    ),
    "race": Shape(
        [
            {
                "article": "Ann runs.",
                "question": "Ann _ .",
                "options": ["runs", "sits"],
                "answer": "A",
                "example_id": "a.txt",
            },
            {
                "article": "Ben sits.",
                "question": "Ben _ .",
                "options": ["runs", "sits"],
                "answer": "B",
                "example_id": "b.txt",
            },
        ],
        ["A", "sits"],
        ["B", "runs"],
        ["Ann runs.\n\nAnn _ .\n\nA. runs\nB. sits"],
    ),
    "c3": Shape(
        [
            {"question": "Who runs?", "choice": ["Ann", "Ben"], "answer": "Ann"},
            {"question": "Who sits?", "choice": ["Ann", "Ben"], "answer": "Ben"},
        ],
        ["A", "Ben"],
        ["B", "Ann"],
        ["A. Ann\nB. Ben"],
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
    "bbh": Shape(
        [
            {"input": "Which is red?\nOptions:\n(A) blood\n(B) grass", "target": "(A)"},
            {"input": "Which is green?\nOptions:\n(A) blood\n(B) grass", "target": "(B)"},
        ],
        ["A", "(B)"],
        ["B", "A"],
        ["(A) blood\n(B) grass\n\nAnswer with the letter only."],
    ),
    "medqa": Shape(
        [
            {
                "question": "Which for fever?",
                "answer": "Aspirin",
                "options": {"A": "Insulin", "B": "Aspirin"},
                "answer_idx": "B",
            },
            {
                "question": "Which for sugar?",
                "answer": "Insulin",
                "options": {"A": "Insulin", "B": "Aspirin"},
                "answer_idx": "A",
            },
        ],
        ["B", "A"],
        ["A", "B"],
        ["A. Insulin\nB. Aspirin"],
        ["answer"],
    ),
    "options by letter of different numbers": Shape(
        [
            {"question": "Which?", "option": {"A": "x", "B": "y"}, "answer": "B"} | {"options": {"A": "x", "B": "y"}},
            {"question": "Where?", "options": {"A": "here", "B": "there", "C": "nowhere"}, "answer": "C"},
            {"question": "When?", "options": {"A": "now", "B": "then", "C": ""}, "answer": "A"},
        ],
        ["B", "C", "A"],
        ["A", "B", "C"],
        ["A. x\nB. y"],
    ),
    "medmcqa": Shape(
        [
            {
                "question": "A bone?",
                "opa": "Liver",
                "opb": "Femur",
                "opc": "Iris",
                "opd": "Skin",
                "cop": 1,
                "exp": "A leg.",
            },
            {
                "question": "An eye?",
                "opa": "Liver",
                "opb": "Femur",
                "opc": "Iris",
                "opd": "Skin",
                "cop": 2,
                "exp": "Seen.",
            },
            {
                "question": "A gland?",
                "opa": "Liver",
                "opb": "Femur",
                "opc": "Iris",
                "opd": "Skin",
                "cop": 0,
                "exp": "Bile.",
            },
        ],
        ["B", "C", "Liver"],
        ["A", "D", "B"],
        ["A. Liver\nB. Femur\nC. Iris\nD. Skin"],
        ["exp"],
    ),
    "commonsenseqa": Shape(
        [
            {
                "question": "Dry?",
                "question_concept": "dry",
                "choices": {"label": ["A", "B"], "text": ["sea", "sand"]},
                "answerKey": "B",
            },
            {
                "question": "Wet?",
                "question_concept": "wet",
                "choices": {"label": ["A", "B"], "text": ["sea", "sand"]},
                "answerKey": "A",
            },
        ],
        ["B", "sea"],
        ["A", "sand"],
        ["A. sea\nB. sand"],
        ["question_concept"],
    ),
    "openbookqa": Shape(
        [
            {
                "question": {"stem": stem, "choices": [{"text": "sea", "label": "A"}, {"text": "sand", "label": "B"}]},
                "answerKey": key,
                "fact1": f"the {stem.casefold()} thing",
            }
            for stem, key in (("Dry?", "B"), ("Wet?", "A"))
        ],
        ["B", "A"],
        ["A", "B"],
        ["Dry?", "A. sea\nB. sand"],
        ["fact1"],
    ),
    "hellaswag": Shape(
        [
            {
                "ind": 4,
                "ctx_a": "A man",
                "ctx_b": "on a roof",
                "ctx": "A man on a roof",
                "endings": ["sits.", "flies."],
                "label": "0",
            },
            {
                "ind": 5,
                "ctx_a": "A fish",
                "ctx_b": "in the sea",
                "ctx": "A fish in the sea",
                "endings": ["sits.", "swims."],
                "label": "1",
            },
        ],
        ["A", "B"],
        ["B", "A"],
        ["A man on a roof\n\nA. sits.\nB. flies."],
        ["ctx_a", "ctx_b"],
    ),
    "piqa": Shape(
        [
            {"goal": "Boil water", "sol1": "Heat it.", "sol2": "Cool it.", "label": 0},
            {"goal": "Freeze water", "sol1": "Heat it.", "sol2": "Cool it.", "label": 1},
        ],
        ["A", "B"],
        ["B", "A"],
        ["A. Heat it.\nB. Cool it."],
    ),
    "copa": Shape(
        [
            {
                "premise": "It rained.",
                "choice1": "I got wet.",
                "choice2": "I got rich.",
                "question": "effect",
                "label": 0,
            },
            {"premise": "I fell.", "choice1": "It was day.", "choice2": "It was icy.", "question": "cause", "label": 1},
        ],
        ["A", "B"],
        ["B", "A"],
        ["It rained.\n\neffect\n\nA. I got wet.\nB. I got rich."],
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
    "gpqa": Shape(
        [
            {
                "Question": f"What is {n} + {n}?",
                "Correct Answer": f"{2 * n}",
                "Incorrect Answer 1": f"{2 * n + 1}",
                "Incorrect Answer 2": f"{2 * n + 2}",
                "Incorrect Answer 3": f"{2 * n + 3}",
                "Explanation": "It is twice.",
                "Pre-Revision Question": f"{n} and {n}?",
            }
            for n in (2, 4, 6)
        ],
        ["4", "8", "12"],
        ["5", "9", "13"],
        ["What is 2 + 2?\n\nA. ", "Answer with the letter only."],
        ["Explanation", "Pre-Revision Question"],
    ),
    "sciq": Shape(
        [
            {"question": "A metal?", "distractor1": "air", "distractor2": "wood", "correct_answer": "iron"},
            {"question": "A gas?", "distractor1": "iron", "distractor2": "wood", "correct_answer": "air"},
        ],
        ["iron", "air"],
        ["air", "wood"],
        ["A metal?\n\nA. "],
    ),
    "opentdb": Shape(
        [
            {"question": "A metal?", "correct_answer": "iron", "incorrect_answers": ["air", "wood"]},
            {"question": "A gas?", "correct_answer": "air", "incorrect_answers": ["iron"]},
        ],
        ["iron", "air"],
        ["air", "iron"],
        ["A metal?\n\nA. "],
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
    "ceval": Shape(
        [
            {
                "id": 0,
                "question": "哪个是金属____",
                "A": "空气",
                "B": "铁",
                "C": "水",
                "D": "木",
                "answer": "B",
                "explanation": "",
            },
            {
                "id": 1,
                "question": "哪个是液体____",
                "A": "空气",
                "B": "铁",
                "C": "水",
                "D": "木",
                "answer": "C",
                "explanation": "",
            },
        ],
        ["B", "答案是C"],
        ["C", "答案是B"],
        ["A. 空气\nB. 铁\nC. 水\nD. 木"],
        ["explanation"],
    ),
}


def make_benchmark(folder, monkeypatch, rows):
    monkeypatch.chdir(folder)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["init", "dataset", "rows.jsonl"]) == 0
    return create_benchmark("dataset.yaml")


def right_letters(benchmark, replies):
    """Return letters for replies that are the text of an option of a list in another order."""
    letters = []
    for item, reply in zip(benchmark.get_items(), replies, strict=True):
        options = (item.metadata or {}).get("choices")
        letters.append("ABCDEFGH"[options.index(reply)] if isinstance(options, list) and reply in options else reply)
    return letters


def scores(benchmark, replies):
    results = benchmark.evaluate(replies)
    assert benchmark.get_summary()["failed_items"] == 0
    return [result.score for result in results]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_right_replies_are_right_and_wrong_ones_are_wrong(tmp_path, monkeypatch, capsys, shape):
    benchmark = make_benchmark(tmp_path, monkeypatch, shape.rows)
    printed = capsys.readouterr().out
    threshold = yaml.safe_load(Path("dataset.yaml").read_text(encoding="utf-8"))["metrics"][0]["threshold"]
    assert all(score >= threshold for score in scores(benchmark, shape.right))
    assert all(score >= threshold for score in scores(benchmark, right_letters(benchmark, shape.right)))
    assert all(score < threshold for score in scores(benchmark, shape.wrong))
    asked = next(iter(benchmark.get_items())).question
    for text in shape.shown:
        assert text in asked
    for field in shape.unused:
        assert f"  unused     {field}, such as: " in printed


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_each_field_is_used_or_named(shape):
    guess = guess_dataset(shape.rows)
    roots = {path.partition(".")[0] for path in (*guess.used, *(field for field, _ in guess.unused))}
    assert roots == {key for row in shape.rows for key in row}


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


def test_options_that_the_answers_do_not_name_are_shown_and_not_scored(tmp_path, monkeypatch):
    rows = [{"question": f"Why {n}?", "options": ["x", "y"], "answer": f"Since {n}"} for n in range(3)]
    benchmark = make_benchmark(tmp_path, monkeypatch, rows)
    assert scores(benchmark, ["Since 0", "Since 1", "x"]) == [1.0, 1.0, 0.0]
    assert next(iter(benchmark.get_items())).question == "Why 0?\n\nA. x\nB. y"
