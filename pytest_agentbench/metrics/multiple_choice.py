"""The metric `multiple_choice`: which letter an answer chose."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

from pytest_agentbench.metrics.passages import FONT, folded, normal, without_run_on
from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.models.thoughts import drop_thoughts

_MARKUP = re.compile(r"[*`$]+|\\[()\[\],;! ]|(?<!\w)_+|_+(?!\w)")
_BOX = re.compile(r"\\f?box(?:ed)?\s?\{([^{}\\]*)\}")

_ALPHABET = string.ascii_uppercase
_OPEN, _CLOSE = r"[(\[{\"'“‘「【]\s?", r"\s?[)\]}\"'”’」】]"
_WORDS_AFTER = r"(?:because|since|as|which|that|due|given|based|with|for|from|and|or)\b"
# A letter in brackets; or one that a statement ends with; or one that is no English word, as A and I are.
_CHOICE = re.compile(
    r"(?:option\s|choice\s|letter\s|选项\s?)?"
    rf"(?:{_OPEN}(?P<framed>[a-z]){_CLOSE}"
    rf"|(?P<closed>[a-z])(?=\s*(?:$|[.,:;!?)\]}}<\"”」】…—/&。、]|-\s|{_WORDS_AFTER}|[^\W\x00-\u024f]))"
    r"|(?P<bare>(?-i:[B-HJ-Z]))(?!['’\w+#=-]))",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\s?(?:,|/|、|&|or\b|and\b|和|或)\s?(?=[a-z\W])", re.IGNORECASE)
_FILLER = r"(?:\s?(?:therefore|thus|clearly|definitely|probably|most|likely|actually|really|the|answer|indeed)\b)*\s?"
# A sentence that ends with a letter: what is said before it counts only then.
_AT_END = rf"(?=(?:(?:option|choice)\s)?(?:{_OPEN})?(?-i:[A-Z])(?:{_CLOSE})?\s?(?:$|[.,;!。]|{_WORDS_AFTER}))"
_CUES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:answer|choice|option|selection|statement)[\"'”]?(?:(?!not\b|n't)[^:=\n]){0,60}?"
        r"(?:\b(?:is|be|was)\b|[:=]|\s-\s)\s?[:=]?" + _FILLER,
        r"(?<!not )(?<!n't )(?<!never )\b(?:choose|chose|select|selected|pick|picked|go with|opt for)\s" + _FILLER,
        r"<\s?(?:final_?)?answer\s?>\s?",
        r"(?:答案|选项|選項|正解|正答|答え)[^:不\n]{0,12}?(?:是|为|為|选|は|:)\s?(?:选择?)?\s?",
        r"(?<![不没别別勿])[选選](?![项項])[择擇]?\s?:?\s?",
        r"정?답(?:은|는)?\s?:?\s?",
        r"(?:उत्तर|जवाब|विकल्प)\s?:?\s?",
        rf"\b(?:it\sis|it['’]s|so|hence|thus|therefore|say),?\s{_AT_END}",
        rf"(?:(?<!no\s)(?<!non\s)(?<!não\s)(?<!['’])\b(?:es|est|ist|é|è)|هي|هو)\s{_AT_END}",
    )
)
# Whatever the label is, "Réponse : C"; but the words for what the answer is not.
_LABEL = re.compile(
    rf"(?<!wrong)(?<!incorrect)(?<!false)(?<!eliminated)(?<!out)(?<!not)\s?:\s?{_AT_END}", re.IGNORECASE
)
_PRAISED = re.compile(
    r"(?:^|(?<=[\s(\[\"']))(?P<choice>[A-Z])[)\]\"']?"
    r"(?::\s?(?:correct|right)\b|[项項]?[是为]?正确"
    r"|\sis\s(?:the\s)?(?:(?:most|only|clearly|definitely)\s)?(?:correct|right|best|answer)\b)"
)
_ALONE = re.compile(
    r"(?:\d{1,3}[.):]\s)?(?:(?:(?:final|correct|best)\s)?(?:option|choice|answer|letter)\s|选项\s?)?"
    rf"(?:{_OPEN})?(?P<choice>[a-z])(?:{_CLOSE})?\s?[.,:;!。、]?",
    re.IGNORECASE,
)
_LEADING = re.compile(r"(?:[(\[](?P<framed>[A-Za-z])[)\]]|(?P<closed>[A-Z])(?:[.):]|\s[-—–]))\s?(?=\S)")


AnswerIs = Literal["index", "index1", "letter", "text", "integer"]
"""What a ground truth is. `integer`, of a number in JSON: an index from 0 in the range of the choices, else a text."""


@metric("multiple_choice")
def multiple_choice(
    ground_truth: str,
    prediction: str,
    *,
    choices: Sequence[object] | None = None,
    answer_is: AnswerIs | None = None,
) -> Measured:
    r"""1 where the answer chose the letter of the ground truth: the last \boxed{B}, else the last line that names one.

    A line names a letter by standing alone ("**B**"), by a phrase ("the answer is (B)", "答案是B"); failing those, by
    beginning with one ("B. Paris"). Two letters in that line, or lines that begin with different ones, are no choice.
    With `choices`, the options' texts in order, the ground truth may also be an option's text or its index from 0, the
    prediction the text. `answer_is` says which of these the ground truth is; index1 counts from 1. Details: `expected`,
    `chosen`. Raises ValueError for a ground truth that is none of these.
    """
    options = _clean_options(choices)
    expected = _expected(ground_truth, options, answer_is)
    reply, run_on = without_run_on(drop_thoughts(prediction))
    chosen = _chosen(_clean(reply), options)
    letter = (chosen.pop() or None) if len(chosen) == 1 else None
    details = {"expected": expected, "chosen": letter} | ({"run_on": True} if run_on else {})
    return Measured(float(letter == expected), details)


def _clean(text: str) -> str:
    """Return the text without fonts, emphasis and formula marks, and with single blanks within its lines."""
    text = _MARKUP.sub("", FONT.sub(r"\1", normal(text)))
    return "\n".join(line for line in (" ".join(each.split()) for each in text.splitlines()) if line)


def find_readings(
    ground_truth: str, choices: Sequence[object] | None, answer_is: AnswerIs | None = None
) -> dict[str, str]:
    """Return the letter that each reading of the ground truth leads to, by `letter`, `text` and `index`.

    More than one letter: without `answer_is` nobody but the author knows which one is right. An integer is no letter.
    """
    text, options = _clean(ground_truth), _clean_options(choices)
    readings = {"letter": _read_letter, "text": _read_text, "index": _read_index}
    if answer_is is not None:
        readings = {name: read for name, read in readings.items() if name in _AMBIGUOUS.get(answer_is, ())}
    found = {name: read(text, options) for name, read in readings.items()}
    return {name: letter for name, letter in found.items() if letter}


def _clean_options(choices: Sequence[object] | None) -> list[str]:
    options = [_clean(str(choice)) for choice in choices or ()]
    if len(options) > len(_ALPHABET):
        raise ValueError(f"multiple_choice: found {len(options)} choices, expected at most {len(_ALPHABET)}")
    return options


def _expected(ground_truth: str, options: Sequence[str], answer_is: AnswerIs | None) -> str:
    text = _clean(ground_truth)
    for read in _READINGS[answer_is]:
        if letter := read(text, options):
            return letter
    expected = _KINDS.get(answer_is, "a letter")
    if not answer_is and options:
        expected = "a letter, the text of one option or its index from 0"
    raise ValueError(f"multiple_choice: the ground truth is {ground_truth[:80]!r}, expected {expected}")


def _read_letter(text: str, options: Sequence[str]) -> str:
    return _only(_alone(text), options)


def _read_text(text: str, options: Sequence[str]) -> str:
    return _only(_option(text, options), options)


def _read_phrase(text: str, options: Sequence[str]) -> str:
    return _only(_chosen(text, options), options)


def _read_said_letter(text: str, options: Sequence[str]) -> str:
    """Return the letter that a phrase names, which is never an option's text."""
    return _only(_chosen(text, ()), options)


