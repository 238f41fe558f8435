"""`agentbench new dataset` on the shapes of well-known datasets writes descriptors that work at once."""

from __future__ import annotations

import json

import pytest
import yaml

from pytest_agentbench.cli import main
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.rows import read_benchmark_items, read_rows

LETTER = "Answer with the letter only."
CHOICE = {"name": "multiple_choice", "threshold": 1.0}
EXACT = {"name": "exact_match", "threshold": 1.0}
LONG = {"name": "f1_score", "threshold": 0.5}


def turns(*contents, roles=("system", "user", "assistant"), names=("role", "content")):
    return [dict(zip(names, turn, strict=True)) for turn in zip(roles, contents, strict=True)]


GSM8K = [
    {"question": "Janet sells 16 - 3 - 4 eggs at $2. How much is that?", "answer": "16 - 3 - 4 = <<9=9>>9\n#### 18"},
    {"question": "A robe takes 2 bolts and half that. How many?", "answer": "2/2=<<2/2=1>>1\n#### 3"},
    {"question": "He buys a house for $80,000. What is the profit?", "answer": "It is $70,000\n#### 70,000"},
]
MMLU = [
    {"question": "Find the degree of Q(sqrt(2)).", "subject": "algebra", "choices": ["0", "4", "2", "6"], "answer": 1},
    {"question": "Find the index of <p>.", "subject": "algebra", "choices": ["8", "2", "24", "120"], "answer": 2},
    {"question": "Where is the gland?", "subject": "anatomy", "choices": ["Head", "Leg", "Arm", "Back"], "answer": 0},
    {
        "question": "Where were cults?",
        "subject": "anatomy",
        "choices": ["Rome", "Sparta", "Athens", "Argos"],
        "answer": 3,
    },
]
SQUAD = [
    {
        "id": f"56be{n}",
        "title": ("Normans", "Denver")[n % 2],
        "context": f"The Normans gave their name to Normandy, region {n}.",
        "question": f"Who gave their name to region {n}?",
        "answers": {"text": ["The Normans", "Normans"], "answer_start": [0, 4]},
    }
    for n in range(4)
]
HOTPOT = [
    {
        "_id": f"5a8{n}",
        "answer": ("yes", "Animorphs")[n % 2],
        "question": f"Were the two of the same nationality? {n}",
        "supporting_facts": [["Ed Wood", 0]],
        "context": [["Ed Wood", ["A film.", "It is."]]],
        "type": ("comparison", "bridge")[n % 2],
    }
    for n in range(4)
]
ARC = [
    {
        "id": f"Mercury_{n}",
        "question": f"Which is the most likely effect of rotation {n}?",
        "choices": {"text": ["dense", "long", "short"], "label": ["A", "B", "C"]},
        "answerKey": "ABC"[n % 3],
    }
    for n in range(4)
]
MIXED = [{"question": f"Which {n}?", "choices": ["gold", "air"], "answer": answer} for n, answer in enumerate("A1B0")]
TRUTHFUL = [
    {
        "type": "Adversarial",
        "question": f"What happens if you eat {n} seeds?",
        "best_answer": f"The {n} seeds pass through your digestive system",
        "correct_answers": ["Nothing happens", "They pass"],
        "incorrect_answers": ["They grow"],
    }
    for n in range(3)
]
HUMAN_EVAL = [
    {
        "task_id": f"HumanEval/{n}",
        "prompt": f"def f{n}(x: int) -> int:\n    '''Adds {n}.'''\n",
        "canonical_solution": f"    return x + {n}\n",
        "test": "def check(candidate): ...",
        "entry_point": f"f{n}",
    }
    for n in range(3)
]
MBPP = [
    {"task_id": 11 + n, "text": f"Write a function to add {n}.", "code": "def f(x): ...", "test_list": ["assert f(1)"]}
    for n in range(3)
]
DROP = [
    {
        "section_id": f"nfl_{n // 2}",
        "query_id": f"f37e{n}",
        "passage": f"The Raiders stayed at home for week {n}.",
        "question": f"Who stayed at home for week {n}?",
        "answers_spans": {"spans": ["Raiders", "the Raiders"], "types": ["span", "span"]},
    }
    for n in range(4)
]
NQ = [
    {"question": "who got the first nobel prize in physics", "answer": ["Wilhelm Conrad Röntgen"]},
    {"question": "which mode is used for short wave broadcast", "answer": ["Olivia", "MFSK"]},
]
BOOLQ = [
    {"question": f"is tax {n} the same", "answer": bool(n % 2), "passage": f"Tax {n} is a levy.", "title": f"Tax {n}"}
    for n in range(4)
]
ALPACA = [
    {"instruction": "Give three tips.", "input": "", "output": "Eat well, sleep well and exercise often every day."},
    {"instruction": "Name the primary colors.", "input": "", "output": "The primary colors are red, blue, yellow."},
    {"instruction": "Find the odd one out", "input": "Twitter, Telegram", "output": "Telegram"},
]
CHAT = [{"id": f"c{n}", "messages": turns("You are helpful.", f"What is {n} + {n}?", f"{2 * n}")} for n in range(1, 4)]
SHARE_GPT = [
    {
        "id": f"x{n}",
        "conversations": turns(
            f"Who wrote book {n}?", "Somebody.", "Really?", "Yes.", roles=("human", "gpt") * 2, names=("from", "value")
        ),
    }
    for n in range(3)
]
EVALS = [
    {"input": turns("Be brief.", f"Capital of country {n}?", roles=("system", "user")), "ideal": f"City {n}"}
    for n in range(3)
]
CMMLU = [
    {"Question": f"下列表述中，不正确的是{n}", **{each: f"原则{each}" for each in "ABCD"}, "Answer": "ABCD"[n % 4]}
    for n in range(4)
]
CEVAL = [
    {
        "id": n,
        "question": f"不属于操作系统功能的是____{n}",
        **{each: f"{each}管理" for each in "ABCD"},
        "answer": "DABC"[n % 4],
        "explanation": ("", "考查一", "", "考查二")[n % 4],
    }
    for n in range(4)
]
MED_QA = [
    {
        "question": f"Which drug treats disease {n}?",
        "answer": ("Aspirin", "Insulin")[n % 2],
        "options": {"A": "Aspirin", "B": "Insulin"},
        "answer_idx": "AB"[n % 2],
    }
    for n in range(4)
]
HELLASWAG = [
    {"ind": n, "ctx": f"A man is on roof {n}. he", "endings": ["skis.", "falls.", "works."], "label": f"{n % 3}"}
    for n in range(4)
]
LETTERED = "A. {{ A }}\nB. {{ B }}\nC. {{ C }}\nD. {{ D }}"


