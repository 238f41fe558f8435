"""Which script answers which request: by the case's id, else by the last user message."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.config.loader import load
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.conversation import NoScript, Script, list_user_turns, message_text, short
from pytest_agentbench.models.script_files import (
    CaseScript,
    Reply,
    ScriptedJudgement,
    ScriptedSearchResult,
    ScriptedVerdict,
    dataset_script_model,
)
from pytest_agentbench.records.case import Case
from pytest_agentbench.sources.case_source import SourceCase, SourceRequest
from pytest_agentbench.sources.dataset import legal_id
from pytest_agentbench.sources.discovery import open_source
from pytest_agentbench.sources.names import source_names
from pytest_agentbench.sources.test_yaml import CASE_FILES

CASE_SCRIPT = "demo.yaml"
DATASET_SCRIPT = ".demo.yaml"


@dataclass(frozen=True, eq=False, slots=True)
class _Beside:
    """What lies beside a file of cases, or would at `path`: a script for each of some case ids, one for all others."""

    path: Path
    by_case: Mapping[str, Script] = field(default_factory=dict)
    default: Script | None = None

    def of(self, case_id: str) -> Script | None:
        """Return the script of a case; None where none is there."""
        return self.by_case.get(case_id, self.default)


class Scripts:
    """All scripts of a session or a server. Lookups take the same time however many there are."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._seen: dict[tuple[Path, str | None], _Beside | ConfigError] = {}
        self._of_case: dict[str, list[_Beside]] = {}
        self._of_dataset: dict[str | None, list[_Beside]] = {}
        self._by_message: dict[str, dict[str, None]] = {}
        self._patterns: list[tuple[Reply, str]] = []
        self._standalone: list[str] = []

    @property
    def count(self) -> int:
        """Return how many cases, rows and defaults are scripted."""
        found = (beside for beside in self._seen.values() if isinstance(beside, _Beside))
        return sum(len(beside.by_case) + (beside.default is not None) for beside in found)

    def load_beside(self, case: Case) -> _Beside:
        """Let the script beside the file of `case` answer it. It is read at the file's first sight.

        :raises ConfigError: the script is wrong; again at each call.
        """
        beside = self._beside(case)
        known = self._of_case.setdefault(case.case_id, [])
        if beside not in known:
            known.append(beside)
        return beside

    def answers_digest(self, case: Case) -> str | None:
        """SHA-256 of what the script beside its file says to the case's runs; None where there is none. Loads it.

        :raises ConfigError: the script is wrong.
        """
        script = self.load_beside(case).of(case.case_id)
        return None if script is None else script.answers_digest

    def verdict_digest(self, case: Case) -> str | None:
        """Return the same of what it says as a judge of the case."""
        script = self.load_beside(case).of(case.case_id)
        return None if script is None else script.verdict_digest

    def _beside(self, case: Case) -> _Beside:
        """Return what lies beside the file of the case, read at first sight."""
        file = (case.path, case.dataset)  # several datasets may share a file
        beside = self._seen.get(file)
        if beside is None:
            try:
                beside = _load_case(case) if case.dataset is None else _load_rows(case)
                self._of_dataset.setdefault(case.dataset, []).append(beside)
            except ConfigError as error:
                beside = error
            self._seen[file] = beside
        if isinstance(beside, ConfigError):
            raise beside
        return beside

    def load_tree(self, folder: Path) -> None:
        """Load every script under `folder`, with the cases they belong to, so that their messages find them.

        A `demo.yaml` without a case beside it answers the messages that its replies name, and all others with the
        reply that names none. What cannot be loaded is left out and named in `problems`, one text each.
        """
        for path in _script_files(folder):
            try:
                self._load_file(path, folder)
            except ConfigError as error:
                self.problems.append(str(error))

    def find(self, case_id: str | None, messages: Sequence[Mapping[str, Any]]) -> Script:
        """Return the script for a request of the case `case_id`, or, without one, for the last user message that one
        knows.

        :raises NoScript: none answers, or several do.
        """
        if case_id is None:
            case_id = self._case_of([text for text, _ in list_user_turns(messages)])
        if (script := self._of(case_id)) is None:
            raise NoScript(f"no script answers case {case_id!r}; add a reply to {self._place(case_id)}")
        return script

    def verdict(self, case_id: str | None, messages: Sequence[Mapping[str, Any]], iteration: int) -> ScriptedVerdict:
        """Return what a judge says of the case `case_id`, or, without one, of the case whose message the prompt quotes.

        :raises NoScript: none says it, or several do.
        """
        if case_id is None:
            case_id = self._quoted_case(messages)
        script = self._of(case_id)
        verdict = script.verdict(iteration) if script is not None else None
        if verdict is None:
            place = script.path if script else self._place(case_id)
            raise NoScript(f"no scripted verdict for case {case_id!r}; add a `judge:` section to {place}")
        return verdict

    def judgement(
        self, case_id: str | None, messages: Sequence[Mapping[str, Any]], repetition: int
    ) -> ScriptedJudgement:
        """Return what a judge says of the correctness of the case's answer, found like `verdict`.

        :raises NoScript: none says it, or several do.
        """
        if case_id is None:
            case_id = self._quoted_case(messages)
        script = self._of(case_id)
        vote = script.vote(repetition) if script is not None else None
        if vote is None:
            place = script.path if script else self._place(case_id)
            key = "judgements" if str(place).endswith(DATASET_SCRIPT) else "judgement"
            raise NoScript(f"no scripted judgement for case {case_id!r}; add it under `{key}:` to {place}")
        return vote

    def stage(
        self, case_id: str | None, messages: Sequence[Mapping[str, Any]], section: str, stage: str, request: int
    ) -> str:
        """Return what a judge says of the case at a stage of a section, found like `verdict`.

        :raises NoScript: none says it, or several do.
        """
        if case_id is None:
            case_id = self._quoted_case(messages)
        script = self._of(case_id)
        said = script.stage(section, stage, request) if script is not None else None
        if said is None:
            place = script.path if script else self._place(case_id)
            raise NoScript(f"nothing is scripted for {stage!r} of {case_id!r}; add it under `{section}:` to {place}")
        return said

    def search(self, case_id: str, query: str) -> tuple[ScriptedSearchResult, ...]:
        """Return what the tool web_search finds for a run of the case on a scripted model.

        :raises NoScript: the case's script has no such query.
        """
        script = self._of(case_id)
        if script is None or query not in script.web_search:
            place = script.path if script else self._place(case_id)
            raise NoScript(
                f"no scripted search for {short(query)} in case {case_id!r}; add it to web_search in {place}"
            )
        return script.web_search[query]

    def page(self, case_id: str, url: str) -> str:
        """Return the text that the tool web_fetch gets for a run of the case on a scripted model.

        :raises NoScript: the case's script has no such page.
        """
        script = self._of(case_id)
        if script is None or url not in script.web_fetch:
            place = script.path if script else self._place(case_id)
            raise NoScript(f"no scripted page {short(url)} in case {case_id!r}; add it to web_fetch in {place}")
        return script.web_fetch[url]

    def pages(self, case_id: str) -> Mapping[str, str]:
        """Return the pages that the case's script has, by URL.

        Raises NoScript where several scripts answer the case.
        """
        script = self._of(case_id)
        return {} if script is None else script.web_fetch

    def _load_file(self, path: Path, folder: Path) -> None:
        """Load one script of a tree, with its case or dataset."""
        case_files = _belongs_to(path)
        for case_file in case_files:
            for case in _cases(case_file, folder):
                self.load_beside(case)
                self._index(case.case_id, _user_messages(case))
        if case_files:
            return
        if path.name != CASE_SCRIPT:
            raise ConfigError(f"{path}:1:1: found no dataset for it; expected a .jsonl or .json of the same name")
        beside = self._seen[path, None] = _read_case(str(path), path)
        self._of_case[str(path)] = [beside]
        self._standalone.append(str(path))
        self._index(str(path), [])

    def _index(self, case_id: str, user_messages: Iterable[str]) -> None:
        """Make a case known by its user messages, and by those that its replies name."""
        script = self._of(case_id)
        if script is None:
            return
        texts = [reply.when for reply in script.replies if reply.when is not None]
        if not all(reply.is_specific for reply in script.replies):
            texts += user_messages
        for text in texts:
            self._by_message.setdefault(text, {})[case_id] = None
        self._patterns += [(reply, case_id) for reply in script.replies if reply.matches is not None]

    def _of(self, case_id: str) -> Script | None:
        besides = self._besides(case_id)
        scripts = [beside.by_case[case_id] for beside in besides if case_id in beside.by_case]
        scripts = scripts or [beside.default for beside in besides if beside.default is not None]
        if len(scripts) > 1:
            places = ", ".join(str(script.path) for script in scripts)
            raise NoScript(f"several scripts answer case {case_id!r}: {places}; rename one case", "ambiguous_script")
        return scripts[0] if scripts else None

    def _place(self, case_id: str) -> str:
        """Return where a script of the case would lie."""
        besides = self._besides(case_id)
        return str(besides[0].path) if besides else f"a {CASE_SCRIPT} beside it"

    def _besides(self, case_id: str) -> list[_Beside]:
        """Return what lies beside the file of a case; for a row that nobody has loaded, beside all files of its
        dataset.
        """
        if case_id in self._of_case:
            return self._of_case[case_id]
        return [beside for name in _prefixes(case_id) for beside in self._of_dataset.get(name, ())]

    def _case_of(self, user_messages: Sequence[str]) -> str:
        found: Iterable[str] = ()
        for text in user_messages:
            found = self._by_message.get(text) or dict.fromkeys(
                of for reply, of in self._patterns if reply.answers(text)
            )
            if found:
                break
        return self._only(found or self._standalone, f"the user message {short(next(iter(user_messages), ''))}")

    def _quoted_case(self, messages: Sequence[Mapping[str, Any]]) -> str:
        prompt = "\n".join(message_text(message) for message in messages)
        quoted = [text for text in self._by_message if text in prompt or _escaped(text) in prompt]
        found: Iterable[str] = self._by_message[max(quoted, key=len)] if quoted else ()
        found = found or dict.fromkeys(case_id for reply, case_id in self._patterns if reply.answers(prompt))
        return self._only(found or self._standalone, "this judge's prompt")

    def _only(self, case_ids: Iterable[str], what: str) -> str:
        """Return the one case among `case_ids`, or any of those that are answered alike."""
        found = list(case_ids)
        if not found:
            raise NoScript(
                f"no script answers {what}; add a reply with `when` to the {CASE_SCRIPT} of its case, or an answer to "
                f"the <name>{DATASET_SCRIPT} of its dataset"
            )
        first, *others = (self._of(case_id) for case_id in found)
        if any(first is None or other is None or other.replies != first.replies for other in others):
            raise NoScript(
                f"{what} belongs to several cases with different scripts: {', '.join(found[:5])}; name the case in the "
                "header X-Agentbench-Case, or reword one",
                "ambiguous_script",
            )
        return found[0]


