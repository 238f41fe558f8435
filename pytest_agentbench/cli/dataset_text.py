"""Write a guess of the fields of rows as a `dataset.yaml` with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from pytest_agentbench.cli.choice_columns import Choices
from pytest_agentbench.cli.dataset_guesses import DatasetGuess
from pytest_agentbench.terminal_text import shorten_text

_IN_TEMPLATE = re.compile(r"[\w$@-]+(?:[. ][\w$@-]+)*")
_METRICS: dict[str, tuple[str, float, str]] = {
    "choice": (
        "multiple_choice",
        1.0,
        "the answer is a choice's letter; with `choices` also its place from 0 or its text",
    ),
    "number": ("numeric_match", 1.0, "the answers are numbers: the last one in the reply counts"),
    "formula": ("math_equal", 1.0, "the answers are formulas; needs pip install 'pytest-agentbench[metrics]'"),
    "long": ("f1_score", 0.5, "the answers are long, so words in common count; 0.5 is a guess"),
    "short": ("exact_match", 1.0, "the reply must be the answer and nothing else"),
    "boolean": ("exact_match", 1.0, "the answers are true and false; True and False are right too"),
}
_INSTEAD = {
    "number": "exact_match, if the reply is to be the number and nothing else",
    "long": "rouge_score, which minds the order of words; llm_judgement, which asks a model; with a threshold",
    "short": "contains_answer, if the reply may be a sentence; f1_score with a threshold; llm_judgement",
    "formula": "exact_match or contains_answer, without math",
}
_SHOWN = 60
"""Maximum characters of a value in a comment."""
_REPLY = {"choice": "Answer with the letter only.", "boolean": "Answer with True or False only."}
Block = tuple[str, Any, Sequence[str]]
"""A key at the top of the file, its value, and the comments above it."""


class _Dumper(yaml.SafeDumper):
    """Dumper for people: lists are indented, and printable texts of several lines are block scalars."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Block scalars, unless they change the text: people edit this file.
    style = "|" if "\n" in text else None
    if not all(map(str.isprintable, text.split("\n"))):
        style = '"'  # the other styles lose line breaks such as U+0085
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def descriptor_text(guess: DatasetGuess, file: str, rows: int) -> str:
    """Return the text of the descriptor of the data file `file`, guessed from its first `rows` rows."""
    parts = [f"# Guessed from the first {rows} rows of {escape_name(file)}: read it, and correct the guesses.\n"]
    for key, value, comments in _make_blocks(guess, file):
        parts += [f"# {comment}\n" for comment in comments]
        parts.append(to_yaml({key: value}))
    parts += [f"# {line}\n" for line in _suggest_more(guess)]
    return "".join(parts)


def to_yaml(value: object) -> str:
    """Return the value as YAML for people."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


def escape_name(name: str) -> str:
    """Return a name from the data fit for one line of text: others' line breaks and control characters are escaped."""
    if name.isprintable():
        return name
    return repr(name)[1:-1]


