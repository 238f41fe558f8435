"""Inspect's samples (JSON, JSONL, CSV) as drafts."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import ascii_uppercase, punctuation, whitespace
from typing import Any

import regex

from pytest_agentbench.config.documents import read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import Draft, FileContents, Place, nonblank_text, parse_cell

MAX_FILE = 64 * 1024 * 1024
"""Bytes of a file that a sample brings along."""
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
"""The same with English articles, which `exact` and `f1` do not compare either."""
_ARTICLE = re.compile(r"(?:an?|the)\s+(?=\S)", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Z](?:[\s,]*[A-Z])+")
"""Several choices in one text, as Inspect reads them."""
_GRADED = ("model_graded_qa", "model_graded_fact")


class UnfitError(Exception):
    """Reason why a sample becomes no case."""


@dataclass(frozen=True)
class Task:
    """Facts that a log has of all its samples: the scorer (with options), and messages that solvers put in front."""

    scorer: str | None = None
    options: Mapping[str, Any] | None = None
    before: tuple[Mapping[str, str], ...] = ()


def unsupported_options(task: Task) -> Iterator[str]:
    """Yield options of the scorer that its counterpart here does not have."""
    options = task.options or {}
    if task.scorer is None:
        return
    if task.scorer not in (*_OF_SCORERS, *_OF_PATTERNS, *_GRADED):
        yield f"the scorer {task.scorer!r} is code: what decides here is guessed from the targets"
        return
    for name in sorted(options.keys() - _OPTIONS.get(task.scorer, set())):
        yield f"{name} of {task.scorer} is left out"
    if task.scorer == "match" and options.get("numeric"):
        location = options.get("location", "end")
        last = "" if location == "end" else f"; it takes the last number, where match looks at {location!r}"
        yield f"match(numeric=True) becomes numeric_match, which takes 60 % and 60 for the same number{last}"


def add_sample(
    sample: Mapping[str, Any],
    place: Place,
    name: str,
    folder: Path,
    gathered: FileContents,
    task: Task = Task(),
) -> Draft | None:
    """Add the draft of a sample, whose files may be in or below `folder`. Return None if it cannot become a case."""
    try:
        draft = _make_draft(sample, place, name, folder, gathered, task)
    except UnfitError as error:
        gathered.lose(place, str(error))
        return None
    gathered.drafts.append(draft)
    return draft


def _make_draft(
    sample: Mapping[str, Any], place: Place, name: str, folder: Path, gathered: FileContents, task: Task
) -> Draft:
    choices = _read_choices(sample.get("choices"))
    targets = _read_targets(sample.get("target"))
    named = _list_file_names(sample.get("files"))
    texts = {} if named else _read_files(sample.get("files"))
    files = {path: _read_content(path, text, folder) for path, text in texts.items()}
    if named:
        gathered.note(place, f"files: the log names {', '.join(named)} without content; put them into the workspace")
    metadata = _read_object("metadata", sample.get("metadata"))
    dockerfile, sandboxed = _read_sandbox(sample.get("sandbox"), folder)
    setup = nonblank_text(sample.get("setup"))
    if setup is not None:
        gathered.note(place, "setup: a script is not run before a case; let the workspace or sandbox.dockerfile do it")
    if isinstance(sandboxed, str):
        gathered.note(place, sandboxed)
    unfinished = setup is not None or isinstance(sandboxed, str) or bool(named)
    others = {key: value for key, value in sample.items() if key not in _USED and value not in (None, "", [], {})}
    # "A, C" in one text are two choices to Inspect, unless a choice reads so itself.
    several = len(targets) > 1 or any(_LETTERS.fullmatch(each) and each not in choices for each in targets)
    if choices and several:
        raise UnfitError(f"target: found several choices ({', '.join(targets)}), which multiple_choice cannot ask for")
    title = nonblank_text(sample.get("description"))
    return Draft(
        place=place,
        name=name,
        title=title,
        messages=(*task.before, *_read_messages(sample.get("input"))),
        choices=choices,
        tools=_choose_tools(bool(files or named), bool(sandboxed)),
        files=files,
        dockerfile=dockerfile,
        metadata={**others, **({} if setup is None else {"setup": setup}), **metadata},
        unfinished=unfinished,
        **_decide_case(targets, choices, task),
    )


def _decide_case(targets: tuple[str, ...], choices: tuple[str, ...], task: Task) -> dict[str, Any]:
    """Return reference, metric and checks of a sample."""
    if not targets:
        return {}
    options = task.options or {}
    # The default of Inspect's match.
    location = str(options.get("location", "end"))
    where = {"match": location, "exact": "exact", "f1": "exact"}.get(task.scorer or "", "any")
    name = "multiple_choice" if choices else _OF_SCORERS.get(task.scorer or "")
    if task.scorer == "match" and options.get("numeric"):
        if len(targets) > 1:
            raise UnfitError(f"target: found several numbers ({', '.join(targets)}), of which numeric_match takes one")
        name = "numeric_match"
    if task.scorer in _GRADED:
        return {"reference": "\n".join(targets), "metric": {"name": "llm_judgement", "threshold": 1.0}}
    if name is not None and len(targets) == 1:
        return {"reference": targets[0], "metric": {"name": name, "threshold": 1.0}}
    if task.scorer in _OF_PATTERNS or len(targets) > 1:
        return {"reference": targets[0], "compared": False, "checks": (_make_pattern_check(targets, where, task),)}
    return {"reference": targets[0]}


def _make_pattern_check(targets: tuple[str, ...], location: str, task: Task) -> dict[str, Any]:
    """Return the check for `match` and `includes`: it finds one of the targets, at an end but for punctuation, or
    anywhere.
    """
    any_of = "|".join(regex.escape(_compared_part(target, task.scorer), literal_spaces=True) for target in targets)
    around = _SKIPPED_WORDS if task.scorer in _OF_WORDS else _SKIPPED
    pattern = {
        "begin": rf"\A{_SKIPPED}(?:{any_of})",
        "end": rf"(?:{any_of}){_SKIPPED}\Z",
        "exact": rf"\A{around}(?:{any_of}){around}\Z",
    }.get(location, any_of)
    ignored = (task.options or {}).get("ignore_case", True) is not False
    return {"declarative": {"kind": "regex_match", "pattern": pattern, **({"ignore_case": True} if ignored else {})}}


def _compared_part(target: str, scorer: str | None) -> str:
    """Return the part of a target that the scorer compares."""
    # Inspect strips punctuation and white space from both sides, but not to look for a part.
    if scorer == "includes":
        return target
    stripped = (scorer is not None and target.strip(_IGNORED)) or target.strip()
    if scorer in _OF_WORDS and _ARTICLE.match(stripped):
        return _ARTICLE.sub("", stripped, count=1)
    return stripped


def _read_messages(given: Any) -> tuple[dict[str, str], ...]:
    if isinstance(given, str) and given.strip():
        return ({"role": "user", "content": given},)
    if not isinstance(given, list) or not given:
        raise UnfitError(f"input: found {given!r:.40}, expected a text or a list of messages")
    messages = tuple(_read_message(at, message) for at, message in enumerate(given))
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        raise UnfitError("input: found no text of a user in it")
    return messages


def _read_message(at: int, message: Any) -> dict[str, str]:
    where = f"input[{at}]"
    if not isinstance(message, dict) or message.get("role") not in _ROLES or message.get("tool_calls"):
        raise UnfitError(f"{where}: found a tool's message or call, expected texts of {', '.join(_ROLES)}")
    content = message.get("content")
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            raise UnfitError(f"{where}: found an image, sound or file; messages of cases are texts")
        content = "\n".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise UnfitError(f"{where}.content: found {content!r:.40}, expected a text")
    return {"role": message["role"], "content": content}


def _read_targets(given: Any) -> tuple[str, ...]:
    targets = given if isinstance(given, list) else [given]
    if not all(isinstance(target, str | int | float | None) for target in targets):
        raise UnfitError(f"target: found {given!r:.40}, expected a text or a list of texts")
    return tuple(str(target) for target in targets if target is not None and str(target).strip())


def _read_choices(given: Any) -> tuple[str, ...]:
    """Return the choices as Inspect reads them: a list, or a text with commas (else spaces) between them."""
    if isinstance(given, str):
        given = [part for part in (given.split(",") if "," in given else given.split()) if part.strip()]
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(choice, str | int | float) for choice in given):
        raise UnfitError(f"choices: found {given!r:.40}, expected a list of texts")
    choices = tuple(str(choice).strip() for choice in given)
    if not all(choices) or len(choices) > len(ascii_uppercase):
        raise UnfitError(
            f"choices: found {given!r:.40}, expected up to {len(ascii_uppercase)} texts that are not empty"
        )
    return choices


def _read_object(name: str, given: Any) -> dict[str, Any]:
    try:
        value = parse_cell(given)
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"{name}: not valid JSON: {error}") from error
    if not isinstance(value, dict | None):
        raise UnfitError(f"{name}: found {value!r:.40}, expected an object")
    return value or {}


def _list_file_names(given: Any) -> list[str]:
    """Return the names of a sample's files as logs have them: a list, without contents."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return given
    return []


