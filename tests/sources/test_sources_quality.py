from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_seconds import at_most

from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.quality import encoding_damage, find_doubts
from pytest_agentbench.sources.rows import read_rows


@pytest.fixture
def doubts(tmp_path):
    """Doubts about rows of (question, answer, other fields), one a line, and what a descriptor says of them."""

    def find(*rows, **descriptor):
        data = tmp_path / "data.jsonl"
        lines = [{"question": row[0], "answer": row[1], **(row[2] if len(row) > 2 else {})} for row in rows]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        if descriptor:
            path = tmp_path / "dataset.yaml"
            path.write_text(yaml.safe_dump({"schema_version": 1, "files": ["data.jsonl"], **descriptor}))
        return [(place.removeprefix(f"{tmp_path}/"), text) for place, text in doubts_of(data, tmp_path)]

    return find


def doubts_of(path, root):
    dataset = open_dataset(path, ConfigRoot(root))
    rows = list(read_rows(dataset))
    assert all(isinstance(row, Row) for row in rows), rows
    return list(find_doubts(dataset, rows))


def at(line):
    return f"data.jsonl:{line}:1"


@pytest.mark.parametrize("answer", ["-", " ", "?", "...", "n/a", "N/A", "TODO", " tbd ", "nan", "。", "\u200b", '""'])
def test_a_placeholder_answer_is_doubtful(doubts, answer):
    place, text = doubts(("How many?", "4"), ("Which one?", answer))[0]
    assert place == at(2)
    assert text.startswith("answer: found ")
    assert text.endswith("which looks like no answer; write the right one or remove the row")


@pytest.mark.parametrize(
    "answer", ["0", "none", "None", "no", "+", "]", ",", "<=", "π", "∞", "👍", "A", "NA", "北京", ""]
)
def test_short_answers_may_be_real(doubts, answer):
    assert doubts(("Which one?", answer)) == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is the capital of France? Answer: Paris", "Paris"),
        ("Capital of France?  (the answer\nis PARIS)", "Paris"),
        ("2 + 2 = ? Solution = 4.", "4"),
        ("法国的首都是哪里？答案：巴黎", "巴黎"),
        ("The answer is 'Mexico City'. What is the capital of Mexico?", "Mexico City"),
    ],
)
def test_a_question_that_tells_its_answer_is_doubtful(doubts, question, answer):
    [(place, text)] = doubts((question, answer))
    assert place == at(1)
    assert text.startswith("question: found ")
    assert text.endswith(", which gives away the answer; take it out of the question")
    assert doubts((question, answer), metrics=[{"name": "multiple_choice", "threshold": 1.0}]) == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Paris is the capital of France. What is the capital of France?", "Paris"),
        ("What is the capital of\nNew  York State?", "new york state"),
        ("John gave Mary a book. Who received the book?", "Mary"),
        ("北京是中国的首都。中国的首都是哪里？", "北京"),
    ],
)
def test_an_answer_contained_in_its_question_is_doubtful(doubts, question, answer):
    [(place, text)] = doubts(("Why?", "Because."), (question, answer))
    assert place == at(2)
    assert text == f"answer: found {answer!r}, which is also in the question; it can be copied from there"
    assert doubts((question, answer, {"choices": [answer, "another"]})) == []