def show_value(value: object) -> str:
    """Return the beginning of a value from the data, fit for one line of text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return escape_name(shorten_text(" ".join(text[: 4 * _SHOWN].split()), _SHOWN))


def metric_of(guess: DatasetGuess) -> dict[str, Any] | None:
    """Return the metric as the descriptor has it, None if there is no answer to compare with."""
    if guess.answer is None:
        return None
    name, threshold, _ = _METRICS[guess.answers_are]
    spec: dict[str, Any] = {"name": name, "threshold": threshold}
    choices = guess.choices
    # Letters need no list to be compared; places and texts do.
    lettered = guess.answers_are != "choice" or choices is None or choices.lettered or choices.own_letters
    if not lettered and choices is not None and _IN_TEMPLATE.fullmatch(choices.shown):
        spec["args"] = {"choices": f"{{{{ {choices.shown} }}}}"}
    return spec


def _make_blocks(guess: DatasetGuess, file: str) -> Iterator[Block]:
    yield "schema_version", 1, ()
    yield "files", [file], ()
    yield (
        "fields",
        {name: found.place for name, found in guess.parts.items()},
        [f"not sure of {name}: {found.doubt}" for name, found in guess.parts.items() if found.doubt is not None],
    )
    if guess.choices is not None and guess.choices.listed:
        yield "choices", _write_choices(guess.choices), [*_explain_choices(guess.choices)]
    prompt = _write_prompt(guess)
    if prompt is not None:
        yield "prompt", prompt, ["the question for the agent"]
    metric = metric_of(guess)
    if metric is not None:
        comments = [_METRICS[guess.answers_are][2]]
        if guess.answers_are in _INSTEAD:
            comments.append(f"instead: {_INSTEAD[guess.answers_are]}")
        yield "metrics", [metric], comments
    if guess.numbering is not None:
        yield "answer_is", guess.numbering.answer_is, [guess.numbering.reason]
    if guess.tags_from:
        yield "tags_from", list(guess.tags_from), ["for -k and -m, and as groups in the report"]
    if guess.split is not None and len(guess.splits) > 1:
        yield "split", guess.splits[0], [f"seen: {', '.join(map(escape_name, guess.splits))}"]


def _write_choices(choices: Choices) -> dict[str, Any]:
    section: dict[str, Any] = {"fields": list(choices.listed)}
    if choices.labels is not None:
        section["labels"] = choices.labels
    if choices.shuffled:
        section["shuffle_seed"] = 0
    return section


def _explain_choices(choices: Choices) -> Iterator[str]:
    yield "these are made one list, which {{ choices }} names"
    if choices.shuffled:
        yield "the right option comes first in each row, so they are shown in another order"


def _write_prompt(guess: DatasetGuess) -> str | None:
    """Return a prompt of context, question, input, choices and reply format, or None if the question is enough.

    A list of choices becomes A., B., ...
    """
    fields = [field for field in (guess.context, "question", guess.input) if field is not None]
    blocks = [f"{{{{ {field} }}}}" for field in fields]
    if guess.choices is not None:
        fields += [field for _, field in guess.choices.lettered] or [guess.choices.shown]
        lines = [f"{letter}. {{{{ {field} }}}}" for letter, field in guess.choices.lettered]
        blocks.append("\n".join(lines) or f"{{{{ {guess.choices.shown} }}}}")
    if guess.answers_are in _REPLY:
        blocks.append(_REPLY[guess.answers_are])
    if len(blocks) == 1 or _shows_answer(fields, guess) or not all(map(_IN_TEMPLATE.fullmatch, fields)):
        return None
    return "\n\n".join(blocks)


def _shows_answer(fields: Sequence[str], guess: DatasetGuess) -> bool:
    """Return whether the answer is part of a field, or the field of the answer."""
    if guess.answer is None:
        return False
    # With dots on both sides, or `answer` would be taken for a part of `answer_type`.
    answer = f"{guess.answer.field}."
    return any(answer.startswith(f"{field}.") or f"{field}.".startswith(answer) for field in fields)


def _suggest_more(guess: DatasetGuess) -> Iterator[str]:
    if guess.answer is None:
        yield "No field looks like the right answer: name it in fields.answer, or let a judge decide."
    if guess.unshown is not None:
        name = escape_name(guess.unshown)
        yield f"The agent is not shown {name}, which is no text; {{{{ {name} }}}} in a prompt shows it as JSON."
    if guess.unused:
        yield "Neither the question nor the score uses these fields; they stay in the metadata of the case:"
        yield from (f"  {escape_name(field)}: {show_value(value)}" for field, value in guess.unused)
    if guess.split is None:
        return
    if len(guess.splits) == 1:
        yield f"Only the split {escape_name(guess.splits[0])} was seen; to run one only: split: <name>"
    elif guess.splits[-1].casefold().startswith("train"):
        yield f"Solved examples before each question: few_shot: {{split: {escape_name(guess.splits[-1])}, count: 5}}"