def _load_case(case: Case) -> _Beside:
    path = case.path.with_name(CASE_SCRIPT)
    return _read_case(case.case_id, path) if path.is_file() else _Beside(path)


def _read_case(case_id: str, path: Path) -> _Beside:
    said = load(path, CaseScript)
    script = Script(path, said.replies, said.judge, said.judgement, said.web_search, said.web_fetch)
    return _Beside(path, {case_id: script})


def _load_rows(case: Case) -> _Beside:
    path = dataset_script(case.path)
    prefix = "" if any(part.has_own_id for part in case.case_parts) else f"{case.dataset}."
    if not path.is_file():
        return _Beside(path)
    said = load(path, dataset_script_model())
    default = () if said.default is None else _as_replies(said.default)
    by_case = {}
    for item_id in said.item_ids:
        replies = _as_replies(said.answers[item_id]) if item_id in said.answers else default
        judge = said.judges.get(item_id, said.judge)
        stages = said.stages(item_id)
        script = Script(path, replies, judge, said.judgements.get(item_id), web_fetch=said.web_fetch, staged=stages)
        by_case[prefix + legal_id(item_id)] = script
    others = Script(path, default, said.judge, web_fetch=said.web_fetch, staged=said.stages())
    return _Beside(path, by_case, others if default or any(said.stages().values()) or said.web_fetch else None)


