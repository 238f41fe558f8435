"""All scripts below a folder, which answer requests that name no case: `agentbench serve` has these."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.models.script_files import Reply
from pytest_agentbench.models.scripts import (
    CASE_SCRIPT,
    DATASET_SCRIPT,
    JUDGES_PROMPT,
    NoScript,
    Scripts,
    describe_message,
    list_user_turns,
    make_unanswered,
    read_case_script,
)
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest
from pytest_agentbench.sources.discovery import open_source
from pytest_agentbench.sources.names import source_names
from pytest_agentbench.sources.test_yaml import CASE_FILES


class ScriptTree(Scripts):
    """The scripts below a folder, found by the case's id, else by the last user message.

    A `demo.yaml` without a case next to it answers the messages that its replies name, and all others with the
    reply that names none. A script that cannot be loaded is left out and listed in `problems`, one text each.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._by_message: dict[str, dict[str, None]] = {}
        self._patterns: list[tuple[Reply, str]] = []
        self._standalone: list[str] = []
        for path in _list_scripts(folder):
            try:
                self._load_file(path, folder)
            except ConfigError as error:
                self.problems.append(str(error))

    def _load_file(self, path: Path, folder: Path) -> None:
        """Load one script of a tree, with its case or dataset."""
        case_files = _find_case_files(path)
        for case_file in case_files:
            for case in _read_cases(case_file, folder):
                self.load_beside(case)
                self._index_messages(case.case_id, _list_asked_texts(case))
        if case_files:
            return
        if path.name != CASE_SCRIPT:
            raise ConfigError(f"{path}:1:1: found no dataset for it; expected a .jsonl or .json of the same name")
        beside = self._seen[path, None] = read_case_script(str(path), path)
        self._of_case[str(path)] = [beside]
        self._standalone.append(str(path))
        self._index_messages(str(path), [])

    def _index_messages(self, case_id: str, user_messages: Iterable[str]) -> None:
        """Index a case by its user messages, and by the messages that its replies name."""
        script = self.find_script(case_id)
        if script is None:
            return
        texts = [reply.when for reply in script.replies if reply.when is not None]
        if not all(reply.is_specific for reply in script.replies):
            texts += user_messages
        for text in texts:
            self._by_message.setdefault(text, {})[case_id] = None
        self._patterns += [(reply, case_id) for reply in script.replies if reply.matches is not None]

    def _find_asked_case(self, messages: Sequence[Mapping[str, Any]]) -> str:
        found: Iterable[str] = ()
        for text, _ in list_user_turns(messages):
            found = self._by_message.get(text) or dict.fromkeys(
                of for reply, of in self._patterns if reply.answers(text)
            )
            if found:
                break
        return self._choose_alike(found or self._standalone, describe_message(messages))

    def _find_judged_case(self, messages: Sequence[Mapping[str, Any]]) -> str:
        prompt = "\n".join(message_text(message) for message in messages)
        # A judge's prompt quotes the task, plainly or within JSON; the longest match is the most specific.
        quoted = [
            text for text in self._by_message if text in prompt or json.dumps(text, ensure_ascii=False)[1:-1] in prompt
        ]
        case_ids: Iterable[str] = self._by_message[max(quoted, key=len)] if quoted else ()
        case_ids = case_ids or dict.fromkeys(case_id for reply, case_id in self._patterns if reply.answers(prompt))
        return self._choose_alike(case_ids or self._standalone, JUDGES_PROMPT)

    def _choose_alike(self, candidates: Iterable[str], request: str) -> str:
        """Return the only case among the candidates, or any of them if all have equal replies."""
        case_ids = list(candidates)
        if not case_ids:
            raise make_unanswered(request)
        first, *others = (self.find_script(case_id) for case_id in case_ids)
        # Cases with the same message and the same script, such as copies, need not be distinguished.
        if any(first is None or other is None or other.replies != first.replies for other in others):
            raise NoScript(
                f"{request} belongs to several cases with different scripts: {', '.join(case_ids[:5])}; name the "
                "case in the header X-Agentbench-Case, or reword one",
                "ambiguous_script",
            )
        return case_ids[0]


def _list_asked_texts(case: Case) -> list[str]:
    """Return the possible questions to the case's agent."""
    questions = [message.content for message in (*case.messages, *case.turns) if message.role == "user"]
    return [text for part in case.case_parts for text in part.asked_texts] or questions


def _list_scripts(folder: Path) -> Iterator[Path]:
    """Yield every script under `folder`, hidden folders left out."""
    for parent, folders, files in os.walk(folder):
        # In place: os.walk then leaves the others out.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(parent, name) for name in sorted(files) if name == CASE_SCRIPT or name.endswith(DATASET_SCRIPT)
        )


def _find_case_files(script: Path) -> list[Path]:
    """Return the case file or the datasets next to a script."""
    if script.name == CASE_SCRIPT:
        candidates = [script.with_name(name) for name in CASE_FILES]
    else:
        stem = script.name.removesuffix(DATASET_SCRIPT)
        names = (stem + suffix for suffix in (".jsonl", ".json", ".yaml", ".yml"))
        candidates = [script.with_name(name) for name in names if source_names(name)]
    return [path for path in candidates if path.is_file()]


def _read_cases(case_file: Path, folder: Path) -> Iterator[Case]:
    here = Path.cwd()
    root = find_root(case_file, here if folder.is_relative_to(here) else folder, None)
    rows = open_source(case_file, SourceRequest(root)).rows()
    yield from (row.make() for row in rows if isinstance(row, SourceCase))  # bad rows are for `agentbench validate`
