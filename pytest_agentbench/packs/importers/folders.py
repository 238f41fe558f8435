"""Write drafts to a folder of cases: a dataset for each kind of question, a `test.yaml` for every other case."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.dataset_guesses import guess_dataset
from pytest_agentbench.cli.dataset_text import descriptor_text, metric_of, to_yaml
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import Draft, FileContents

_LOOKED_AT = 200
"""Maximum rows from which a metric is guessed, as in `agentbench new dataset`."""
_LONGEST_NAME = 60
"""Characters of a slug without its hash."""
_LARGEST_CASE = 4_000_000
"""Bytes of a test.yaml; the loader accepts a little more."""
_LETTER_ONLY = "Answer with the letter only."
_CHOICE, _JUDGED = "multiple_choice", "llm_judgement"
PREDICTIONS = "predictions.jsonl"
_PROMPTS = "prompts"
"""The folder of prompts that cases have as variants."""


@dataclass(frozen=True)
class WrittenFolder:
    """Numbers of cases in a folder: as files, as rows of datasets, with an answer, and for a judge."""

    files: int
    rows: int
    answers: int
    judged: int


def write_drafts(gathered: FileContents, folder: Path, stem: str) -> WrittenFolder:
    """Write all drafts below `folder`, or none. Names of datasets and ids of cases begin with `stem`.

    :raises ConfigError: the folder is not empty, or cannot be written.
    """
    try:
        exists = folder.exists()
        if exists and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(f"{folder}: exists already, expected a new or empty folder; name another with -o")
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder if exists else folder.parent))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}") from error
    try:
        # Write to a temporary folder and move it at the end: a failed import leaves nothing.
        written = _write_all(gathered, temporary, stem)
        if exists:
            # An existing folder may be the working directory of a shell, so it is filled and not replaced.
            for path in temporary.iterdir():
                path.rename(folder / path.name)
        else:
            # mkdtemp makes folders of mode 0700; this one gets the mode of the user's other folders.
            temporary.chmod(0o777 & ~_read_umask())
            temporary.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return written


def _read_umask() -> int:
    # The umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_all(gathered: FileContents, folder: Path, stem: str) -> WrittenFolder:
    groups: dict[tuple[str, str | None], list[tuple[str, Draft]]] = {}
    cases: dict[str, Draft] = {}
    guessed = _guess_metric(gathered.drafts)
    for name, text in gathered.prompts.items():
        file = folder / _PROMPTS / f"{name}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    for name, draft in _name_drafts(gathered.drafts):
        if _is_row(draft):
            groups.setdefault(_choose_dataset(draft), []).append((name, draft))
        elif _write_case(draft, name, folder, stem, guessed, gathered):
            cases[name] = draft
    for (suffix, metric), members in groups.items():
        _write_dataset(members, folder / f"{stem}{suffix}.jsonl", metric)
    written = {**cases, **{name: draft for members in groups.values() for name, draft in members}}
    answered = [(_make_prediction_id(name, draft, stem), draft) for name, draft in written.items() if draft.answers]
    if answered:
        _write_lines(
            folder / PREDICTIONS, ({"id": name, "prediction": _join_answers(draft)} for name, draft in answered)
        )
    judged = sum(bool(draft.expectations) or (draft.metric or {}).get("name") == _JUDGED for draft in written.values())
    return WrittenFolder(len(cases), len(written) - len(cases), len(answered), judged)


def make_slug(name: str) -> str:
    """Return the name with only characters that an id may have. A shortened or empty result gets a hash."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")
    if plain and len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    if plain:
        return f"{plain[:_LONGEST_NAME]}-{digest}"
    return f"x-{digest}"


def _name_drafts(drafts: Iterable[Draft]) -> Iterable[tuple[str, Draft]]:
    """Yield each draft with a unique name."""
    seen = {_PROMPTS}
    for draft in drafts:
        first = name = make_slug(draft.name)
        number = 1
        while name in seen:
            number += 1
            name = f"{first}-{number}"
        seen.add(name)
        yield name, draft


def _is_row(draft: Draft) -> bool:
    """Return whether a dataset's row can express the whole draft."""
    asks = [message["role"] for message in draft.messages] == ["user"]
    more = draft.title or draft.expectations or draft.tools or draft.files or draft.dockerfile or draft.unfinished
    one = len(draft.checks) + (draft.reference is not None and draft.compared) == 1
    return bool(asks and one and not more and not draft.prompts)


def _choose_dataset(draft: Draft) -> tuple[str, str | None]:
    """Return the suffix of the file of its dataset, and the dataset's metric as JSON; None if it has none."""
    if draft.checks:
        return "-checked", None
    if draft.choices:
        return "-choices", None
    if draft.metric is None:
        return "", None
    return f"-{make_slug(str(draft.metric['name']))}", json.dumps(draft.metric)


def _write_dataset(members: Sequence[tuple[str, Draft]], path: Path, metric: str | None) -> None:
    rows = [_make_row(name, draft) for name, draft in members]
    _write_lines(path, rows)
    # The metric comes from the scorer, or from each row's own check. Otherwise it is guessed, as in `new dataset`.
    if metric is not None:
        descriptor = to_yaml({"schema_version": 1, "files": [path.name], "metrics": [json.loads(metric)]})
    elif members[0][1].checks:
        descriptor = to_yaml({"schema_version": 1, "files": [path.name]})
    else:
        looked_at = rows[:_LOOKED_AT]
        guess = guess_dataset([{key: row[key] for key in _SHOWN if key in row} for row in looked_at])
        if guess is None:
            raise ConfigError(f"{path}: found rows without a question, expected one each")
        descriptor = descriptor_text(guess, path.name, len(looked_at))
    path.with_suffix(".dataset.yaml").write_text(descriptor, encoding="utf-8")