def dataset_script(dataset_file: Path) -> Path:
    """Return where the script of a dataset lies: `<name>.demo.yaml` for `<name>.jsonl`."""
    return dataset_file.with_name(dataset_file.stem + DATASET_SCRIPT)


def _user_messages(case: Case) -> list[str]:
    """Return what the case's agent may be asked."""
    said = [message.content for message in (*case.messages, *case.turns) if message.role == "user"]
    return [text for part in case.case_parts for text in part.asked_texts] or said


def _as_replies(answer: str | Reply | tuple[Reply, ...]) -> tuple[Reply, ...]:
    if isinstance(answer, tuple):
        return answer
    return (Reply(content=answer) if isinstance(answer, str) else answer,)


def _escaped(text: str) -> str:
    """`text` as it stands inside JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _prefixes(case_id: str) -> Iterator[str]:
    """Yield the dataset names that a row's id `<dataset>.<item>` can begin with."""
    at = case_id.find(".")
    while at >= 0:
        yield case_id[:at]
        at = case_id.find(".", at + 1)


def _script_files(folder: Path) -> Iterator[Path]:
    """Yield every script under `folder`, hidden folders left out."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (
            Path(parent, name) for name in sorted(files) if name == CASE_SCRIPT or name.endswith(DATASET_SCRIPT)
        )


def _belongs_to(script: Path) -> list[Path]:
    """Return the case file or the datasets that a script lies beside."""
    if script.name == CASE_SCRIPT:
        candidates = [script.with_name(name) for name in CASE_FILES]
    else:
        stem = script.name.removesuffix(DATASET_SCRIPT)
        names = (stem + suffix for suffix in (".jsonl", ".json", ".yaml", ".yml"))
        candidates = [script.with_name(name) for name in names if source_names(name)]
    return [path for path in candidates if path.is_file()]


def _cases(case_file: Path, folder: Path) -> Iterator[Case]:
    here = Path.cwd()
    root = find_root(case_file, here if folder.is_relative_to(here) else folder, None)
    rows = open_source(case_file, SourceRequest(root)).rows()
    yield from (row.make() for row in rows if isinstance(row, SourceCase))  # bad rows are for `agentbench validate`