SHAPES = {
    "gsm8k": (GSM8K, {}, None, [{"name": "numeric_match", "threshold": 1.0}], []),
    "mmlu": (
        MMLU,
        {},
        f"{{{{ question }}}}\n\n{{{{ choices }}}}\n\n{LETTER}",
        [CHOICE | {"args": {"choices": "{{ choices }}"}}],
        ["subject"],
    ),
    "squad": (
        SQUAD,
        {"answer": {"any_of": "answers.text"}, "id": "id"},
        "{{ context }}\n\n{{ question }}",
        [EXACT],
        ["title"],
    ),
    "hotpotqa": (HOTPOT, {"id": "_id"}, None, [EXACT], ["type"]),
    "arc": (
        ARC,
        {"answer": "answerKey", "id": "id"},
        f"{{{{ question }}}}\n\n{{{{ choices.text }}}}\n\n{LETTER}",
        [CHOICE | {"args": {"choices": "{{ choices.text }}"}}],
        [],
    ),
    "truthfulqa": (TRUTHFUL, {"answer": "best_answer"}, None, [LONG], []),
    "humaneval": (HUMAN_EVAL, {"question": "prompt", "answer": None, "id": "task_id"}, None, None, []),
    "mbpp": (MBPP, {"question": "text", "answer": None, "id": "task_id"}, None, None, []),
    "drop": (
        DROP,
        {"answer": {"any_of": "answers_spans.spans"}, "id": "query_id"},
        "{{ passage }}\n\n{{ question }}",
        [EXACT],
        [],
    ),
    "nq": (NQ, {"answer": {"any_of": "answer"}}, None, [EXACT], []),
    "boolq": (BOOLQ, {}, "{{ passage }}\n\n{{ question }}\n\nAnswer with True or False only.", [EXACT], []),
    "alpaca": (
        ALPACA,
        {"question": "instruction", "answer": "output"},
        "{{ question }}\n\n{{ input }}",
        [LONG],
        [],
    ),
    "chat": (
        CHAT,
        {"question": "messages.1.content", "answer": "messages.2.content", "id": "id"},
        "{{ messages.0.content }}\n\n{{ question }}",
        [{"name": "numeric_match", "threshold": 1.0}],
        [],
    ),
    "sharegpt": (
        SHARE_GPT,
        {"question": "conversations.0.value", "answer": "conversations.1.value", "id": "id"},
        None,
        [EXACT],
        [],
    ),
    "evals": (
        EVALS,
        {"question": "input.1.content", "answer": "ideal"},
        "{{ input.0.content }}\n\n{{ question }}",
        [EXACT],
        [],
    ),
    "cmmlu": (
        CMMLU,
        {"question": "Question", "answer": "Answer"},
        f"{{{{ question }}}}\n\n{LETTERED}\n\n{LETTER}",
        [CHOICE],
        [],
    ),
    "ceval": (CEVAL, {"id": "id"}, f"{{{{ question }}}}\n\n{LETTERED}\n\n{LETTER}", [CHOICE], []),
    "medqa": (
        MED_QA,
        {"answer": "answer_idx"},
        f"{{{{ question }}}}\n\nA. {{{{ options.A }}}}\nB. {{{{ options.B }}}}\n\n{LETTER}",
        [CHOICE],
        [],
    ),
    "hellaswag": (
        HELLASWAG,
        {"question": "ctx", "answer": "label"},
        f"{{{{ question }}}}\n\n{{{{ endings }}}}\n\n{LETTER}",
        [CHOICE | {"args": {"choices": "{{ endings }}"}}],
        [],
    ),
}