CLEAN = [
    # the question offers its answers, or solves others before
    ("Is the trophy or the suitcase too big?", "The trophy"),
    ("Sentence: The movie was great. Sentiment (positive/negative)?", "positive"),
    ("Give the answer: positive, negative, neutral", "positive"),
    ("Is the right answer: yes, no, maybe?", "yes"),
    ("Q: 1 + 1? Answer: 2\n\nQ: 2 + 0? Answer:", "2"),
    ("Which is larger?\nA. Mars\nB. Jupiter", "Jupiter"),
    # part of a word, or nothing but a sign
    ("What is the value of x if x + 12 = 24?", "12"),
    ("Who wrote Parisian Nights?", "Paris"),
    # symbols
    ("Complete the sequence: ( [ {", "} ] )"),
    ("What symbol multiplies in Python?", "*"),
    ("What operator means 'not equal'?", "!="),
    ("Which sign separates fields of CSV?", ","),
    ("Which one is the empty set?", "∅"),
    # markup and code
    ("Which HTML entity shows a less-than sign?", "&lt;"),
    ("What does the entity &amp; stand for in HTML?", "An ampersand"),
    ("What does `if (a &lt; b)` say?", "It compares."),
    ("Which tag is <b>Q&amp;A</b> in?", "b"),
    ("Which letter is the JSON escape \\u00e9?", "é"),
    ("Write the euro sign as a Python literal.", "'\\u20ac'"),
    ("What does [\\u4e00-\\u9fff] match?", "Han characters"),
    ("Page 1.\x0cPage 2. How many pages?", "two"),
    # other writing
    ("Em que cidade fica o aeroporto de Congonhas? (SÃO PAULO)", "São Paulo, SP"),
    ("À la carte: Œufs à la neige?", "dessert"),
    ("Comment dit-on « l’été » en anglais ?", "summer"),
    ("¿Cuál es la capital de España?", "Madrid"),
    ("Temperature 20 °C in °F? ½ + ¼?", "68 ± 1"),
    ("ما هي عاصمة مصر؟", "القاهرة"),
    ("क्या दिल्ली भारत की राजधानी है?", "हाँ"),
    ("서울은 어느 나라의 수도입니까?", "대한민국"),
]


@pytest.mark.parametrize("row", CLEAN, ids=[question[:20] for question, _ in CLEAN])
def test_nothing_is_said_of_clean_rows(doubts, row):
    assert doubts(row) == []


@pytest.mark.parametrize(
    "fields",
    [
        ({"A": "red", "B": "blue"}, {"A": "one", "B": "two"}),
        ({"input": "a cat"}, {"input": "a dog"}),
        ({"premise": "He sleeps."}, {"premise": "He runs."}),
        ({"image_id": 1}, {"image_id": 2}),
        ({"endings": ["a", "b"]}, {"endings": ["c", "d"]}),
        ({"Passage": "One."}, {"Passage": "Two."}),
    ],
)
def test_the_same_question_about_something_else_is_another_one(doubts, fields):
    assert doubts(*(("Which one of these is right?", f"It is {n}.", more) for n, more in enumerate(fields))) == []
    labels = ({"level": 1, "Task ID": "a", "source": "x"}, {"level": 2, "Task ID": "b", "source": "y"})
    assert len(doubts(*(("Which one of these is right?", "This.", fields[0] | each) for each in labels))) == 1


def test_a_question_that_comes_again_is_doubtful(doubts):
    rows = [
        ("2 + 2?", "4"),
        ("2  +  2?", "4"),
        ("2 + 2?", "5"),
        ("2 - 2?", "0"),
        ("ASCII code of 'A'?", "65"),
        ("ASCII code of 'a'?", "97"),
        ("What is it about?", "cats", {"document": "a.pdf"}),
        ("What is it about?", "dogs", {"document": "b.pdf"}),
        ("Which?", "A", {"choices": ["x", "y"]}),
        ("Which?", "B", {"choices": ["y", "z"]}),
        ("Which?", "A", {"choices": ["x", "y"], "difficulty": "hard"}),
    ]
    assert doubts(*rows) == [
        (at(2), "question: found '2 + 2?' again, first on line 1; it counts twice, remove one"),
        (at(3), "question: found '2 + 2?' again, but the answer on line 1 is not '5'; keep the right one"),
        (at(11), "question: found 'Which?' again, first on line 9; it counts twice, remove one"),
    ]


