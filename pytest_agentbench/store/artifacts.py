"""The output folder: runs and evaluations written as they finish, in place of older ones, and read back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pydantic_core import PydanticSerializationError

from pytest_agentbench.bounded.files import FileRefusedError
from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.identity.fingerprints import (
    canonical_json,
    evaluation_profile_input,
    fingerprint,
    plain,
    run_profile_input,
)
from pytest_agentbench.records.base import Record
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.secrets.redaction import REDACTED, Redactor
from pytest_agentbench.store.claims import claim, close_claims
from pytest_agentbench.store.database import Documents, open_documents
from pytest_agentbench.store.documents import (
    Signer,
    list_kept_files,
    make_read_error,
    match_evaluation,
    match_run,
    parse_evaluation,
    parse_run,
    refuse_newer,
    remove_kept,
    render_summary,
    write_archive,
    write_output,
)
from pytest_agentbench.store.output_folder import (
    EVALUATIONS,
    FINGERPRINT_DIGITS,
    PROFILE_FILE,
    RUNS,
    explain_unwritable,
    suite_folder,
)

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile
    from pytest_agentbench.records.case import Model
    from pytest_agentbench.store.remote import Remote


UNREADABLE = ".unreadable"
"""Suffix of files that were in the place of a document and could not be read."""

_RUN_FILES = ("run_{}.fingerprint_input.json", "run_{}.json")
_EVALUATION_FILES = ("judge_{}.json", "judge_{}.prompt.user.json", "summary_{}.md", "final_result_{}.json")
"""In the order in which they move. The verdict goes last, because the other files explain it."""

_CANNOT_BE_READ = (ValueError, FileRefusedError, PermissionError)
"""Errors after which a document is set aside. Other errors, such as limits of this process, may pass."""

_SUPERSEDED_NAME = re.compile(r"\.[0-9a-f]{8}\.json$")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")

Warn = Callable[[str], None]


def name_superseded(repetition: int, fingerprint: str) -> str:
    """Return the part of a file name that replaces the repetition when a document is displaced."""
    return f"{repetition}.{fingerprint[:8]}"


def make_way_for_run(documents: Documents, folder: str, artifact: RunArtifact, warn: Warn) -> RunArtifact | None:
    """Clear the place of a run. Return the run of the same fingerprint that is to be overwritten, if any.

    A run of another fingerprint is displaced, and so is a successful run if the new one ended in a provider error. A
    provider error is overwritten if a run of its fingerprint was displaced before. A file that cannot be read is
    renamed, with a warning. Raises OSError, and InfrastructureError for documents of a newer version.
    """
    path = f"{folder}/run_{artifact.repetition}.json"
    try:
        content = documents.read(path)
        if content is None:
            return None
        stored_run = parse_run(f"{documents.output}/{path}", content)
        key = _require_fingerprint(stored_run.fingerprint)
    except _CANNOT_BE_READ:
        _keep_unreadable(documents, path, warn)
        return None
    # A retry after an outage has the same fingerprint: the run that succeeded was paid for and must survive it.
    if key == artifact.fingerprint and not (artifact.status == "provider_error" and stored_run.status == "success"):
        return stored_run
    # A displaced run of this fingerprint is worth more than the failure that took its place: keep that one.
    displaced = f"{folder}/run_{name_superseded(artifact.repetition, key)}.json"
    if stored_run.status != "provider_error" or documents.read(displaced) is None:
        _displace(documents, folder, _RUN_FILES, artifact.repetition, key)
    return None


def make_way_for_evaluation(
    documents: Documents, folder: str, repetition: int, evaluation: Evaluation, warn: Warn
) -> None:
    """Clear the place of an evaluation, like `make_way_for_run`.

    A verdict is displaced, with the judges' replies, by a verdict of another fingerprint and by an error.
    """
    path = f"{folder}/final_result_{repetition}.json"
    try:
        content = documents.read(path)
        if content is None:
            return
        verdict = parse_evaluation(f"{documents.output}/{path}", content)
        is_verdict = verdict.outcome != "error" and verdict.fingerprint is not None
        key = _require_fingerprint(verdict.fingerprint) if is_verdict else None
    except _CANNOT_BE_READ:
        _keep_unreadable(documents, path, warn)
        key = None
    if key is not None and (key != evaluation.fingerprint or evaluation.outcome == "error"):
        # Also before an error of the same fingerprint: a failed re-judging must not cost the good verdict.
        _displace(documents, folder, _EVALUATION_FILES, repetition, key)
    for name in _EVALUATION_FILES[:-1]:  # files of the previous verdict that this one may lack
        documents.remove(f"{folder}/{name.format(repetition)}")


def mark_in_use(documents: Documents, path: str) -> None:
    """Touch a displaced run or verdict that a session uses again: then it is not waste."""
    if _SUPERSEDED_NAME.search(path):
        documents.touch(path)


def _require_fingerprint(fingerprint: str | None) -> str:
    """Return a stored fingerprint, which becomes part of a file's name. Raises ValueError if it is no fingerprint."""
    if fingerprint is None or not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError(f"found fingerprint {fingerprint!r}")
    return fingerprint


