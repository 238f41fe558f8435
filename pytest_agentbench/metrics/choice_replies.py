"""Read which letter of several options a reply chooses, in the languages that replies come in."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from pytest_agentbench.metrics.passages import FONT, answer_sentences, folded, normal
from pytest_agentbench.metrics.text import contains_answer

ALPHABET = string.ascii_uppercase

_MARKUP = re.compile(r"[*`$]+|\\[()\[\],;! ]|(?<!\w)_+|_+(?!\w)")
_BOX = re.compile(r"\\f?box(?:ed)?\s?\{([^{}\\]*)\}")
# Letters of a Cyrillic keyboard that look like Latin ones; "В этом" and "С другой" begin sentences.
_LOOKALIKE = re.compile(r"(?<!\w)[АВСЕНКМОРТХ](?!\w)(?! [а-яё])")
_LATIN = str.maketrans("АВСЕНКМОРТХ", "ABCEHKMOPTX")

_OPEN, _CLOSE = r"[(\[{\"'“‘「【]\s?", r"\s?[)\]}\"'”’」】]"
_WORDS_AFTER = (
    r"(?:(?:because|since|as|which|that|due|given|based|with|for|from|and|or"
    r"|porque|pues|parce|car|weil|denn|perché|poiché|karena|çünkü|vì|потому|так)\b|şık|seçene)"
)
# A letter in brackets; or one that a statement ends with; or one that is no English word, as A and I are.
_CHOICE = re.compile(
    r"(?:option\s|choice\s|letter\s|选项\s?|選項\s?|選択肢\s?|선택지\s?|보기\s?)?"
    rf"(?:{_OPEN}(?P<framed>[a-z]){_CLOSE}"
    rf"|(?P<closed>[a-z])(?=\s*(?:$|[.,:;!?)\]}}<\"”」】…—/&。、]|-\s|[^\W\x00-\u024f])|\s{_WORDS_AFTER}|['’][dt][iıuü]r\b)"
    r"|(?P<bare>(?-i:[B-HJ-Z]))(?!['’\w+#=-]))",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\s?(?:,|/|、|&|or\b|and\b|和|或)\s?(?=[a-z\W])", re.IGNORECASE)
_FILLER = r"(?:\s?(?:therefore|thus|clearly|definitely|probably|most|likely|actually|really|the|answer|indeed)\b)*\s?"
# A sentence that ends with a letter: text before the letter counts only then.
_AT_END = rf"(?=(?:(?:option|choice)\s)?(?:{_OPEN})?(?-i:[A-Z])(?:{_CLOSE})?(?:\s?(?:$|[.,;!。])|\s{_WORDS_AFTER}))"

# Other languages. Negations are never skipped, and an article is not a letter: "é a B", but not "é A".
_ANSWER_WORD = (
    r"(?:respuesta|opción|alternativa|réponse|proposition|option|choix|antwort|lösung|antwortoption|resposta|opção"
    r"|risposta|opzione|jawaban(?:nya)?|pilihan|opsi|cevap|yanıt|seçenek|đáp án|câu trả lời|phương án|lựa chọn"
    r"|ответ(?:ом)?|вариант(?:ом)?)"
)
_NO = r"(?:no|non|nicht|kein\w*|não|bukan|değil|không|не|pas|ne)\b"
_NO_AFTER = r"(?![^.\n]{0,20}(?:değil|yanlış|sai\b|salah|невер|неправ))"
# Before the answer in its clause: "la respuesta incorrecta es B".
_WRONG = re.compile(
    r"\b(?:incorrect\w*|equivocad\w+|fauss\w*|mauvais\w*|falsch\w*|errad\w+|incorret\w+|errat\w+|sbagliat\w+|salah|yanlış"
    r"|sai|неверн\w*|неправильн\w*)\b[^,;.!?]*\Z",
    re.IGNORECASE,
)
_CLAUSE = 50
"""Characters before a letter that belong to its clause, unless a mark ends that."""

_IS = r"(?:\b(?:es|est|sería|serait|ist|wäre|lautet|é|seria|è|sarebbe|adalah|ialah|là|это|является)\b|[:=]|\s[-–—]\s)"
_BEFORE_LETTER = (
    r"(?:\s?(?:la|el|le|il|l['’]|(?-i:a|o)|die|der|das|lettre|letra|lettera|buchstabe|option|opción|opção|opzione"
    r"|alternativ[ae]|respuesta|réponse|risposta|resposta|antwort|pilihan|opsi|huruf|jawaban|phương án|đáp án|câu"
    r"|вариант|буква|ответ|proposition|под буквой|это|donc|also|quindi|portanto)(?=\s|[(\[\"'«]|(?<=['’])))*\s?"
)
_CUES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:answer|choice|option|selection|statement)[\"'”]?(?:(?!not\b|n't)[^:=\n]){0,60}?"
        r"(?:\b(?:is|be|was)\b|[:=]|\s-\s)\s?[:=]?" + _FILLER,
        r"(?<!not )(?<!n't )(?<!never )\b(?:choose|chose|select|selected|pick|picked|go with|opt for)\s" + _FILLER,
        r"<\s?(?:final_?)?answer\s?>\s?",
        r"(?:答案|选项|選項|正解|正答|答え|回答|解答)[^:不\n]{0,12}?(?:是|为|為|选|は|:)[、,]?\s?(?:选(?!项)择?)?\s?",
        r"正确的?(?:应该|应)?(?:是|为|:)\s?|(?<!不)(?:正しい|適切な|適当な)(?:の|もの|選択肢|答え)は\s?",
        r"(?<![不没别別勿])[选選](?![项項])[择擇]?\s?:?\s?",
        r"정?답(?:은|는)?\s?:?\s?|(?:옳은|맞는|올바른)\s?(?:것|선택지|보기)은\s?",
        r"(?:उत्तर|जवाब|विकल्प)\s?:?\s?",
        rf"\b(?:it\sis|it['’]s|so|hence|thus|therefore|say),?\s{_AT_END}",
    )
)
_CUES_ELSEWHERE = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_ANSWER_WORD}\b(?:(?!\b{_NO})[^:=.\n]){{0,40}}?{_IS}{_BEFORE_LETTER}",
        # Turkish has no word for "is"; Vietnamese and Russian leave it out.
        rf"\b(?:cevap|cevabım|yanıt|seçenek|đáp án|jawabannya|ответ)\s{_NO_AFTER}(?:{_AT_END}|(?=(?-i:[A-Z])\)))",
        r"\b(?:cevap|yanıt)\s(?=(?-i:[A-Z])(?:\s(?:şıkkı|seçeneği|olur|olmalı)|['’][dt][iıuü]r))" + _NO_AFTER,
        r"(?<!no )(?<!ne )(?<!nicht )(?<!não )(?<!non )(?<!tidak )(?<!không )(?<!не )"
        r"\b(?:elijo|escojo|selecciono|je choisis|s['’]agit de|wähle|escolho|seleciono|scelgo|memilih|pilih|chọn"
        r"|выбираю|выберу)\s" + _BEFORE_LETTER,
        rf"(?:(?<!no\s)(?<!non\s)(?<!não\s)(?<!n['’])\b(?:es|est|ist|é|è)|هي|هو)\s{_BEFORE_LETTER}{_AT_END}",
    )
)
# Any label, "Réponse : C", except words for what the answer is not.
_LABEL = re.compile(
    rf"(?<!wrong)(?<!incorrect)(?<!false)(?<!eliminated)(?<!out)(?<!not)\s?:\s?{_AT_END}", re.IGNORECASE
)
_PRAISED = re.compile(
    r"(?:^|(?<=[\s(\[\"'])|(?<=[^\W\x00-\u024f]))(?P<choice>[A-Z])[)\]\"']?"
    r"(?::\s?(?:correct|right)\b|(?:选?[项項])?[是为]?正确|[がは](?:正解|正しい|正答|答え)(?!では?な|じゃな)|を選(?:び(?!ませ)|択し(?!ませ)|ぶ)|[을를]\s?(?:선택|고르)(?!하지)"
    r"|(?:번|가|이|번이)?\s?(?:정답|맞[는습아]|옳[은습])(?!이?\s?아|지\s않)"
    r"|\sis\s(?:the\s)?(?:(?:most|only|clearly|definitely)\s)?(?:correct|right|best|answer)\b"
    r"|\s(?:es|est|ist|é|está|è)\s(?:(?:la|a|die|il|le|o)\s)?(?:(?:respuesta|réponse|risposta|resposta|opción|option)\s)?"
    r"(?:correct[ao]|correcte|bonne|richtig\w{0,2}|korrekt\w{0,2}|corret[ao]|corrett[ao]|giust[ao])\b"
    r"|\s(?:richtig|korrekt)\b"
    r"|\s(?:adalah\s)?(?:jawaban\s(?:yang\s)?)?(?:benar|tepat)\b"
    r"|\s(?:(?:şıkkı|seçeneği)\s)?doğru(?!\w*\sdeğil)"
    r"|\slà\s(?:(?:đáp án|câu trả lời|phương án)\s)?(?:đúng|chính xác)"
    r"|\s(?:[-–—]\s|это\s|является\s)?(?:верн|правильн)\w{1,4}\b)"
)
_ALONE = re.compile(
    r"(?:\d{1,3}[.):]\s)?(?:(?:(?:final|correct|best)\s)?(?:option|choice|answer|letter)\s|选项\s?"
    r"|(?:opción|respuesta|letra|réponse|lettre|antwort|opção|resposta|alternativa|opzione|risposta|lettera|opsi|pilihan"
    r"|jawaban|cevap|đáp án|phương án|ответ|вариант)\s)?"
    rf"(?:{_OPEN})?(?P<choice>[a-z])(?:{_CLOSE})?(?:\s(?:şıkkı|seçeneği))?\s?[.,:;!。、]?",
    re.IGNORECASE,
)
_LEADING = re.compile(r"(?:[(\[](?P<framed>[A-Za-z])[)\]]|(?P<closed>[A-Z])(?:[.):]|\s[-—–]))\s?(?=\S)")

# Words that withdraw the earlier part of their line.
_CORRECTION = re.compile(
    r"\b(?:wait|actually|correction|sorry|oops|hmm+|hold on|scratch that|or rather|i mean|on reflection"
    r"|on second thought|(?:no|non|nein|não|hayır|нет|không)(?=[,.:;!])|espera|perdón|mejor dicho|attendez|plutôt"
    r"|moment|warte|vielmehr|espere|aspetta|anzi|tunggu|maksud saya|bekle|pardon|khoan|nhầm|постойте|подождите"
    r"|точнее)\b|等等|不对|不對|更正|待って|いや|訂正|잠깐|아니[요,]|정정",
    re.IGNORECASE,
)
_CORRECTED = re.compile(rf"[\s,.:;!–—-]*(?:{_OPEN})?(?P<choice>[A-HJ-Z])(?:{_CLOSE})?\s?[.,;!。]?\s?")
_NEGATION = re.compile(
    r"\b(?:not|never|no|neither|nor|except|wrong|incorrect|false|unlike|instead|rather|nicht|kein\w*|ne|pas|não|non|bukan"
    r"|tidak|değil|không|не|нет|know|sure|unsure|between)\b|n['’]t\b|[不没非]|ない|아니|않",
    re.IGNORECASE,
)
_LONGEST_REPLY = 20_000
"""Characters at the end of a reply in which options are looked for."""
_MOST_STATEMENTS = 8
"""Maximum number of sentences with a statement of the answer, from the last one on, that are searched for options."""
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？\n]")
_LONGEST_SENTENCE = 200


def clean(text: str) -> str:
    """Return the text without fonts, emphasis and formula marks, and with single blanks within its lines."""
    text = _MARKUP.sub("", FONT.sub(r"\1", normal(text)))
    text = _LOOKALIKE.sub(lambda match: match.group().translate(_LATIN), text)
    return "\n".join(line for line in (" ".join(paragraph.split()) for paragraph in text.splitlines()) if line)


def chosen_letters(text: str, options: Sequence[str]) -> set[str]:
    r"""Return the letters that the cleaned text chose: one, none, or several that contradict each other.

    A \boxed{} without a letter is skipped; one with an option's text counts if no letter is named.
    """
    lines = text.split("\n")
    boxed = (_boxed(line) for line in reversed(lines))
    stated = (_stated(line) for line in reversed(lines))
    labelled = (_named(line, [_LABEL], unless=_WRONG) for line in reversed(lines))
    boxed_options = (_boxed_options(line, options) for line in reversed(lines))
    named = next(filter(None, chain(boxed, stated, labelled, boxed_options)), None)
    return named or _leading(lines) or option_letters(text, options)


def mentioned_letters(text: str, options: Sequence[str]) -> set[str]:
    """Return the letter of the only option that the cleaned text names in a sentence without a negation.

    The text after "the answer is" comes first. A single letter is too short to be found as an option's text.
    """
    text = text[-_LONGEST_REPLY:]
    for passage in chain(islice(answer_sentences(text), _MOST_STATEMENTS), [text]):
        named = {
            option for option in options if len(option) > 1 or option.isdigit() if contains_answer(option, passage)
        }
        named = {each for each in named if not any(each != other and contains_answer(each, other) for other in named)}
        if len(named) == 1:
            option = named.pop()
            if _affirms(passage, option):
                return option_letters(option, options)
            return set()
        if named:
            return set()
    return set()


def letter_alone(line: str) -> set[str]:
    """Return the letter that is all of a line, "Option B." included."""
    match = _ALONE.fullmatch(line.lstrip(" >#-•"))
    if match:
        return {match["choice"].upper()}
    return set()


def option_letters(text: str, options: Sequence[str]) -> set[str]:
    """Return the letters of the options with this text."""
    plain = folded(text).rstrip(".。 ")
    return {ALPHABET[index] for index, option in enumerate(options) if folded(option).rstrip(".。 ") == plain}


def _affirms(passage: str, option: str) -> bool:
    """Return whether the passage names the option at least once without a negation before it in the same sentence."""
    passage, option = folded(passage), folded(option).rstrip(".。 ")
    at = passage.find(option)
    while at >= 0:
        sentence = _SENTENCE_END.split(passage[max(0, at - _LONGEST_SENTENCE) : at])[-1]
        if not _NEGATION.search(sentence):
            return True
        at = passage.find(option, at + 1)
    return False


def _boxed(line: str) -> set[str]:
    """Return the letters that boxes of the line hold."""
    contents = [content.strip() for content in _BOX.findall(line)]
    return {letter for content in contents for letter in letter_alone(content) or _leading([content])}


def _boxed_options(line: str, options: Sequence[str]) -> set[str]:
    return {letter for content in _BOX.findall(line) for letter in option_letters(content.strip(), options)}


def _stated(line: str) -> set[str]:
    """Return the letters that a line names by standing alone or by its phrases, after its last correction if it has
    one that names a letter.
    """
    starts = [match.end() for match in _CORRECTION.finditer(line)][-_MOST_CORRECTIONS:]
    for start in reversed(starts):
        corrected = _CORRECTED.fullmatch(line, start)
        if letters := {corrected["choice"]} if corrected else _phrased(line[start:]):
            return letters
    return _phrased(line) | letter_alone(line)


_MOST_CORRECTIONS = 8  # each looks at the rest of its line


def _phrased(line: str) -> set[str]:
    praised = {match["choice"] for match in _PRAISED.finditer(line)}
    return praised | _named(line, _CUES) | _named(line, _CUES_ELSEWHERE, unless=_WRONG)


def _named(line: str, cues: Iterable[re.Pattern[str]], unless: re.Pattern[str] | None = None) -> set[str]:
    """Return the letters right behind the cues; but not those whose clause before them matches `unless`."""
    letters: set[str] = set()
    for cue in cues:
        for match in cue.finditer(line):
            if unless is None or not unless.search(line[max(0, match.start() - _CLAUSE) : match.end()]):
                letters.update(_enumerated(line, match.end()))
    return letters


def _enumerated(line: str, start: int) -> Iterator[str]:
    """Yield the letter at `start`, and letters that follow it after a comma, "and" or "or"."""
    match = _CHOICE.match(line, start)
    while match:
        yield (match["framed"] or match["closed"] or match["bare"]).upper()
        also = _ALSO.match(line, match.end())
        match = also and _CHOICE.match(line, also.end())
        if match and match["bare"]:
            return


def _leading(lines: Sequence[str]) -> set[str]:
    """Return the letters that lines begin with; of a list out of order the first, which the others explain."""
    matches = (_LEADING.match(line.lstrip(" >#-•")) for line in lines)
    letters = [(match["framed"] or match["closed"]).upper() for match in matches if match]
    return set(letters[:1] if letters[1:] and letters[0] > letters[1] else letters)
