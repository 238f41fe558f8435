from __future__ import annotations

import re

import pytest
from metrics_samples import HOSTILE, reported
from support.cpu_seconds import at_most

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

OTHER_LANGUAGES = {
    "es": """La respuesta correcta es la B.|La respuesta es B|La respuesta correcta es la opción B.|Respuesta: B
        |La alternativa correcta es la B|La opción correcta es: B|La respuesta es la letra B, porque es cierta
        |Elijo la opción B.|B es correcta|B es la respuesta correcta|Es la B.|Respuesta final: **B**
        |La opción correcta es la B)|La respuesta correcta sería la B|Por lo tanto, la respuesta es B.
        |La respuesta es: B|La correcta es la B|Mi respuesta es B|Opción B|La opción B es la correcta
        |Respuesta correcta: B) París|La respuesta es la opción (B).""",
    "fr": """La bonne réponse est la lettre B.|La réponse est B|La réponse correcte est la B.|Réponse : B
        |L'option correcte est la B|La bonne réponse est donc B|Je choisis la réponse B|B est correcte|C'est la B.
        |La bonne réponse est la proposition B, car A est fausse|La réponse est (B)
        |La réponse est : B|Ma réponse est B|La réponse correcte est l'option B|C'est la réponse B
        |Donc, la réponse est B.|La bonne option est B.|La réponse B est correcte
        |Il s'agit de la réponse B|La réponse est B) Paris|Réponse B""",
    "de": """Die Antwort lautet B.|Die richtige Antwort ist B|Die Antwort ist B, weil es stimmt|Antwort: B|Lösung: B
        |Antwort B ist richtig.|Option B ist korrekt|Ich wähle B|Die richtige Lösung ist Antwort B|Richtig ist B.
        |Die korrekte Antwort ist B.|Die Antwort ist: B|Die richtige Antwort lautet (B)|Antwort B
        |Meine Antwort ist B|Richtig ist Antwort B|Die richtige Option ist B|Daher ist die Antwort B.
        |Somit ist B richtig.|Die richtige Antwort ist Option B.|Die richtige Antwort ist B) Paris
        |Die Lösung ist B""",
    "pt": """A resposta correta é a alternativa B.|A resposta é B|A alternativa correta é a letra B|Resposta: B
        |A opção correta é a B.|A resposta correta é: B|B é a resposta correta|A letra B está correta|Escolho a B
        |A resposta certa é a B|Letra B|Alternativa B|A alternativa B é a correta|Gabarito: B
        |Portanto, a resposta é B|A resposta é a opção B|A resposta correta é (B)""",
    "it": """La risposta corretta è la B.|La risposta è B|La risposta giusta è la lettera B|Risposta: B
        |L'opzione corretta è la B|B è corretta|Scelgo la B|La risposta corretta è quindi B
        |La risposta esatta è B|La risposta corretta è l'opzione B|La risposta è: B|Opzione B
        |Quindi la risposta è B|La risposta corretta è B) Parigi""",
    "id": """Jawaban yang benar adalah B.|Jawabannya adalah B|Jawaban: B|Pilihan yang tepat adalah B|Saya memilih B
        |B adalah jawaban yang benar|Jawaban yang tepat adalah opsi B|Jawaban yang benar ialah huruf B
        |Jawabannya B|Jawabannya ialah B.|Jadi, jawabannya adalah B.|Jawaban yang tepat: B|Opsi B
        |Pilihan B adalah jawaban yang benar|Jadi jawabannya adalah (B)""",
    "tr": """Doğru cevap B şıkkıdır.|Doğru cevap: B|Cevap B'dir|Doğru yanıt B.|Cevap: B|Doğru cevap B
        |B şıkkı doğrudur|Doğru seçenek B.|B seçeneği doğru
        |Cevap B şıkkı|Doğru cevap B'dir.|Yanıt: B|Doğru cevap (B)|Doğru cevap B seçeneğidir|Cevabım B
        |Bu nedenle cevap B'dir|B şıkkı|Doğru cevap B) Paris|Cevap B olur""",
    "vi": """Đáp án đúng là B.|Đáp án: B|Câu trả lời là B|Câu trả lời đúng là phương án B|Chọn B|Chọn đáp án B.
        |Đáp án là câu B|B là đáp án đúng|Phương án đúng là B|Đáp án B.
        |Đáp án chính xác là B|Vậy đáp án là B|Câu trả lời đúng: B|Tôi chọn B|Đáp án B là đúng
        |Vậy, đáp án đúng là: B|Đáp án đúng là B. Paris""",
    "ru": """Ответ: В|Ответ: B|Правильный ответ — B.|Правильный ответ: вариант B|Верный вариант - B|Я выбираю B
        |Ответ B|Правильный ответ — под буквой B|B — правильный ответ|B верно|Ответ: **В**
        |Правильный ответ: В|Правильный ответ – В|Верный ответ: B|Ответ — B|Правильный вариант ответа: B
        |Правильным ответом является B|Мой ответ: B|Вариант B|Ответ: вариант B|Правильный ответ B
        |Правильный ответ: В) Париж|Правильный ответ - это B|Таким образом, ответ B.""",
    "zh": """正确选项为B|答案应该是B|答案为选项B|应选B|选择B|B选项正确|选项B是正确的|正确的是B|故答案选B|B是正确答案
        |正確答案是B|答案：（B）
        |答案是选项B|正确答案：B|我选B|因此，答案是B|应该选择B|正确的选项是B|B是正确的|答案是（B）
        |答案：B. 巴黎|答案是 B|所以选B""",
    "ja": """正解はBです。|答えはBです|答え：B|正しいのはBです|選択肢Bが正解です|Bが正解です|正しい答えはBです
        |正解は選択肢Bです
        |Bは正しい|回答：B
        |答えはBになります|正解はBとなります|正解は(B)です|正答はBです|答えは「B」です|Bを選びます
        |最も適切なのはBです|したがって、答えはB|正解：B|正解は B です|答えは、Bです""",
    "ko": """정답은 B입니다|정답: B|답은 B입니다.|정답은 B번입니다|B가 정답입니다|옳은 것은 B입니다
        |정답은 선택지 B입니다
        |B가 맞습니다|답: B
        |정답은 B이다|정답은 (B)입니다|따라서 정답은 B|B를 선택합니다|B번이 정답입니다
        |올바른 답은 B입니다|정답은 'B'입니다|정답 B""",
}