def _displace(documents: Documents, folder: str, names: tuple[str, ...], repetition: int, fingerprint: str) -> None:
    aside = name_superseded(repetition, fingerprint)
    for name in names:
        documents.move(f"{folder}/{name.format(repetition)}", f"{folder}/{name.format(aside)}")


def _keep_unreadable(documents: Documents, path: str, warn: Warn) -> None:
    documents.move(path, path + UNREADABLE)
    warn(
        f"{documents.output}/{path}: could not be read, so it counted as missing; it is kept as "
        f"{os.path.basename(path)}{UNREADABLE}"
    )


_log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)
Write = Callable[[], str]
"""Stores a document that is ready, and returns its path, relative to the output folder. Raises UnwritableError."""


class Writes:
    """Combine the writes that tasks request in one turn of the event loop into one transaction.

    To begin and end a transaction costs as much as two documents. Runs that end one by one have one transaction each.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._waiting: list[tuple[Write, asyncio.Future[str]]] = []

    async def make(self, write: Write) -> str:
        """Perform the write, even if cancelled, and return its result once it is stored. Raises its error."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._make_all)
        stored: asyncio.Future[str] = loop.create_future()
        self._waiting.append((write, stored))
        try:
            return await stored
        except asyncio.CancelledError:
            self._make_all()  # paid results are stored before the task ends
            raise

    def _make_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        paths: list[str] | None = None
        if len(waiting) > 1:
            # A failed transaction stores nothing: then each write is tried alone, to find the one that fails
            with contextlib.suppress(Exception):
                with self._documents.writing():
                    made = [write() for write, _ in waiting]
                paths = made  # not before the step has ended: a disk that is full is known then
        for at, (write, stored) in enumerate(waiting):
            try:
                path = write() if paths is None else paths[at]
            except Exception as error:  # noqa: BLE001  # it is for the task that waits
                if not stored.done():
                    stored.set_exception(error)
            else:
                if not stored.done():
                    stored.set_result(path)


class Store:
    """The output folder of a session. Nothing is created there before the first write.

    `warn` receives warnings for people, one sentence each. It may be set at any time.
    """

    def __init__(
        self, output: Path, redactor: Redactor | None = None, remote: str | None = None, signer: Signer | None = None
    ) -> None:
        """Set up a store in `output`; `remote` is the URL of a shared one behind it.

        `redactor` defaults to one for this process's environment. With a `signer` records are signed, and only those
        that are count.
        """
        self.output = output
        self.documents = open_documents(output)
        self.redactor = redactor or Redactor()
        self.remote: Remote | None = None
        if remote is not None:
            from pytest_agentbench.store.remote import Remote

            self.remote = Remote(remote, self.redactor.text)
        self.signer = signer
        self.writes = Writes(self.documents)
        self.warn: Warn = _log.warning
        self.documents.warn = lambda text: self.warn(text)

    def of_model(
        self,
        suite_id: str | None,
        run_profile: RunProfile,
        evaluation_profile: EvaluationProfile,
        model_id: str,
        judge_models: Sequence[Model] = (),
    ) -> ModelStore:
        """Return the store of one model under one pair of profiles. Creates no files."""
        return ModelStore(
            output=str(self.output),
            suite=suite_folder(suite_id),
            model=slug(model_id),
            evaluation_profile_id=evaluation_profile.evaluation_profile_id,
            run_settings=canonical_json(run_profile_input(run_profile)),
            evaluation_settings=canonical_json(evaluation_profile_input(evaluation_profile, judge_models)),
            redactor=self.redactor if evaluation_profile.security_policy.redact_secrets else None,
            writes=self.writes,
            warn=lambda text: self.warn(text),
            remote=self.remote,
            signer=self.signer,
        )

    def close(self) -> None:
        """Close the open files of the output folder. The next access opens them again."""
        self.documents.close()
        close_claims(str(self.output))


