"""Scripts of scripted models: find the script of a case, and its answer in a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.config.base import load
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.records.case import Case, legal_id
from pytest_agentbench.terminal_text import shorten_text

if TYPE_CHECKING:
    from pytest_agentbench.models.script_files import (
        Reply,
        ScriptedJudgement,
        ScriptedSearchResult,
        ScriptedStages,
        ScriptedVerdict,
        ScriptedVerdicts,
        ScriptedVotes,
        Step,
    )

CASE_SCRIPT = "demo.yaml"
DATASET_SCRIPT = ".demo.yaml"

T = TypeVar("T")


class NoScript(AgentbenchError):
    """No script, or more than one, answers a request; the text names the place to add or change one."""

    def __init__(self, message: str, code: str = "no_script") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Script:
    """The script of one case: its replies in order, its judges, its web. `path` is the file that it comes from."""

    path: Path
    replies: tuple[Reply, ...]
    judge: ScriptedVerdicts | None = None
    votes: ScriptedVotes | None = None
    web_search: Mapping[str, tuple[ScriptedSearchResult, ...]] = field(default_factory=dict)
    web_fetch: Mapping[str, str] = field(default_factory=dict)
    staged: Mapping[str, ScriptedStages] = field(default_factory=dict)
    roles: Mapping[str, tuple[Reply, ...]] = field(default_factory=dict)

    @cached_property
    def answers_digest(self) -> str:
        """Return the SHA-256 of the script's answers in a run: replies, searches, pages and replies of roles."""
        answers: list[object] = [self.replies, self.web_search]
        if self.web_fetch:  # scripts without pages keep the digests that they had before pages existed
            answers.append(self.web_fetch)
        if self.roles:
            answers.append({"roles": self.roles})
        return fingerprint(answers)

    def of_role(self, role: str) -> Script:
        """Return the script by which a model plays the role.

        :raises NoScript: the script has no such role.
        """
        if role not in self.roles:
            raise NoScript(f"no script plays the role {role!r}; add it under `roles:` to {self.path}")
        return replace(self, replies=self.roles[role])

    @cached_property
    def verdict_digest(self) -> str:
        """Return the SHA-256 of its judges' replies."""
        # Only sections with stages count: scripts without them keep their earlier digests.
        stages = [stages for stages in self.staged.values() if stages]
        return fingerprint([self.judge, self.votes, *stages])

    def count_skipped(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the number of steps with calls that `step` skips for a conversation without offered tools.

        :raises NoScript: the script has no reply to the message.
        """
        reply, position = self._find_reply(messages)
        skipped = 0
        for step in reply.sequence[position:]:
            if not step.tool_calls:
                break
            skipped += 1
        return skipped

    def step(self, messages: Sequence[Mapping[str, Any]], *, offers_tools: bool) -> Step:
        """Return the answer to a conversation; the number of assistant messages selects the step.

        Without offered tools, steps with calls are skipped, because no model could make them.

        :raises NoScript: the script has no reply to the message, or no further step.
        """
        reply, position = self._find_reply(messages)
        steps = reply.sequence
        if not offers_tools:
            texts = [step for step in steps if not step.tool_calls]
            return next((step for step in steps[position:] if not step.tool_calls), (texts or list(steps))[-1])
        if position >= len(steps):
            raise NoScript(
                f"the reply has {len(steps)} steps and this is request {position + 1}; add a step to {self.path}",
                "script_exhausted",
            )
        return steps[position]

    def verdict(self, iteration: int) -> ScriptedVerdict | None:
        """Return a judge's verdict on the case in this iteration (from 1), or None if there is no script.

        :raises NoScript: there is a list of verdicts, and it is shorter.
        """
        if not isinstance(self.judge, tuple):
            return self.judge
        return self._take_nth(self.judge, iteration, "the judge has {} verdicts and this is iteration {}")

    def vote(self, repetition: int) -> ScriptedJudgement | None:
        """Return a judge's vote on the answer's correctness at this repetition (from 1), or None if there is no script.

        :raises NoScript: there is a list of votes, and it is shorter.
        """
        vote = self.votes
        if isinstance(vote, tuple):
            vote = self._take_nth(vote, repetition, "the judgement has {} votes and this is repetition {}")
        if not isinstance(vote, bool):
            return vote
        from pytest_agentbench.models.script_files import ScriptedJudgement

        return ScriptedJudgement(correct=vote)

    def stage(self, section: str, stage: str, request: int) -> str | None:
        """Return a judge's reply at this request (from 1) of a section's stage, or None if there is no script.

        :raises NoScript: there is a list of replies, and it is shorter.
        """
        reply = self.staged.get(section, {}).get(stage)
        if isinstance(reply, list):
            reply = self._take_nth(tuple(reply), request, f"{stage} has {{}} replies and this is request {{}}")
        if reply is None or isinstance(reply, str):
            return reply
        return json.dumps(reply, ensure_ascii=False)

    def _take_nth(self, replies: tuple[T, ...], number: int, problem: str) -> T:
        if number > len(replies):
            raise NoScript(f"{problem.format(len(replies), number)}; add one to {self.path}", "script_exhausted")
        return replies[number - 1]

    def _find_reply(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Reply, int]:
        """Return the reply, and the number of assistant messages after its user message.

        The user message is the last one, or, without a reply for it, an earlier one: runners add further messages.
        """
        turns = list_user_turns(messages) or [("", 0)]
        for nth, (text, answers) in enumerate(turns):
            for reply in self.replies:
                if reply.is_specific and reply.answers(text):
                    return reply, answers
            # A reply without `when` answers only the last message: an older one has its answer already.
            if nth == 0:
                for reply in self.replies:
                    if not reply.is_specific:
                        return reply, answers
        raise NoScript(f"no reply is for the message {_quote_briefly(turns[0][0])}; add one with `when` to {self.path}")


def list_user_turns(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the user messages' texts, last first, each with the number of assistant messages after it."""
    turns, answers = [], 0
    for message in reversed(messages):
        if message.get("role") == "user":
            turns.append((message_text(message), answers))
        answers += message.get("role") == "assistant"
    return turns


def _quote_briefly(text: str) -> str:
    """Return `text` quoted and cut to 80 characters, for error messages."""
    return repr(shorten_text(text, 80))


@dataclass(frozen=True, eq=False, slots=True)
class FileScripts:
    """The scripts next to a file of cases, at `path`: one for each of some case ids, one for all others."""

    path: Path
    by_case: Mapping[str, Script] = field(default_factory=dict)
    default: Script | None = None

    def of(self, case_id: str) -> Script | None:
        """Return the script of a case, or None."""
        return self.by_case.get(case_id, self.default)


class Scripts:
    """All scripts of a session or a server. The time of a look-up does not depend on their number."""

    def __init__(self) -> None:
        # By the file of cases and the name of its dataset, None for a test.yaml.
        self._seen: dict[tuple[Path, str | None], FileScripts | ConfigError] = {}
        self._of_case: dict[str, list[FileScripts]] = {}
        self._of_dataset: dict[str | None, list[FileScripts]] = {}

    @property
    def count(self) -> int:
        """Return how many cases, rows and defaults are scripted."""
        files = (scripts for scripts in self._seen.values() if isinstance(scripts, FileScripts))
        return sum(len(scripts.by_case) + (scripts.default is not None) for scripts in files)

    def load_beside(self, case: Case) -> FileScripts:
        """Load the script next to the file of `case`, at the file's first use.

        :raises ConfigError: the script is wrong; again at each call.
        """
        beside = self._read_beside(case)
        case_scripts = self._of_case.setdefault(case.case_id, [])
        # Cases of several roots may share an id. A request for such an id is refused if several have a script.
        if beside not in case_scripts:
            case_scripts.append(beside)
        return beside

    def answers_digest(self, case: Case) -> str | None:
        """Return the SHA-256 of the answers for the case's runs in the script next to its file, or None without one.

        Loads the script.

        :raises ConfigError: the script is wrong.
        """
        script = self.load_beside(case).of(case.case_id)
        if script is None:
            return None
        return script.answers_digest

    def verdict_digest(self, case: Case) -> str | None:
        """Return the SHA-256 of its replies as a judge of the case, or None."""
        script = self.load_beside(case).of(case.case_id)
        if script is None:
            return None
        return script.verdict_digest

    def _read_beside(self, case: Case) -> FileScripts:
        """Return the scripts next to the file of the case, read at first use."""
        file = (case.path, case.dataset)  # several datasets may share a file
        beside = self._seen.get(file)
        if beside is None:
            try:
                beside = _load_case(case) if case.dataset is None else _load_rows(case)
                self._of_dataset.setdefault(case.dataset, []).append(beside)
            # Errors are cached too: all cases of a broken script get the same error, and it is read once.
            except ConfigError as error:
                beside = error
            self._seen[file] = beside
        if isinstance(beside, ConfigError):
            raise beside
        return beside

    def find(self, case_id: str | None, messages: Sequence[Mapping[str, Any]]) -> Script:
        """Return the script for a request of the case `case_id`; None: of the case whose script has the user message.

        :raises NoScript: none answers, or several do.
        """
        if case_id is None:
            case_id = self._find_asked_case(messages)
        if (script := self.find_script(case_id)) is None:
            raise NoScript(f"no script answers case {case_id!r}; add a reply to {self._find_place(case_id)}")
        return script

    def verdict(self, case_id: str | None, messages: Sequence[Mapping[str, Any]], iteration: int) -> ScriptedVerdict:
        """Return a judge's verdict on the case `case_id`; None: on the case whose message the prompt quotes.

        :raises NoScript: no script has one, or several do.
        """
        if case_id is None:
            case_id = self._find_judged_case(messages)
        script = self._find_script_or_empty(case_id)
        verdict = script.verdict(iteration)
        if verdict is None:
            raise NoScript(f"no scripted verdict for case {case_id!r}; add a `judge:` section to {script.path}")
        return verdict

    def judgement(
        self, case_id: str | None, messages: Sequence[Mapping[str, Any]], repetition: int
    ) -> ScriptedJudgement:
        """Return a judge's vote on the correctness of the case's answer, found like `verdict`.

        :raises NoScript: no script has one, or several do.
        """
        if case_id is None:
            case_id = self._find_judged_case(messages)
        script = self._find_script_or_empty(case_id)
        vote = script.vote(repetition)
        if vote is None:
            key = "judgements" if str(script.path).endswith(DATASET_SCRIPT) else "judgement"
            raise NoScript(f"no scripted judgement for case {case_id!r}; add it under `{key}:` to {script.path}")
        return vote

    def stage(
        self, case_id: str | None, messages: Sequence[Mapping[str, Any]], section: str, stage: str, request: int
    ) -> str:
        """Return a judge's reply on the case at a section's stage, found like `verdict`.

        :raises NoScript: no script has one, or several do.
        """
        if case_id is None:
            case_id = self._find_judged_case(messages)
        script = self._find_script_or_empty(case_id)
        reply = script.stage(section, stage, request)
        if reply is None:
            raise NoScript(
                f"nothing is scripted for {stage!r} of {case_id!r}; add it under `{section}:` to {script.path}"
            )
        return reply

    def search(self, case_id: str, query: str) -> tuple[ScriptedSearchResult, ...]:
        """Return the results of the tool web_search for a run of the case on a scripted model.

        :raises NoScript: the case's script does not have the query.
        """
        script = self._find_script_or_empty(case_id)
        if query not in script.web_search:
            search = _quote_briefly(query)
            raise NoScript(
                f"no scripted search for {search} in case {case_id!r}; add it to web_search in {script.path}"
            )
        return script.web_search[query]

    def page(self, case_id: str, url: str) -> str:
        """Return the text that the tool web_fetch gets for a run of the case on a scripted model.

        :raises NoScript: the case's script has no such page.
        """
        script = self._find_script_or_empty(case_id)
        if url not in script.web_fetch:
            page = _quote_briefly(url)
            raise NoScript(f"no scripted page {page} in case {case_id!r}; add it to web_fetch in {script.path}")
        return script.web_fetch[url]

    def pages(self, case_id: str) -> Mapping[str, str]:
        """Return the pages that the case's script has, by URL.

        Raises NoScript if several scripts answer the case.
        """
        return self._find_script_or_empty(case_id).web_fetch

    def find_script(self, case_id: str) -> Script | None:
        """Return the script of a case, or None. Raises NoScript if several match."""
        besides = self._list_besides(case_id)
        scripts = [beside.by_case[case_id] for beside in besides if case_id in beside.by_case]
        scripts = scripts or [beside.default for beside in besides if beside.default is not None]
        if len(scripts) > 1:
            places = ", ".join(str(script.path) for script in scripts)
            raise NoScript(f"several scripts answer case {case_id!r}: {places}; rename one case", "ambiguous_script")
        if scripts:
            return scripts[0]
        return None

    def _find_script_or_empty(self, case_id: str) -> Script:
        """Return the script of a case, or an empty one at the place for it. Raises NoScript if several match."""
        return self.find_script(case_id) or Script(Path(self._find_place(case_id)), ())

    def _find_place(self, case_id: str) -> str:
        """Return the path for a script of the case."""
        besides = self._list_besides(case_id)
        if besides:
            return str(besides[0].path)
        return f"a {CASE_SCRIPT} next to it"

    def _list_besides(self, case_id: str) -> list[FileScripts]:
        """Return the scripts next to the file of a case; for a row that is not loaded, next to all files of its
        dataset.
        """
        if case_id in self._of_case:
            return self._of_case[case_id]
        return [beside for name in _list_dataset_names(case_id) for beside in self._of_dataset.get(name, ())]

    def _find_asked_case(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the case that an agent's request without a case is for. A session's requests name theirs."""
        raise make_unanswered(describe_message(messages))

    def _find_judged_case(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the case that a judge's request without a case is for."""
        raise make_unanswered(JUDGES_PROMPT)


JUDGES_PROMPT = "this judge's prompt"


def describe_message(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of a request without a case for errors: its last user message."""
    return f"the user message {_quote_briefly(next((text for text, _ in list_user_turns(messages)), ''))}"


def make_unanswered(request: str) -> NoScript:
    """Return the error for a request that no script answers. `request` describes it."""
    return NoScript(
        f"no script answers {request}; add a reply with `when` to the {CASE_SCRIPT} of its case, or an answer to "
        f"the <name>{DATASET_SCRIPT} of its dataset"
    )


def _load_case(case: Case) -> FileScripts:
    path = case.path.with_name(CASE_SCRIPT)
    if path.is_file():
        return read_case_script(case.case_id, path)
    return FileScripts(path)


def read_case_script(case_id: str, path: Path) -> FileScripts:
    """Return the case's script in a `demo.yaml`. Raises ConfigError if it is wrong."""
    from pytest_agentbench.models.script_files import CaseScript

    file = load(path, CaseScript)
    script = Script(path, file.replies, file.judge, file.judgement, file.web_search, file.web_fetch, roles=file.roles)
    return FileScripts(path, {case_id: script})


def _load_rows(case: Case) -> FileScripts:
    path = _place_dataset_script(case.path)
    if not path.is_file():
        return FileScripts(path)
    from pytest_agentbench.models.script_files import dataset_script_model

    file = load(path, dataset_script_model())
    # Rows of some packs have ids of their own; all other ids begin with the name of the dataset.
    has_own_id = any(part.has_own_id for part in case.case_parts)
    prefix = "" if has_own_id else f"{case.dataset}."
    default = _make_replies(file.default)
    roles = {role: _make_replies(answer) for role, answer in file.roles.items()}
    by_case = {}
    for item_id in file.item_ids:
        replies = _make_replies(file.answers.get(item_id, file.default))
        judge = file.judges.get(item_id, file.judge)
        stages = file.stages(item_id)
        vote = file.judgements.get(item_id)
        script = Script(path, replies, judge, vote, web_fetch=file.web_fetch, staged=stages, roles=roles)
        by_case[prefix + legal_id(item_id)] = script
    if not (default or any(file.stages().values()) or file.web_fetch):
        return FileScripts(path, by_case)
    others = Script(path, default, file.judge, web_fetch=file.web_fetch, staged=file.stages(), roles=roles)
    return FileScripts(path, by_case, others)


def _place_dataset_script(dataset_file: Path) -> Path:
    """Return the path of a dataset's script: `<name>.demo.yaml` for `<name>.jsonl`."""
    return dataset_file.with_name(dataset_file.stem + DATASET_SCRIPT)


def _make_replies(answer: str | Reply | tuple[Reply, ...] | None) -> tuple[Reply, ...]:
    from pytest_agentbench.models.script_files import Reply

    if answer is None:
        return ()
    if isinstance(answer, str):
        return (Reply(content=answer),)
    if isinstance(answer, Reply):
        return (answer,)
    return answer


def _list_dataset_names(case_id: str) -> Iterator[str]:
    """Yield the dataset names that a row's id `<dataset>.<item>` can begin with."""
    # Names of datasets may have dots, so every beginning is tried.
    at = case_id.find(".")
    while at >= 0:
        yield case_id[:at]
        at = case_id.find(".", at + 1)