_SHOWN = ("id", "question", "answer", "choices")


def _make_row(name: str, draft: Draft) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "question": draft.messages[0]["content"]}
    if draft.reference is not None:
        row["answer"] = draft.reference
    if draft.choices:
        row["choices"] = list(draft.choices)
    if draft.tags:
        row["tags"] = list(draft.tags)
    if draft.checks:
        args = dict(draft.checks[0]["declarative"])
        row["evaluator"] = {"func": args.pop("kind"), "args": args}
    row["metadata"] = _make_metadata(draft)
    return row


def _make_metadata(draft: Draft) -> dict[str, Any]:
    return {"imported_from": f"{_shorten_file_name(draft.place.file)}:{draft.place.line}", **draft.metadata}


def _shorten_file_name(file: str) -> str:
    """Return the file's name without its folder, and the member if it is an archive's."""
    archive, mark, member = file.partition("!")
    return f"{Path(archive).name}{mark}{member}"


def _guess_metric(drafts: Sequence[Draft]) -> dict[str, Any] | None:
    """Guess the metric for references without a scorer. Return None if there are none, or no metric fits."""
    rows = [
        {"id": str(at), "question": draft.messages[-1]["content"], "answer": draft.reference}
        for at, draft in enumerate(drafts)
        if draft.reference is not None and draft.metric is None and draft.compared
    ]
    if not rows or (guess := guess_dataset(rows[:_LOOKED_AT])) is None:
        return None
    return metric_of(guess)


def _write_case(
    draft: Draft, name: str, folder: Path, stem: str, guessed: dict[str, Any] | None, gathered: FileContents
) -> bool:
    """Write a `test.yaml` and its files. Return False if it would be too large."""
    case = _make_case(draft, f"{stem}-{name}", guessed)
    text = to_yaml(case)
    if len(text.encode()) > _LARGEST_CASE:
        gathered.lose(draft.place, f"its test.yaml would have more than {_LARGEST_CASE:,} bytes")
        return False
    if not draft.decided:
        gathered.note(draft.place, "the case has no checks, so it gets report_only: true; add checks or expectations")
    place = folder / name
    place.mkdir()
    (place / "test.yaml").write_text(text, encoding="utf-8")
    for path, content in draft.files.items():
        file = place / "workspace" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    if draft.dockerfile is not None:
        (place / "Dockerfile").write_bytes(draft.dockerfile)
    return True


def _make_case(draft: Draft, case_id: str, guessed: dict[str, Any] | None) -> dict[str, Any]:
    question = next(m["content"].strip() for m in draft.messages if m["role"] == "user" and m["content"].strip())
    case_input: dict[str, Any] = {"messages": [dict(message) for message in _list_case_messages(draft)]}
    if draft.tools:
        case_input["context"] = {"llm_probe": {"tools": list(draft.tools)}}
    case: dict[str, Any] = {
        "schema_version": 1,
        "case_id": case_id,
        "title": draft.title or question.splitlines()[0][:80],
        "runner": {"type": "llm_probe"},
        "input": case_input,
    }
    if draft.files:
        case["workspace"] = "workspace"
    if draft.dockerfile is not None:
        case["sandbox"] = {"dockerfile": "Dockerfile"}
    if draft.expectations:
        case |= {"expectations": {"hard_expectations": list(draft.expectations)}, "require_hard": True}
    if draft.checks:
        case["deterministic_checks"] = [
            {"check_id": f"{make_slug(check['declarative']['kind'])}-{number}", **check}
            for number, check in enumerate(draft.checks, 1)
        ]
    case |= _make_reference_fields(draft, guessed)
    if not draft.decided:
        case["report_only"] = True
    if draft.prompts:
        case["variants"] = {name: {"prompt_file": f"../{_PROMPTS}/{name}.txt"} for name in draft.prompts}
    tags = list(draft.tags)
    if draft.unfinished:
        # `manual` excludes a case from normal runs until a person has added the missing parts.
        tags.append("manual")
    if tags:
        case["tags"] = tags
    case["metadata"] = _make_metadata(draft)
    return case


def _make_reference_fields(draft: Draft, guessed: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields `reference` and `metrics` of a case, without those that it does not have."""
    if draft.reference is None:
        return {}
    metric = draft.metric
    if draft.choices:
        metric = {"name": _CHOICE, "threshold": 1.0, "args": {"choices": list(draft.choices)}}
    elif metric is None and draft.compared:
        metric = guessed
    if metric is None:
        return {"reference": draft.reference}
    return {"reference": draft.reference, "metrics": [dict(metric)]}


def _list_case_messages(draft: Draft) -> Iterable[Mapping[str, str]]:
    """Return the messages, with the choices in the last one of a user."""
    if not draft.choices:
        return draft.messages
    last = max(at for at, message in enumerate(draft.messages) if message["role"] == "user")
    lines = [f"{chr(ord('A') + at)}. {choice}" for at, choice in enumerate(draft.choices)]
    text = "\n".join([draft.messages[last]["content"], "", *lines, "", _LETTER_ONLY])
    return [*draft.messages[:last], {**draft.messages[last], "content": text}, *draft.messages[last + 1 :]]


def _make_prediction_id(name: str, draft: Draft, stem: str) -> str:
    # A row's id is its name in the file; the id of a test.yaml is unique in a project.
    if _is_row(draft):
        return name
    return f"{stem}-{name}"


def _join_answers(draft: Draft) -> str | list[str] | dict[str, Any]:
    if draft.calls is not None:
        return {"output": draft.answers[0], "tool_calls": [dict(call) for call in draft.calls]}
    if len(draft.answers) == 1:
        return draft.answers[0]
    return list(draft.answers)


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
