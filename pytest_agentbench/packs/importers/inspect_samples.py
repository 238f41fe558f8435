"""Convert Inspect's samples (JSON, JSONL, CSV) to drafts."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from string import ascii_uppercase, punctuation, whitespace
from typing import Any

import regex

from pytest_agentbench.config.documents import read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.packs.importers.drafts import Draft, FileContents, Place, nonblank_text, parse_cell

MAX_FILE = 64 * 1024 * 1024
"""Bytes of a file of a sample."""
_ROLES = ("system", "user", "assistant")
_USED = {"input", "target", "choices", "id", "metadata", "files", "setup", "sandbox", "description"}
_OF_SCORERS = {"f1": "f1_score", "choice": "multiple_choice"}
_OF_PATTERNS = ("match", "includes", "exact")
_OF_WORDS = ("exact", "f1")
_OPTIONS = {"match": {"location", "ignore_case", "numeric"}, "includes": {"ignore_case"}}
_LONGEST_PART = 255
_IGNORED = punctuation + whitespace
_SKIPPED = r"[\s!-/:-@\[-`{-~]*"
"""Characters that Inspect ignores at the ends of an answer and its target: ASCII punctuation, white space."""
_SKIPPED_WORDS = r"(?:[\s!-/:-@\[-`{-~]|\b(?:an?|the)\b)*"
"""The ignored characters and English articles, which `exact` and `f1` ignore too."""
_ARTICLE = re.compile(r"(?:an?|the)\s+(?=\S)", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Z](?:[\s,]*[A-Z])+")
"""Several choices in one text, as Inspect reads them."""
_GRADED = ("model_graded_qa", "model_graded_fact")


class UnfitError(Exception):
    """A sample cannot become a case; the text is the reason."""


@dataclass(frozen=True)
class Task:
    """Facts about all samples of a log: the scorer with its options, and the messages that solvers put in front."""

    scorer: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Mapping[str, str], ...] = ()


def unsupported_options(task: Task) -> Iterator[str]:
    """Yield options of the scorer that its counterpart here does not have."""
    if task.scorer is None:
        return
    if task.scorer not in (*_OF_SCORERS, *_OF_PATTERNS, *_GRADED):
        yield f"the scorer {task.scorer!r} is code: the check or metric here is guessed from the targets"
        return
    for name in sorted(task.options.keys() - _OPTIONS.get(task.scorer, set())):
        yield f"{name} of {task.scorer} is left out"
    if task.scorer == "match" and task.options.get("numeric"):
        location, last = task.options.get("location", "end"), ""
        if location != "end":
            last = f"; it compares the last number, not the one at {location!r}"
        yield f"match(numeric=True) becomes numeric_match, for which 60 % and 60 are the same number{last}"


def add_sample(
    sample: Mapping[str, Any],
    place: Place,
    name: str,
    folder: Path,
    gathered: FileContents,
    task: Task = Task(),
) -> None:
    """Add the draft of a sample, or its loss if it cannot become a case. Its files may be in or below `folder`."""
    try:
        gathered.drafts.append(_make_draft(sample, place, name, folder, gathered, task))
    except UnfitError as error:
        gathered.lose(place, str(error))


def _make_draft(
    sample: Mapping[str, Any], place: Place, name: str, folder: Path, gathered: FileContents, task: Task
) -> Draft:
    choices = _read_choices(sample.get("choices"))
    targets = _read_targets(sample.get("target"))
    file_names = _list_file_names(sample.get("files"))
    files: dict[str, bytes] = {}
    if file_names:
        names = ", ".join(file_names)
        gathered.note(place, f"files: the log names {names} without content; put them into the workspace")
    else:
        texts = _read_files(sample.get("files"))
        files = {path: _read_content(path, text, folder) for path, text in texts.items()}
    metadata = _read_object("metadata", sample.get("metadata"))
    dockerfile, sandboxed = _read_sandbox(sample.get("sandbox"), folder)
    setup = nonblank_text(sample.get("setup"))
    others = {key: value for key, value in sample.items() if key not in _USED and value not in (None, "", [], {})}
    if setup is not None:
        others["setup"] = setup
        gathered.note(
            place, "setup: a script is not run before a case; write its effect into the workspace or sandbox.dockerfile"
        )
    if isinstance(sandboxed, str):
        gathered.note(place, sandboxed)
    # "A, C" in one text are two choices to Inspect, unless this is the text of a choice.
    several = len(targets) > 1 or any(_LETTERS.fullmatch(target) and target not in choices for target in targets)
    if choices and several:
        raise UnfitError(f"target: found several choices ({', '.join(targets)}), expected one for multiple_choice")
    return Draft(
        place=place,
        name=name,
        title=nonblank_text(sample.get("description")),
        messages=(*task.before, *_read_messages(sample.get("input"))),
        choices=choices,
        tools=_choose_tools(bool(files or file_names), bool(sandboxed)),
        files=files,
        dockerfile=dockerfile,
        metadata={**others, **metadata},
        unfinished=setup is not None or isinstance(sandboxed, str) or bool(file_names),
        **_decide_case(targets, choices, task),
    )


def _decide_case(targets: tuple[str, ...], choices: tuple[str, ...], task: Task) -> dict[str, Any]:
    """Return reference, metric and checks of a sample."""
    if not targets:
        return {}
    scorer = task.scorer or ""
    # Inspect's match compares the end of an answer by default.
    location = {"match": str(task.options.get("location", "end")), "exact": "exact", "f1": "exact"}.get(scorer, "any")
    name = _OF_SCORERS.get(scorer)
    if choices:
        name = "multiple_choice"
    if scorer == "match" and task.options.get("numeric"):
        if len(targets) > 1:
            raise UnfitError(f"target: found several numbers ({', '.join(targets)}), expected one for numeric_match")
        name = "numeric_match"
    if task.scorer in _GRADED:
        return {"reference": "\n".join(targets), "metric": {"name": "llm_judgement", "threshold": 1.0}}
    if name is not None and len(targets) == 1:
        return {"reference": targets[0], "metric": {"name": name, "threshold": 1.0}}
    if task.scorer in _OF_PATTERNS or len(targets) > 1:
        return {"reference": targets[0], "compared": False, "checks": (_make_pattern_check(targets, location, task),)}
    return {"reference": targets[0]}


def _make_pattern_check(targets: tuple[str, ...], location: str, task: Task) -> dict[str, Any]:
    """Return the check for `match` and `includes`: one of the targets is anywhere, or at an end except punctuation."""
    any_of = "|".join(regex.escape(_compared_part(target, task.scorer), literal_spaces=True) for target in targets)
    around = _SKIPPED_WORDS if task.scorer in _OF_WORDS else _SKIPPED
    pattern = {
        "begin": rf"\A{_SKIPPED}(?:{any_of})",
        "end": rf"(?:{any_of}){_SKIPPED}\Z",
        "exact": rf"\A{around}(?:{any_of}){around}\Z",
    }.get(location, any_of)
    check: dict[str, Any] = {"kind": "regex_match", "pattern": pattern}
    if task.options.get("ignore_case", True) is not False:
        check["ignore_case"] = True
    return {"declarative": check}


def _compared_part(target: str, scorer: str | None) -> str:
    """Return the part of a target that the scorer compares."""
    # Inspect strips punctuation and white space from both sides, except for `includes`.
    if scorer == "includes":
        return target
    stripped = (scorer is not None and target.strip(_IGNORED)) or target.strip()
    if scorer in _OF_WORDS and _ARTICLE.match(stripped):
        return _ARTICLE.sub("", stripped, count=1)
    return stripped


def _read_messages(value: Any) -> tuple[dict[str, str], ...]:
    if isinstance(value, str) and value.strip():
        return ({"role": "user", "content": value},)
    if not isinstance(value, list) or not value:
        raise UnfitError(f"input: found {value!r:.40}, expected a text or a list of messages")
    messages = tuple(_read_message(at, message) for at, message in enumerate(value))
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        raise UnfitError("input: found no text of a user")
    return messages


def _read_message(at: int, message: Any) -> dict[str, str]:
    where = f"input[{at}]"
    if not isinstance(message, dict) or message.get("role") not in _ROLES or message.get("tool_calls"):
        raise UnfitError(f"{where}: found a tool's message or call, expected texts of {', '.join(_ROLES)}")
    content = message.get("content")
    if isinstance(content, list):
        parts = list(map(as_object, content))
        if not all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
            raise UnfitError(f"{where}: found an image, sound or file; messages of cases are texts")
        content = "\n".join(part["text"] for part in parts)
    if not isinstance(content, str):
        raise UnfitError(f"{where}.content: found {content!r:.40}, expected a text")
    return {"role": message["role"], "content": content}


def _read_targets(value: Any) -> tuple[str, ...]:
    targets = value if isinstance(value, list) else [value]
    if not all(isinstance(target, str | int | float | None) for target in targets):
        raise UnfitError(f"target: found {value!r:.40}, expected a text or a list of texts")
    return tuple(str(target) for target in targets if target is not None and str(target).strip())


def _read_choices(value: Any) -> tuple[str, ...]:
    """Return the choices as Inspect reads them: a list, or a text with commas (else spaces) between them."""
    if isinstance(value, str):
        separator = "," if "," in value else None
        value = [part for part in value.split(separator) if part.strip()]
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(choice, str | int | float) for choice in value):
        raise UnfitError(f"choices: found {value!r:.40}, expected a list of texts")
    choices = tuple(str(choice).strip() for choice in value)
    if not all(choices) or len(choices) > len(ascii_uppercase):
        raise UnfitError(
            f"choices: found {value!r:.40}, expected at most {len(ascii_uppercase)} texts that are not empty"
        )
    return choices


def _read_object(name: str, cell: Any) -> dict[str, Any]:
    try:
        value = parse_cell(cell)
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"{name}: not valid JSON: {error}") from error
    if not isinstance(value, dict | None):
        raise UnfitError(f"{name}: found {value!r:.40}, expected an object")
    return value or {}


def _list_file_names(value: Any) -> list[str]:
    """Return the names of a sample's files if they have no contents, as in logs; else an empty list."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return value
    return []