def test_a_question_of_another_file_is_named_with_it(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": name, "question": "Why?", "answer": "because"}))
    (tmp_path / "dataset.yaml").write_text("schema_version: 1\nfiles: ['*.jsonl']\n")
    [(place, text)] = doubts_of(tmp_path / "dataset.yaml", tmp_path)
    assert place == f"{tmp_path}/b.jsonl:1:1"
    assert f"first on {tmp_path}/a.jsonl:1:1" in text


def test_an_example_that_solves_a_row_is_doubtful(doubts):
    rows = [("What is the capital of France?", "Paris"), ("What is 2 + 2?", "4"), ("What is 2 - 2?", "0")]
    questions = ["what is the  capital of FRANCE", "What is 2+2?", "What is 2 - 2 ?"]
    found = doubts(*rows, few_shot={"examples": [{"question": each, "answer": "x"} for each in questions]})
    assert [place for place, _ in found] == [at(1), at(3)]
    assert found[0][1] == (
        "question: found 'What is the capital of France?', which few_shot shows with its answer to the other rows; "
        "take the examples from another split, or remove the row"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a caf\ufffd", "in which a character was lost"),
        ("锟斤拷", "锟斤拷"),
        ("cafÃ©", "'café' in UTF-8, read as Windows-1252"),
        ("itâ€™s", "'it’s' in UTF-8, read as Windows-1252"),
        ("itâ€\x9d!", "'it”!' in UTF-8, read as Windows-1252"),
        ("数据: cafÃ©", "UTF-8 that was read as Windows-1252"),
        ("中文".encode().decode("latin-1"), "'中文' in UTF-8, read as Windows-1252"),
        ("Это тест".encode().decode("latin-1"), "'Это тест' in UTF-8, read as Windows-1252"),
        ("中文测试".encode().decode("gb18030"), "'中文测试' in UTF-8, read as GBK"),
        ("caf\\u00e9", "escaped twice"),
        ("R&amp;D", "HTML entity"),
        ("it&#39;s", "HTML entity"),
        ("\ufeffname", "byte order mark"),
        ("a\x00b", "control character"),
        ("a\x1b[31mb", "control character"),
    ],
)
def test_damaged_text_is_doubtful(doubts, text, what):
    damage = encoding_damage(text)
    assert damage is not None
    assert (what in damage[1]) or text.startswith(what)
    [(_, told)] = doubts(("What?", "it", {"passage": [text]}))
    assert told.startswith("passage: found ")
    assert told.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "café « à » – “quoted” … €5 ½ Ünïcödé",
        "Das macht Spaß“, sagte er",
        "„Spaß“",
        "VOILÀ»",
        "北京是中国的首都",
        "東京タワーの高さは？",
        "Это тест",
        "AT&T; R&D &unknown; a&b",
        "C:\\users and \\underline{x}",
        "tab\tline\nreturn\r",
        "👩‍🚀 ∑ → ∞",
        "\\frac{1}{2}",
    ],
)
def test_sound_text_is_not(doubts, text):
    assert encoding_damage(text) is None
    assert doubts(("What is it?", text)) == []


@given(st.text(max_size=60))
def test_any_text_can_be_looked_at(text):
    damage = encoding_damage(text)
    assert damage is None or 0 <= damage[0] < len(text)


@pytest.mark.slow
@given(st.text(st.characters(codec="latin-1", categories=["L", "P", "S"]), min_size=1, max_size=20))
def test_text_decoded_with_the_wrong_encoding_is_noticed(text):
    misread = text.encode().decode("latin-1")
    common = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿ"
    if any(sign in common for sign in text):
        assert encoding_damage(misread) is not None


def test_twenty_of_a_kind_are_listed_and_the_rest_are_counted(doubts):
    found = doubts(*[(f"Question {number}?", "n/a") for number in range(1, 36)], ("2?", "2\ufffd"))
    assert [place for place, _ in found[:20]] == [at(line) for line in range(1, 21)]
    assert found[20:] == [
        (at(36), "answer: found '2\ufffd', in which a character was lost; convert the source again as UTF-8"),
        (at(21), "15 more near-empty answers from here on"),
    ]


def test_examples_of_a_file_that_are_shown_are_looked_for(doubts, tmp_path):
    shots = [{"question": f"Shot {n}?", "answer": "x"} for n in range(9)]
    (tmp_path / "shots.json").write_text(json.dumps(shots))
    rows = [(f"shot {n}", "x") for n in range(9)]
    found = doubts(*rows, few_shot={"file": "shots.json", "count": 3})
    assert [place for place, _ in found] == [at(1), at(2), at(3)]


def test_fields_have_the_names_of_items_where_a_descriptor_maps_them(doubts):
    found = doubts(("unused", "tbd", {"problem": "R&amp;D?"}), fields={"question": "problem"})
    assert [text.partition(":")[0] for _, text in found] == ["answer", "question"]


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_a_few_seconds(doubts, tmp_path):
    assert doubts(*((f"What is the value of number {n}, plus one?", str(n + 1)) for n in range(100_000))) == []
    dataset = open_dataset(tmp_path / "data.jsonl", ConfigRoot(tmp_path))
    rows = list(read_rows(dataset))
    with at_most(5):
        assert list(find_doubts(dataset, rows)) == []
