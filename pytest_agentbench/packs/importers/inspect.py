"""Read Inspect's files: samples, or the log of an evaluation (.eval, .json) with samples and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import (
    FileContents,
    Place,
    Row,
    nonblank_text,
    read_document,
    read_rows,
)
from pytest_agentbench.packs.importers.inspect_archives import MAX_LOG, open_archive
from pytest_agentbench.packs.importers.inspect_samples import Task, UnfitError, add_sample, unsupported_options
from pytest_agentbench.packs.importers.inspect_verdicts import list_other_verdicts, read_verdict

_ATTACHMENT = "attachment://"
_PLAIN_SOLVERS = {"generate", "multiple_choice"}
_OF_CHOICES = ("template", "cot", "multiple_correct")
_OF_A_CASE = ("input", "target", "choices", "id", "metadata", "files", "setup", "sandbox")
_OF_A_LOG = (*_OF_A_CASE, "output", "error", "attachments", "scores")
_SHOWN = 10
"""Maximum names of samples in one note."""


def read(path: Path) -> FileContents:
    """Return the samples of a file. Raises ConfigError if the file cannot be read."""
    gathered = FileContents()
    if path.suffix == ".eval":
        _add_archive(path, gathered)
    elif path.suffix == ".json" and isinstance(header := read_document(path, MAX_LOG), dict) and "eval" in header:
        _add_log(header, read_rows(path, gathered, "samples", _OF_A_LOG), path, gathered)
    else:
        for number, row in enumerate(read_rows(path, gathered, inside="samples"), 1):
            add_sample(row.value, row.place, _name_sample(row.value, number), path.parent, gathered)
    return gathered


def _name_sample(sample: Mapping[str, Any], number: int) -> str:
    identifier = sample.get("id")
    if identifier not in (None, ""):
        return str(identifier)
    return f"sample-{number}"


def _add_log(header: Mapping[str, Any], samples: Iterable[Row], path: Path, gathered: FileContents) -> None:
    """Add one draft for each sample, with the answers of all its epochs."""
    task = _read_task(header, Place(str(path)), gathered)
    answers: dict[str, list[_Answer]] = {}
    for number, row in enumerate(samples, 1):
        name = _name_sample(row.value, number)
        # The first epoch makes the draft, the others add their answers to it.
        is_first = name not in answers
        if row.value.get("error"):
            gathered.note(row.place, "error: the run of the sample failed, so there is no answer to score")
        try:
            answers.setdefault(name, []).extend(_list_answers(row.value, task))
            sample = {key: _restore_attachments(row.value.get(key), row.value) for key in _OF_A_CASE}
        except UnfitError as error:
            gathered.lose(row.place, str(error))
            continue
        if is_first:
            add_sample(sample, row.place, name, path.parent, gathered, task)
    # Epochs of a sample may be anywhere in the log: only now are its answers complete.
    gathered.drafts[:] = [
        replace(draft, answers=tuple(answer.text for answer in answers[draft.name])) for draft in gathered.drafts
    ]
    verdicts = {name: [answer.is_right for answer in epochs] for name, epochs in answers.items()}
    if names := list_other_verdicts(gathered.drafts, verdicts):
        listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        gathered.note(Place(str(path)), f"scores: the verdict here differs from the log's for {listed}")


def _read_task(header: Mapping[str, Any], place: Place, gathered: FileContents) -> Task:
    """Return the task's scorer and system messages. Note the other parts, which are left out."""
    scorers = _list_scorers(header, place)
    for other in scorers[1:]:
        gathered.note(place, f"eval.scorers: {other['name']!r} is left out; the first, {scorers[0]['name']!r}, decides")
    before = []
    for step in _read_objects(header, "plan", "steps", place):
        name, params = str(step.get("solver")).rpartition("/")[2], as_object(step.get("params"))
        template = nonblank_text(params.get("template"))
        # The solver fills in a template's fields when it runs: the log lacks the final message.
        if name == "system_message" and template is not None and "{" not in template:
            before.append({"role": "system", "content": template})
        elif name not in _PLAIN_SOLVERS:
            gathered.note(place, f"plan.steps: the solver {name!r} is code: write its effect into the case or a runner")
        elif changed := [key for key in _OF_CHOICES if params.get(key)]:
            gathered.note(place, f"plan.steps: {', '.join(changed)} of {name} is left out")
    task = Task(before=tuple(before))
    if scorers:
        # The name may have a package in front: inspect_ai/match.
        scorer = str(scorers[0]["name"]).rpartition("/")[2]
        task = replace(task, scorer=scorer, options=as_object(scorers[0].get("options")))
    for text in unsupported_options(task):
        gathered.note(place, f"eval.scorers: {text}")
    return task