NOTHING_IN_OTHER_LANGUAGES = """
La respuesta no es B
La respuesta incorrecta es B
La respuesta correcta no es la B
La respuesta incorrecta: B
B no es correcta
La réponse n'est pas B
La réponse incorrecte est B
B est incorrecte
Die Antwort ist nicht B
Die falsche Antwort ist B
Antwort B ist nicht richtig
Ich wähle nicht B
A resposta não é B
A resposta errada é B
A opção correta é a melhor
A resposta é a seguinte
La risposta non è B
La risposta errata è la B
Jawabannya bukan B
Jawaban yang salah adalah B
B tidak benar
Cevap B değil
Cevap B değildir
B şıkkı doğru değil
Yanlış cevap B
Câu trả lời không phải là B
Đáp án sai là B
Đáp án B sai
Không chọn B
Ответ не B
Ответ: В этом случае ясно
С другой стороны, это так
Вариант B неверен
Я не выбираю B
B不正确
不適切なのはBです
Bを選びません
B를 선택하지 않습니다
Jawabannya B salah
Вариант B неправильный
Bは正解ではない
B는 정답이 아닙니다
B가 정답이 아닙니다
B가 맞지 않습니다
"""

CHOOSE_NOTHING = """
A dog is an animal.
I think so.
The answer is A dog
The answer is Bob
The answer is not B
The answer was
The wrong ones are P as in Paris
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


def test_the_letter_that_an_answer_chooses():
    for text in CHOOSE_B.strip().splitlines():
        assert chosen(text) == "B", text
        assert score("multiple_choice", "b", text) == 1, text
        assert score("multiple_choice", "(A)", text) == 0, text


PHRASES = [(language, text.strip()) for language, texts in OTHER_LANGUAGES.items() for text in texts.split("|")]


def test_common_phrases_of_other_languages_choose_a_letter():
    for language, text in PHRASES:
        assert chosen(text) == "B", (language, text)
        assert score("multiple_choice", "B", f"{text}\n") == 1, (language, text)
        assert chosen(re.sub(r"B|(?<!\w)В(?!\w)", "D", text)) == "D", (language, text)


def test_phrases_of_other_languages_that_say_no_choose_nothing():
    for text in NOTHING_IN_OTHER_LANGUAGES.strip().splitlines():
        assert chosen(text) is None, text


@pytest.mark.parametrize(("row", "prediction"), reported("multiple_choice"))
def test_rows_of_public_reports_are_scored_right(row, prediction):
    assert score("multiple_choice", row["answer"], prediction, choices=row["choices"]) == row["want"]


@pytest.mark.parametrize(
    "text",
    [
        "The value is $\\boxed{42}$.\n\nAnswer: B",
        "Answer: B\nas \\boxed{x = 3} shows",
        "\\boxed{3}\n\\boxed{B}\n\\boxed{4}",
        "\\boxed{3} and \\boxed{B}",
        "\\boxed{}\nB",
        "\\boxed{\\frac{1}{2}}\nThe answer is B.",
    ],
)
def test_a_box_without_a_letter_hides_no_answer(text):
    assert chosen(text) == "B"


def test_a_letter_that_is_named_comes_before_a_boxed_option():
    options = ["London", "Paris", "Rome"]
    assert score("multiple_choice", "B", "Answer: B, as \\boxed{Rome} is in Italy", choices=options) == 1
    assert score("multiple_choice", "C", "So it is \\boxed{Rome}", choices=options) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The answer is A. Wait, no, the answer is B.",
        "A. Wait, no, the answer is B",
        "The answer is A. Actually, B.",
        "The answer is A, or rather B.",
        "The answer is C. No, A. No: B.",
        "Answer: A - sorry, the answer is (B)",
        "I choose A. Hmm, I choose B",
        "The answer is B. Wait, is A wrong? It is.",
        "The answer is B, actually because A is wrong",
        "The answer is actually B",
        "La respuesta es A. Perdón, la respuesta es B.",
        "Die Antwort ist A. Nein, die Antwort ist B.",
        "La réponse est A. Non, la réponse est B.",
        "Ответ: A. Нет, ответ: B.",
        "答案是A。等等，不对，答案是B。",
        "正解はAです。いや、正解はBです。",
        "정답은 A입니다. 아니요, 정답은 B입니다.",
    ],
)
def test_the_last_correction_of_a_line_counts(text):
    assert chosen(text) == "B"


COLOURS = ["red", "green", "dark green", "yellow"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is yellow.", "D"),
        ("I think that it must be **yellow**, as the sun is.", "D"),
        ("D yellow", "D"),
        ("It is dark green.", "C"),
        ("It is green.", "B"),
        ("Red looks hot. The answer is yellow.", "D"),
        ("The answer is yellow. Red would be wrong.", "D"),
        ("It is red or yellow.", None),
        ("The answer is red or yellow.", None),
        ("It is not yellow.", None),
        ("It isn't yellow.", None),
        ("I do not know whether it is yellow", None),
        ("Not so fast. It is yellow.", "D"),
        ("It is yellowish.", None),
        ("The answer is B, not yellow", "B"),
        ("none of these", None),
    ],
)
def test_the_only_option_that_a_sentence_names_is_chosen(text, letter):
    result = measure(MetricSpec(name="multiple_choice", args={"choices": COLOURS}), "B", text, METRICS)
    assert result.details["chosen"] == letter


def test_a_number_is_named_as_a_whole_and_a_single_letter_never():
    assert score("multiple_choice", "C", "We add 2 and 2. The answer is 4.", choices=[1, 2, 4, 8]) == 1
    assert score("multiple_choice", "C", "It is 4.5 m", choices=[1, 2, 4, 8]) == 0
    assert score("multiple_choice", "B", "This is a sentence", choices=["y", "a", "b"]) == 0


def test_an_option_with_a_full_stop_is_named_in_a_sentence():
    options = ["St. Louis", "Au", "U.S."]
    assert score("multiple_choice", "A", "I think it is St. Louis, of course.", choices=options) == 1
    assert score("multiple_choice", "A", "It is not St. Louis.", choices=options) == 0
    assert score("multiple_choice", "A", "Not St. Louis? Sure. It is St. Louis.", choices=options) == 1
    assert score("multiple_choice", "B", "It must be Au", choices=options) == 1
    assert score("multiple_choice", "C", "That is the U.S. of course", choices=options) == 1


def test_options_of_a_ground_truth_are_not_looked_for_in_a_sentence():
    with pytest.raises(ValueError, match="expected a letter, the text of one option"):
        score("multiple_choice", "It is yellow", "D", choices=COLOURS)


def test_words_that_look_like_letters_and_two_letters_choose_nothing():
    for text in ["", *CHOOSE_NOTHING.strip().splitlines()]:
        assert chosen(text) is None, text


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


@pytest.mark.parametrize(
    "text",
    [
        "A ist falsch, die Antwort ist B.",
        "A es incorrecta; la respuesta es B",
        "Jawaban A salah. Jawaban yang benar adalah B",
        "Cevap A yanlış, doğru cevap B",
    ],
)
def test_a_wrong_answer_in_another_clause_does_not_hide_the_right_one(text):
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


def test_a_reply_that_restates_the_question_does_not_run_on():
    result = measure(
        MetricSpec(name="multiple_choice"), "B", "The answer: see below.\nQuestion: 2?\nAnswer: B", METRICS
    )
    assert (result.score, result.details) == (1, {"expected": "B", "chosen": "B"})


@pytest.mark.slow
def test_options_are_looked_for_in_long_replies_within_two_seconds():
    for kind, text in HOSTILE.items():
        options = [text[start : start + 20] + str(start) for start in range(13)] + [f"answer {n}" for n in range(13)]
        with at_most(2, kind):
            score("multiple_choice", "B", text, choices=options)