def _read_files(given: Any) -> dict[str, str]:
    files = {} if given == [] else _read_object("files", given)
    for path, text in files.items():
        inside = PurePosixPath(path)
        if not isinstance(text, str):
            raise UnfitError(f"files: found {text!r:.40} for {path!r}, expected a text")
        # `name:path` is Inspect's way to name another sandbox.
        if ":" in path:
            raise UnfitError(f"files: found {path!r}, a file of another sandbox; a case has one")
        if not inside.parts or inside.is_absolute() or ".." in inside.parts or "\0" in path:
            raise UnfitError(f"files: found {path!r}, expected a path inside the workspace")
        if any(len(part.encode()) > _LONGEST_PART for part in inside.parts):
            raise UnfitError(f"files: found {path!r:.40}, expected names of at most {_LONGEST_PART} bytes")
    _refuse_clashes([PurePosixPath(path) for path in files])
    return files


def _refuse_clashes(paths: Sequence[PurePosixPath]) -> None:
    """Raise UnfitError for two names of one file, and for a file where another one needs a folder."""
    seen: set[PurePosixPath] = set()
    for path in sorted(paths):
        taken = next((other for other in (path, *path.parents) if other in seen), None)
        if taken is not None:
            raise UnfitError(f"files: found '{taken}' and '{path}', which cannot both be there")
        seen.add(path)