def _read_index(text: str, options: Sequence[str]) -> str:
    """Return the letter of an index into the options, empty if there are none: a range is needed."""
    return _letter(int(text)) if _is_number(text) and int(text) < len(options) else ""


def _read_said_index(text: str, options: Sequence[str]) -> str:
    """Return the letter of what is said to be an index, which without options may be that of any letter."""
    return _read_index(text, options or _ALPHABET)


def _read_said_index1(text: str, options: Sequence[str]) -> str:
    return _read_said_index(str(int(text) - 1), options) if _is_number(text) else ""


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 3


def _only(letters: set[str], options: Sequence[str]) -> str:
    """Return the only letter, empty if there are several or it is beyond the options."""
    letter = letters.pop() if len(letters) == 1 else ""
    return letter if "A" <= letter <= _letter(len(options or _ALPHABET) - 1) else ""


_READINGS: Mapping[AnswerIs | None, Sequence[Callable[[str, Sequence[str]], str]]] = {
    None: (_read_letter, _read_text, _read_phrase, _read_index),
    "integer": (_read_index, _read_text),
    "index": (_read_said_index,),
    "index1": (_read_said_index1,),
    "letter": (_read_letter, _read_said_letter),
    "text": (_read_text,),
}
"""How a ground truth is read, in order of precedence."""