@pytest.mark.parametrize(("rows", "fields", "prompt", "metrics", "tags"), SHAPES.values(), ids=list(SHAPES))
def test_well_known_shapes(tmp_path, monkeypatch, capsys, rows, fields, prompt, metrics, tags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    found = yaml.safe_load((tmp_path / "dataset.yaml").read_text(encoding="utf-8"))
    wanted = {"question": "question", "answer": "answer"} | fields
    assert found["fields"] == {name: field for name, field in wanted.items() if field is not None}
    assert found.get("prompt") == prompt
    assert found.get("metrics") == metrics
    assert found.get("tags_from", []) == tags
    capsys.readouterr()
    errors = 0 if fields.get("answer", "answer") else 1  # without an answer only a judge can decide
    assert main(["validate", "."]) == errors
    said = f"1 file checked, {len(rows)} cases: {errors} error{'s' * (1 - errors)}, 0 warnings\n"
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.parametrize("rows", [ARC, BOOLQ, CHAT, CMMLU, CEVAL, MED_QA, GSM8K, DROP, SQUAD])
def test_the_right_answers_are_right(tmp_path, monkeypatch, rows):
    """The metrics of the descriptor score the rows' own answers with 1."""
    from pytest_agentbench import create_benchmark

    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    benchmark = create_benchmark("dataset.yaml")
    benchmark.evaluate([item.answer for item in benchmark.get_items()])
    assert benchmark.get_summary()["average_score"] == 1.0
    assert benchmark.get_summary()["failed_items"] == 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (MIXED, "answer     answer (not sure: some are numbers, others letters; multiple_choice"),
        (HOTPOT, "not shown  context: it is no text"),
        (SHARE_GPT, "(not sure: the conversation goes on, only its first question is asked)"),
        (NQ, "answer     answer (any of these is right)"),
    ],
    ids=["mixed", "hotpotqa", "sharegpt", "nq"],
)
def test_doubts_of_an_expert_are_reported(tmp_path, monkeypatch, capsys, rows, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("name", ["context", "passage"])
def test_a_context_of_another_kind_is_named_in_the_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"Why {n}?", "answer": "So.", name: [["T", ["s"]]]} for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    assert f"# The agent is not shown {name}, which is no text" in (tmp_path / "dataset.yaml").read_text()
    dataset = open_dataset(tmp_path / "dataset.yaml", ConfigRoot(tmp_path))
    assert all(isinstance(row, Row) for row in read_rows(dataset))
    assert next(iter(read_benchmark_items(dataset))).question == "Why 0?"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "3 + 4?", "a": 3, "b": 4, "answer": "7"},  # operands
        {"question": "Grade?", "A": "ten", "B": "eight", "answer": "Paris"},  # the answer is none of the letters
        {"question": "Which?", "A": "x", "C": "y", "answer": "A"},  # B is missing
    ],
)
def test_letters_that_are_no_choices(tmp_path, monkeypatch, row):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for _ in range(3)))
    assert main(["new", "dataset", "rows.jsonl"]) == 0
    found = yaml.safe_load((tmp_path / "dataset.yaml").read_text())
    assert "prompt" not in found
    assert found["metrics"][0]["name"] != "multiple_choice"