def _read_files(value: Any) -> dict[str, str]:
    if value == []:
        return {}
    files = _read_object("files", value)
    for path, text in files.items():
        inside = PurePosixPath(path)
        if not isinstance(text, str):
            raise UnfitError(f"files: found {text!r:.40} for {path!r}, expected a text")
        # Inspect writes a file of another sandbox as `name:path`.
        if ":" in path:
            raise UnfitError(f"files: found {path!r}, a file of another sandbox; a case has only one sandbox")
        if not inside.parts or inside.is_absolute() or ".." in inside.parts or "\0" in path:
            raise UnfitError(f"files: found {path!r}, expected a path inside the workspace")
        if any(len(part.encode()) > _LONGEST_PART for part in inside.parts):
            raise UnfitError(f"files: found {path!r:.40}, expected names of at most {_LONGEST_PART} bytes")
    _refuse_clashes([PurePosixPath(path) for path in files])
    return files


def _refuse_clashes(paths: Sequence[PurePosixPath]) -> None:
    """Raise UnfitError for two names of one file, and for a file with the name of another one's folder."""
    seen: set[PurePosixPath] = set()
    # Sorted: a file comes before the files in a folder of its name.
    for path in sorted(paths):
        taken = next((other for other in (path, *path.parents) if other in seen), None)
        if taken is not None:
            raise UnfitError(f"files: found '{taken}' and '{path}', which cannot both exist")
        seen.add(path)