def _list_scorers(header: Mapping[str, Any], place: Place) -> list[dict[str, Any]]:
    """Return the scorers of a log, `{name, options}` each."""
    scorers = _read_objects(header, "eval", "scorers", place)
    if scorers := [scorer for scorer in scorers if nonblank_text(scorer.get("name"))]:
        return scorers
    # Logs up to Inspect 0.3.42 have the names of scorers only in results, once for each reducer of epochs.
    by_name: dict[str, dict[str, Any]] = {}
    for score in _read_objects(header, "results", "scores", place):
        if (name := nonblank_text(score.get("scorer"))) is not None:
            by_name.setdefault(name, {"name": name, "options": score.get("params")})
    return list(by_name.values())


def _read_objects(header: Mapping[str, Any], part: str, name: str, place: Place) -> list[dict[str, Any]]:
    """Return a list of objects in a part of the log, empty if it is missing.

    Raises ConfigError for another type.
    """
    objects = header.get(part)
    if isinstance(objects, dict):
        objects = objects.get(name)
    if objects is None:
        return []
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise ConfigError(f"{place}: {part}.{name}: found {objects!r:.40}, expected a list of objects")
    return objects


@dataclass(frozen=True)
class _Answer:
    """An answer of one epoch of a sample. `is_right` is the log's verdict; None without one, or for a partial score."""

    text: str
    is_right: bool | None


def _list_answers(sample: Mapping[str, Any], task: Task) -> tuple[_Answer, ...]:
    """Return the answer of a sample's epoch; an empty tuple if its run failed, or the model was never asked."""
    output = sample.get("output")
    if sample.get("error") or not isinstance(output, dict):
        return ()
    text = _read_completion(output)
    if text is None:
        return ()
    return (_Answer(_restore_attachments(text, sample), read_verdict(sample, task)),)


def _read_completion(output: Mapping[str, Any]) -> str | None:
    """Return the text of a model's output; None if it has no message."""
    completion = nonblank_text(output.get("completion"))
    choices = output.get("choices")
    if completion is not None or not isinstance(choices, list) or not choices:
        return completion
    # Logs up to Inspect 0.3.42 have only the message.
    content = as_object(as_object(choices[0]).get("message")).get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "\n".join(part for part in parts if isinstance(part, str))
    if isinstance(content, str):
        return content
    return None


def _restore_attachments(value: Any, sample: Mapping[str, Any]) -> Any:
    """Replace references to the sample's attachments by their texts. Raises UnfitError if one is missing."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        text = as_object(sample.get("attachments")).get(value.removeprefix(_ATTACHMENT))
        if not isinstance(text, str):
            raise UnfitError(f"attachments: found no text for {value!r:.60}")
        return text
    if isinstance(value, list):
        return [_restore_attachments(element, sample) for element in value]
    if isinstance(value, dict):
        return {key: _restore_attachments(member, sample) for key, member in value.items()}
    return value


def _add_archive(path: Path, gathered: FileContents) -> None:
    """Add the drafts of an .eval file."""
    with open_archive(path) as log:
        if not log.is_finished:
            gathered.note(Place(str(path)), "header.json: missing, so the evaluation has not finished")
        _add_log(log.read_header(), log.list_samples(gathered, _OF_A_LOG), path, gathered)
