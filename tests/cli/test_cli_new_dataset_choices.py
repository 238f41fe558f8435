"""`agentbench new dataset` on the shapes of multiple-choice sets: right replies score 1, wrong ones less.

All rows are our own; their fields are the sets' fields.
"""

from __future__ import annotations

import pytest
from new_dataset_support import Shape, make_benchmark, require_all_fields, require_scores, scores

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


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_right_replies_are_right_and_wrong_ones_are_wrong(tmp_path, monkeypatch, capsys, shape):
    require_scores(tmp_path, monkeypatch, capsys, shape)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_each_field_is_used_or_named(shape):
    require_all_fields(shape)


def test_options_that_the_answers_do_not_name_are_shown_and_not_scored(tmp_path, monkeypatch):
    rows = [{"question": f"Why {n}?", "options": ["x", "y"], "answer": f"Since {n}"} for n in range(3)]
    benchmark = make_benchmark(tmp_path, monkeypatch, rows)
    assert scores(benchmark, ["Since 0", "Since 1", "x"]) == [1.0, 1.0, 0.0]
    assert next(iter(benchmark.get_items())).question == "Why 0?\n\nA. x\nB. y"