def _read_content(path: str, text: str, folder: Path) -> bytes:
    """Return a file's bytes: of a data URL, of a file in or below `folder`, else the text itself."""
    head, comma, data = text.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise UnfitError(f"files: {path!r} is not valid base64: {error}") from error
    found = find_beside(text, folder)
    if found is None and "/" in text and os.path.isdir(os.path.join(folder, text)):
        raise UnfitError(f"files: {path!r} is the folder {text}; name its files one by one")
    if found is None:
        return text.encode()
    return _read(found, f"files: {path!r}")


def find_beside(text: str, folder: Path) -> Path | None:
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


def _read(path: Path, what: str) -> bytes:
    try:
        return read_bytes(path, MAX_FILE)
    except ConfigError as error:
        raise UnfitError(f"{what}: {error}") from error


def _read_sandbox(given: Any, folder: Path) -> tuple[bytes | None, bool | str]:
    """Return the Dockerfile, and whether there is a sandbox; a text describes the remaining manual work."""
    if isinstance(given, dict):  # in a log
        given = [given.get("type"), given.get("config")] if given.get("config") else given.get("type")
    if isinstance(given, str) and given.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            given = parse_cell(given)
    if given is None or given == "":
        return None, False
    if given == "docker":
        return None, True
    if isinstance(given, list) and len(given) == 2 and given[0] == "docker" and isinstance(given[1], str):
        found = find_beside(given[1], folder)
        if found is not None and "dockerfile" in found.name.lower():
            content = _read(found, "sandbox")
            # COPY needs the folder around the Dockerfile, which the case does not have.
            if re.search(rb"(?im)^\s*(?:COPY|ADD)\b", content) is None:
                return content, True
            return None, f"sandbox: {given[1]} copies files; put it and them beside the case as sandbox.dockerfile"
    return None, f"sandbox: found {given!r:.60}; say in sandbox.image, dockerfile or compose what the case needs"


def _choose_tools(files: bool, sandboxed: bool) -> tuple[str, ...]:
    """Name the tools a case gets: a solver brings them in Inspect; files and a sandbox are of no use without any."""
    return (*(("exec_shell",) if sandboxed else ()), *(("read_file", "write_file", "list_files") if files else ()))
