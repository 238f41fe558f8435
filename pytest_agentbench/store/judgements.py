"""Votes of judges that are paid for: one small file each, by the fingerprint of everything that can change it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from pytest_agentbench.errors import DamagedObjectError, InfrastructureError
from pytest_agentbench.records.base import HexId, Record
from pytest_agentbench.records.evaluation import AnswerVerdict, JudgeVerdict
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.claims import claim
from pytest_agentbench.store.database import open_documents
from pytest_agentbench.store.documents import Signer, strip_signature
from pytest_agentbench.store.output_folder import JUDGEMENTS

if TYPE_CHECKING:
    from pytest_agentbench.store.remote import Remote, Upload

_log = logging.getLogger(__name__)
_not_writable: set[Path] = set()
"""Output folders that this process could not write to. Each is reported once."""


class KeptReply(Record):
    """A reply as it was received, for callers with a parser."""

    content: str
    finish_reason: str | None = None


class StoredVerdict(Record):
    """The content of a file: the verdict, and the request that it answers."""

    schema_version: Literal[1] = 1
    key: HexId
    model: str
    verdict: AnswerVerdict | JudgeVerdict | KeptReply


class Judgements:
    """The verdicts of an output folder, which several sessions may share. `redactor` None: nothing is removed from
    reasons.

    `remote` is a store that other machines share. With a `signer` only signed verdicts count.
    """

    def __init__(
        self, output: Path, redactor: Redactor | None = None, remote: Remote | None = None, signer: Signer | None = None
    ) -> None:
        self.signer = signer
        self.output = output
        self._documents = open_documents(output)
        self.redactor = redactor
        self.remote = remote

    def find(self, key: str) -> AnswerVerdict | None:
        """Return the verdict of a key (64 hex digits), or None if there is no readable file."""
        verdict = self._find(key)
        if isinstance(verdict, AnswerVerdict):
            return verdict
        return None

    def find_scores(self, key: str) -> JudgeVerdict | None:
        """Return the verdict with scores of a key, like `find`."""
        verdict = self._find(key)
        if isinstance(verdict, JudgeVerdict):
            return verdict
        return None

    def find_reply(self, key: str) -> KeptReply | None:
        """Return the reply of a key, like `find`."""
        verdict = self._find(key)
        if isinstance(verdict, KeptReply):
            return verdict
        return None

    def _find(self, key: str) -> AnswerVerdict | JudgeVerdict | KeptReply | None:
        try:
            content = self._documents.read(self._object_name(key))
            if content is None:
                return None
            if self.signer is not None and not self.signer.accepts("vote", content):
                return None
            stored = StoredVerdict.model_validate_json(strip_signature(content))
        except (OSError, ValidationError):
            return None
        # The file may have been copied or renamed by hand, so its name is not trusted.
        if stored.key != key:
            return None
        if self.remote is not None:
            # Found here but perhaps not there: a session that was offline, or killed, may not have sent it.
            self.remote.offer(self._make_upload(key))
        return stored.verdict

    async def pull(self, key: str) -> None:
        """Fetch a verdict from the shared store. Raises UnreachableError if it does not answer."""
        try:
            content = await self.remote.get(self._object_name(key)) if self.remote is not None else None
        except DamagedObjectError as error:
            _log.warning("%s, so it counts as missing and is asked for again", error)
            return
        if content is not None and (self.signer is None or self.signer.accepts("vote", content)):
            self._write(key, content)

    @contextlib.asynccontextmanager
    async def claim(self, key: str) -> AsyncIterator[None]:
        """Hold the key among all sessions on the output folder; a folder without locks warns once and locks nothing."""
        async with contextlib.AsyncExitStack() as held:
            try:
                await held.enter_async_context(claim(str(self.output), key))
            except InfrastructureError:
                self._warn_not_writable("it cannot be locked")
            yield

    def keep(self, key: str, model: str, verdict: AnswerVerdict | JudgeVerdict | KeptReply) -> None:
        """Store a verdict. If that fails, warn once: the verdict counts in this session."""
        stored = StoredVerdict(key=key, model=model, verdict=verdict)
        text = stored.model_dump_json() if self.redactor is None else self.redactor.dump(stored)
        content = text.encode("utf-8", "replace")
        if self.signer is not None:
            content = self.signer.sign("vote", content)
        if self._write(key, content) and self.remote is not None:
            self.remote.send(self._make_upload(key))

    def _write(self, key: str, content: bytes) -> bool:
        try:
            self._documents.put(self._object_name(key), content)
        except OSError as error:
            self._warn_not_writable(error.strerror or str(error))
            return False
        return True

    def _warn_not_writable(self, reason: str) -> None:
        if self.output not in _not_writable:
            _not_writable.add(self.output)
            _log.warning(
                "%s: judgements cannot be stored, so later sessions pay for them again: %s", self.output, reason
            )

    def _make_upload(self, key: str) -> Upload:
        from pytest_agentbench.store.remote import Upload

        # Read when it is sent: the vote may be replaced before, and none is kept in memory
        return Upload(JUDGEMENTS, ((self._object_name(key), partial(self._documents.read, self._object_name(key))),))

    def _object_name(self, key: str) -> str:
        return f"{JUDGEMENTS}/{key[:2]}/{key}.json"