def _read_content(path: str, text: str, folder: Path) -> bytes:
    """Return the bytes of a data URL, of a file in or below `folder`, or of the text itself."""
    head, comma, data = text.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise UnfitError(f"files: {path!r} is not valid base64: {error}") from error
    file = find_local_file(text, folder)
    if file is None and "/" in text and os.path.isdir(os.path.join(folder, text)):
        raise UnfitError(f"files: {path!r} is the folder {text}; name its files one by one")
    if file is None:
        return text.encode()
    return _read(file, f"files: {path!r}")


def find_local_file(text: str, folder: Path) -> Path | None:
    """Return the file that a text names, or None. Raises UnfitError if it is outside of the folder.

    Inspect reads a text as a path if such a file exists, else as the content.
    """
    if not text.strip() or "\n" in text or "\0" in text or len(text) > 1000:
        return None
    top = os.path.realpath(folder)
    # Links are resolved first, so a link that leads out of the folder is outside.
    real = os.path.realpath(os.path.join(top, text))
    if not os.path.isfile(real):
        return None
    if os.path.commonpath([top, real]) != top:
        raise UnfitError(f"found {text!r}, a file outside of {folder}; copy it there")
    return Path(real)


def _read(path: Path, part: str) -> bytes:
    try:
        return read_bytes(path, MAX_FILE)
    except ConfigError as error:
        raise UnfitError(f"{part}: {error}") from error


def _read_sandbox(value: Any, folder: Path) -> tuple[bytes | None, bool | str]:
    """Return the Dockerfile, and whether there is a sandbox; a text describes the remaining manual work."""
    if isinstance(value, dict):
        # Logs have an object in place of the sample's text or list.
        kind, config = value.get("type"), value.get("config")
        value = [kind, config] if config else kind
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            value = parse_cell(value)
    if value is None or value == "":
        return None, False
    if value == "docker":
        return None, True
    if isinstance(value, list) and len(value) == 2 and value[0] == "docker" and isinstance(value[1], str):
        file = find_local_file(value[1], folder)
        if file is not None and "dockerfile" in file.name.lower():
            content = _read(file, "sandbox")
            # COPY needs the folder around the Dockerfile, which the case does not have.
            if re.search(rb"(?im)^\s*(?:COPY|ADD)\b", content) is None:
                return content, True
            return None, f"sandbox: {value[1]} copies files; put all of them next to the case, as sandbox.dockerfile"
    return None, f"sandbox: found {value!r:.60}; set sandbox.image, dockerfile or compose of the case"


def _choose_tools(files: bool, sandboxed: bool) -> tuple[str, ...]:
    """Return the names of the case's tools. Files and a sandbox are useless without; in Inspect solvers add them."""
    tools: list[str] = []
    if sandboxed:
        tools.append("exec_shell")
    if files:
        tools += ["read_file", "write_file", "list_files"]
    return tuple(tools)