@dataclass(frozen=True, eq=False, repr=False)
class ModelStore:
    """Runs and evaluations of one model under one pair of profiles in the output folder.

    `suite` and `model` are folder names. The settings are canonical JSON that the fingerprints of the profiles cover.
    All model stores of a session share `writes`. `redactor` is None if the policy turns redaction off, `remote` if
    there is no remote store, `signer` if records are not signed.
    """

    output: str
    suite: str
    model: str
    evaluation_profile_id: str
    run_settings: bytes
    evaluation_settings: bytes
    redactor: Redactor | None
    writes: Writes
    warn: Warn = _log.warning
    remote: Remote | None = None
    signer: Signer | None = None
    _described: set[str] = field(default_factory=set, compare=False, repr=False)

    @cached_property
    def documents(self) -> Documents:
        """Return the documents of the output folder."""
        return open_documents(self.output)

    @cached_property
    def evaluation_profile_fingerprint(self) -> str:
        """Return the fingerprint of the profile and judges that the evaluations of this model store share."""
        return fingerprint(self.evaluation_settings)

    @cached_property
    def runs(self) -> str:
        """Return the folder of the runs, relative to the output folder. It may not exist yet."""
        return f"{self._profile_folder(f'{RUNS}/{self.suite}/run_profile', self.run_settings)}/{self.model}"

    @cached_property
    def evaluations(self) -> str:
        """Return the folder of the evaluations, like `runs`."""
        run_profile = self.runs.split("/")[2].removeprefix("run_profile_")
        folder = f"{EVALUATIONS}/{self.suite}/evaluation_profile_{run_profile}"
        prefix = f"{folder}/eval_profile_{slug(self.evaluation_profile_id)}"
        return f"{self._profile_folder(prefix, self.evaluation_settings)}/{self.model}"

    def _profile_folder(self, prefix: str, settings: bytes) -> str:
        """Return `<prefix>_<fp>` with as many digits as distinguish it from all folders of other profiles."""
        full = fingerprint(settings)
        # Two profiles may share eight digits. The first one written keeps them, so folders of earlier sessions are
        # found again.
        for digits in FINGERPRINT_DIGITS:
            relative = f"{prefix}_{full[:digits]}"
            if self._described_fingerprint(relative) in (None, full):
                return relative
        return f"{prefix}_{full}"

    def _described_fingerprint(self, folder: str) -> str | None:
        """Return the fingerprint that the profile file in a folder records, or None."""
        try:
            recorded = json.loads(self.documents.read(f"{folder}/{PROFILE_FILE}") or b"null")["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if isinstance(recorded, str) and recorded:
            return recorded
        return None

    def _describe_profile(self, models_folder: str, settings: bytes) -> None:
        """Store the full fingerprint and the settings in a profile's folder, once. Raises UnwritableError."""
        folder = models_folder.rpartition("/")[0]
        if folder in self._described:
            return
        full = fingerprint(settings)
        if self._described_fingerprint(folder) != full:
            document = f'{{"fingerprint":"{full}","input":{_redact_document(settings.decode("ascii"), self.redactor)}}}'
            with self._explained():
                self.documents.put(f"{folder}/{PROFILE_FILE}", document.encode())
        self._described.add(folder)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an OSError of the block into an UnwritableError with a remedy."""
        try:
            yield
        except OSError as error:
            raise UnwritableError(explain_unwritable(self.output, error)) from error

    def claim(self, run_fingerprint: str) -> AbstractAsyncContextManager[None]:
        """Return a context that holds the run's lock among all sessions on the output folder: see `claims.claim`."""
        return claim(self.output, run_fingerprint)

    def find_run(
        self,
        case_id: str,
        repetition: int,
        run_fingerprint: str,
        counts: Callable[[RunArtifact], bool] = lambda artifact: True,
    ) -> tuple[RunArtifact, str] | None:
        """Return the first stored run of a fingerprint that counts, with its path relative to the output folder, or
        None.

        Displaced runs and runs of other suites are found too. Runs that cannot be read are ignored.
        """
        folder = f"{self.runs}/{slug(case_id)}"
        for path, content in self.find_documents(folder, "run", repetition, run_fingerprint):
            stored_run = match_run(content, run_fingerprint, self.signer)
            if stored_run is not None and stored_run.repetition == repetition and counts(stored_run):
                mark_in_use(self.documents, path)
                return stored_run, path
        return None

    @cached_property
    def _began_empty(self) -> bool:
        """Return whether the store had no runs at the first call."""
        return not self.documents.folders(RUNS)

    def find_evaluation(self, artifact: RunArtifact, evaluation_fingerprint: str) -> tuple[Evaluation, str] | None:
        """Return the stored verdict on this very run with its path, found like a run. Errors are ignored."""
        folder = f"{self.evaluations}/{slug(artifact.case_id)}"
        for path, content in self.find_documents(folder, "final_result", artifact.repetition, evaluation_fingerprint):
            verdict = match_evaluation(content, evaluation_fingerprint, self.signer)
            if verdict is not None and verdict.run_id == artifact.run_id and verdict.outcome != "error":
                mark_in_use(self.documents, path)
                return verdict, path
        return None

    def find_documents(self, folder: str, kind: str, repetition: int, digest: str) -> Iterator[tuple[str, bytes]]:
        """Yield the documents that may have a fingerprint: in its place, displaced, and in other suites.

        Raises InfrastructureError if this process cannot read a document that may be intact.
        """
        try:
            yield from self.documents.find(
                folder, (f"{kind}_{repetition}.json", f"{kind}_{name_superseded(repetition, digest)}.json")
            )
        except OSError as error:  # the run may be there: nobody should pay for it again
            raise make_read_error(f"{self.output}/{folder}", error) from error

    def refuse_newer(self, case_id: str, repetition: int) -> None:
        """Raise InfrastructureError if a newer version's run or evaluation occupies the place of a new one."""
        if self._began_empty:  # two queries of an empty store would cost 1 % of a run
            return
        for folder, name in ((self.runs, "run"), (self.evaluations, "final_result")):
            path = f"{folder}/{slug(case_id)}/{name}_{repetition}.json"
            with contextlib.suppress(OSError):
                if (content := self.documents.read(path)) is not None:
                    refuse_newer(f"{self.output}/{path}", content)

    async def store_run(self, artifact: RunArtifact, fingerprint_input: Mapping[str, Any] | bytes) -> str:
        """Write a run like `write_run`, in one transaction with the writes of other tasks."""
        return await self.writes.make(self._prepare_run(artifact, fingerprint_input))

    def write_run(self, artifact: RunArtifact, fingerprint_input: Mapping[str, Any] | bytes) -> str:
        """Store a run and return its path, relative to the output folder. Raises UnwritableError.

        `fingerprint_input` may be the canonical bytes that were hashed. A run of another fingerprint in the same place
        moves to `run_<n>.<first 8 digits of its fingerprint>.json`, and so does a successful run if this one ended in a
        provider error.
        """
        return self._prepare_run(artifact, fingerprint_input)()

    def _prepare_run(self, artifact: RunArtifact, fingerprint_input: Mapping[str, Any] | bytes) -> Write:
        covered = fingerprint_input if isinstance(fingerprint_input, bytes) else canonical_json(fingerprint_input)
        # Nearly always so: one look at all of it takes half as long as one at each
        clean = self.redactor is None or self.redactor.is_clean(artifact, covered.decode("ascii"))
        document = self._dump(artifact, clean=clean)
        if not clean:
            covered = _redact_document(covered.decode("ascii"), self.redactor).encode()
        if self.signer is not None:
            document = self.signer.sign("run", document)
        self._describe_profile(self.runs, self.run_settings)
        return partial(self._store, partial(self._put_run, artifact, document, covered))

    def _store(self, put: Write) -> str:
        with self._explained():
            return self.documents.store(put)

    def _put_run(self, artifact: RunArtifact, document: bytes, covered: bytes) -> str:
        folder = f"{self.runs}/{slug(artifact.case_id)}"
        run = f"{folder}/run_{artifact.repetition}"
        added = self.documents.add(f"{run}.json", document)
        earlier = None if added else make_way_for_run(self.documents, folder, artifact, self.warn)
        if earlier is None:
            self.documents.put(f"{run}.fingerprint_input.json", covered)
        if not added:  # last: where documents are files, a run that is there has its input
            self.documents.put(f"{run}.json", document)
        if earlier is not None:
            replaced = {*list_kept_files(earlier)} - {*list_kept_files(artifact)}
            # Not before: this may be a part of a larger step, without which the earlier run still names its files
            self.documents.once_stored(partial(remove_kept, self.output, run, replaced))
        return f"{run}.json"

    def write_workspace(self, case_id: str, repetition: int, run_id: str, pack: Callable[[BinaryIO], None]) -> str:
        """Store the output of `pack` as the workspace of a run to be written.

        Returns the path relative to the output folder. Raises OSError and the errors of `pack`.
        """
        return write_archive(self.output, f"{self.runs}/{slug(case_id)}/run_{repetition}", run_id, pack)

    def write_output(self, case_id: str, repetition: int, run_id: str, name: str, content: bytes) -> str:
        """Store a file of a run before the run is stored. Return its path in the output folder. Raises OSError."""
        return write_output(self.output, f"{self.runs}/{slug(case_id)}/run_{repetition}", run_id, name, content)

    async def store_evaluation(
        self, repetition: int, evaluation: Evaluation, judge_prompts: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Write an evaluation like `write_evaluation`, in one transaction with the writes of other tasks."""
        return await self.writes.make(self._prepare_evaluation(repetition, evaluation, judge_prompts))

    def write_evaluation(
        self, repetition: int, evaluation: Evaluation, judge_prompts: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Store an evaluation. Return the path of its `final_result_<n>.json`, relative to the output folder.

        Prompts and replies of judges are stored next to it, and `summary_<n>.md` if the run was judged or did not pass.
        Raises UnwritableError.
        """
        return self._prepare_evaluation(repetition, evaluation, judge_prompts)()

    def _prepare_evaluation(
        self, repetition: int, evaluation: Evaluation, judge_prompts: Sequence[Mapping[str, Any]]
    ) -> Write:
        judge = evaluation.judge
        beside: dict[str, bytes] = {}
        if judge is not None:
            beside[f"judge_{repetition}.json"] = self._dump(judge)
        if judge_prompts:
            prompts = json.dumps(plain(judge_prompts), ensure_ascii=False, indent=1)
            beside[f"judge_{repetition}.prompt.user.json"] = self._encode(prompts)
        if judge is not None or evaluation.outcome != "passed":
            redact = str if self.redactor is None else self.redactor.text
            beside[f"summary_{repetition}.md"] = render_summary(evaluation, repetition, redact).encode(
                "utf-8", "replace"
            )
        document = self._dump(evaluation)
        if self.signer is not None:
            document = self.signer.sign("evaluation", document)
        self._describe_profile(self.evaluations, self.evaluation_settings)
        return partial(self._store, partial(self._put_evaluation, repetition, evaluation, document, beside))

    def _put_evaluation(
        self, repetition: int, evaluation: Evaluation, document: bytes, beside: Mapping[str, bytes]
    ) -> str:
        folder = f"{self.evaluations}/{slug(evaluation.case_id)}"
        path = f"{folder}/final_result_{repetition}.json"
        added = self.documents.add(path, document)
        if not added:
            make_way_for_evaluation(self.documents, folder, repetition, evaluation, self.warn)
        for name, content in beside.items():
            self.documents.put(f"{folder}/{name}", content)
        if not added:
            self.documents.put(path, document)
        return path

    def redact_record(self, record: R) -> R:
        """Return the record without secrets, as it is stored.

        Texts are cut short from this, as half a key is not found.
        """
        if self.redactor is None or self.redactor.is_clean(record):
            return record
        document = self._dump(record)
        if REDACTED.encode() not in document:
            return record
        return type(record).model_validate_json(document)

    def _dump(self, record: Record, *, clean: bool = False) -> bytes:
        """Return a record as JSON without secrets, also if an agent put values into it that JSON cannot represent.

        `clean`: the record is known to contain no secret.
        """
        try:
            text = record.model_dump_json() if clean or self.redactor is None else self.redactor.dump(record)
        except PydanticSerializationError:
            text = _redact_document(json.dumps(plain(record), ensure_ascii=False, separators=(",", ":")), self.redactor)
        return text.encode("utf-8", "replace")

    def _encode(self, document: str) -> bytes:
        """Return JSON without secrets and with "?" in place of lone surrogates, which UTF-8 cannot encode."""
        return _redact_document(document, self.redactor).encode("utf-8", "replace")


def _redact_document(document: str, redactor: Redactor | None) -> str:
    if redactor is None:
        return document
    return redactor.json(document)
