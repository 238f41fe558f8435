"""A guess about a dataset as a `dataset.yaml` with comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from pytest_agentbench.cli.guessing import DatasetGuess

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
    "boolean": ("exact_match", 1.0, "the answers are true and false, which read True and False"),
}
_INSTEAD = {
    "number": "exact_match, if the reply is to be the number and nothing else",
    "long": "rouge_score, which minds the order of words; llm_judgement, which asks a model; with a threshold",
    "short": "contains_answer, if the reply may be a sentence; f1_score with a threshold; llm_judgement",
    "formula": "exact_match or contains_answer, without math",
}
_REPLY = {"choice": "Answer with the letter only.", "boolean": "Answer with True or False only."}
Block = tuple[str, Any, Sequence[str]]
"""A key at the top of the file, its value, and the comments above it."""


class _Dumper(yaml.SafeDumper):
    """Lists are indented, and printable texts of several lines stand as they are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if not all(map(str.isprintable, text.split("\n"))):
        style = '"'  # the other styles lose line breaks such as U+0085
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def describe(guess: DatasetGuess, file: str, rows: int) -> str:
    """The text of the descriptor of the data file `file`, guessed from its first `rows` rows."""
    parts = [f"# Guessed from the first {rows} rows of {shown(file)}: read it, and change what is wrong.\n"]
    for key, value, comments in _blocks(guess, file):
        parts += [f"# {comment}\n" for comment in comments]
        parts.append(to_yaml({key: value}))
    parts += [f"# {line}\n" for line in _suggestions(guess)]
    return "".join(parts)


def to_yaml(value: object) -> str:
    """The value as YAML for people."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


def shown(name: str) -> str:
    """A name from the data fit for one line of text: others' line breaks and control characters are escaped."""
    return name if name.isprintable() else repr(name)[1:-1]


def metric_of(guess: DatasetGuess) -> dict[str, Any] | None:
    """The metric as the descriptor has it; None where there is no answer to compare with."""
    if guess.answer is None:
        return None
    name, threshold, _ = _METRICS[guess.answers_are]
    spec: dict[str, Any] = {"name": name, "threshold": threshold}
    if guess.choices is not None and not guess.choices.lettered and _IN_TEMPLATE.fullmatch(guess.choices.field):
        spec["args"] = {"choices": f"{{{{ {guess.choices.field} }}}}"}
    return spec


def _blocks(guess: DatasetGuess, file: str) -> Iterator[Block]:
    yield "schema_version", 1, ()
    yield "files", [file], ()
    yield (
        "fields",
        {name: found.field for name, found in guess.parts.items()},
        [f"not sure of {name}: {found.doubt}" for name, found in guess.parts.items() if found.doubt is not None],
    )
    prompt = _prompt(guess)
    if prompt is not None:
        yield "prompt", prompt, ["what the agent is asked"]
    metric = metric_of(guess)
    if metric is not None:
        comments = [_METRICS[guess.answers_are][2]]
        comments += [f"instead: {_INSTEAD[guess.answers_are]}"] if guess.answers_are in _INSTEAD else []
        yield "metrics", [metric], comments
    if guess.tags_from:
        yield "tags_from", list(guess.tags_from), ["for -k and -m, and as groups in the report"]
    if guess.split is not None and len(guess.splits) > 1:
        yield "split", guess.splits[0], [f"seen: {', '.join(map(shown, guess.splits))}"]


def _prompt(guess: DatasetGuess) -> str | None:
    """Context, question, input, choices and how to reply; None where the question is all.

    A list is shown as A., B., ...
    """
    fields = [field for field in (guess.context, "question", guess.input) if field is not None]
    blocks = [f"{{{{ {field} }}}}" for field in fields]
    if guess.choices is not None:
        fields += guess.choices.fields
        lines = [f"{letter}. {{{{ {field} }}}}" for letter, field in guess.choices.lettered]
        blocks.append("\n".join(lines) or f"{{{{ {guess.choices.field} }}}}")
    if guess.answers_are in _REPLY:
        blocks.append(_REPLY[guess.answers_are])
    answer = "" if guess.answer is None else f"{guess.answer.field}."
    tells_answer = any(
        answer.startswith(f"{field}.") or (answer and f"{field}.".startswith(answer)) for field in fields
    )
    if len(blocks) == 1 or tells_answer or not all(map(_IN_TEMPLATE.fullmatch, fields)):
        return None
    return "\n\n".join(blocks)


def _shows_answer(fields: Sequence[str], guess: DatasetGuess) -> bool:
    """Whether the answer is part of a field, or the field of the answer."""
    if guess.answer is None:
        return False
    answer = f"{guess.answer.field}."
    return any(answer.startswith(f"{field}.") or f"{field}.".startswith(answer) for field in fields)


def _suggestions(guess: DatasetGuess) -> Iterator[str]:
    if guess.answer is None:
        yield "No field looks like the right answer: name it in fields.answer, or let a judge decide."
    if guess.unshown is not None:
        name = shown(guess.unshown)
        yield f"The agent is not shown {name}, which is no text; {{{{ {name} }}}} in a prompt shows it as JSON."
    if guess.split is None:
        return
    if len(guess.splits) == 1:
        yield f"Only the split {shown(guess.splits[0])} was seen; to run one only: split: <name>"
    elif guess.splits[-1].casefold().startswith("train"):
        yield f"Solved examples before each question: few_shot: {{split: {shown(guess.splits[-1])}, count: 5}}"