_KINDS: Mapping[AnswerIs | None, str] = {
    "integer": "the index of an option from 0 or the text of one; metrics: args: choices names the options",
    "index": "the index of an option from 0, as answer_is: index says",
    "index1": "the number of an option from 1, as answer_is: index1 says",
    "letter": "the letter of an option, as answer_is: letter says",
    "text": "the text of one option, as answer_is: text says",
}
_AMBIGUOUS: Mapping[AnswerIs, Sequence[str]] = {"integer": ("text", "index")}
"""What a ground truth may still be, by what it is said to be."""


def _chosen(text: str, options: Sequence[str]) -> set[str]:
    """Return the letters that the cleaned text chose: one, none, or several that contradict each other."""
    lines = text.split("\n")
    boxed = (_boxed(line, options) for line in reversed(lines))
    stated = (_stated(line) | _alone(line) for line in reversed(lines))
    labelled = (_named(line, [_LABEL]) for line in reversed(lines))
    named = next(filter(None, chain(boxed, stated, labelled)), None)
    return named or _leading(lines) or _option(text, options)


def _boxed(line: str, options: Sequence[str]) -> set[str]:
    """Return what each box of the line names, an empty text where that is nothing."""
    letters = set()
    for content in _BOX.findall(line):
        content = content.strip()
        letters |= _alone(content) or _leading([content]) or _option(content, options) or {""}
    return letters


def _alone(line: str) -> set[str]:
    match = _ALONE.fullmatch(line.lstrip(" >#-•"))
    return {match["choice"].upper()} if match else set()


def _stated(line: str) -> set[str]:
    """Return the letters that phrases of the line name."""
    return {match["choice"] for match in _PRAISED.finditer(line)} | _named(line, _CUES)


def _named(line: str, cues: Iterable[re.Pattern[str]]) -> set[str]:
    """Return the letters right behind the cues."""
    return {letter for cue in cues for match in cue.finditer(line) for letter in _enumerated(line, match.end())}


def _enumerated(line: str, start: int) -> Iterator[str]:
    """Yield the letter that stands at `start`, and those that follow it after a comma, "and" or "or"."""
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


def _option(text: str, options: Sequence[str]) -> set[str]:
    """Return the letters of the options with this text."""
    plain = folded(text).rstrip(".。 ")
    return {_letter(index) for index, option in enumerate(options) if folded(option).rstrip(".。 ") == plain}


def _letter(index: int) -> str:
    return _ALPHABET[index]
