"""Signatures of stored records (HMAC-SHA256), for stores that others can write: who lacks the key can forge none.

A signature is the last member of a record's JSON object, and is of all that stands before it and of the record's kind.
A run names the files that it left by their hashes, so these are covered too.
"""

from __future__ import annotations

import hmac
from collections import Counter
from hashlib import sha256
from typing import Literal

Kind = Literal["run", "evaluation", "vote"]

_HEAD, _END = b',"signature":"', b'"}'
_LENGTH = len(_HEAD) + 2 * sha256().digest_size + len(_END)
_PURPOSE = b"agentbench store 1 "


class Signer:
    """Signs records with a key, and counts those that are not taken for want of a signature of it."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.refused: Counter[Kind] = Counter()

    def sign(self, kind: Kind, record: bytes) -> bytes:
        """Return the JSON object of a record with its signature."""
        return record[:-1] + _HEAD + self._signature(kind, record) + _END

    def takes(self, kind: Kind, content: bytes) -> bool:
        """Whether a stored record is signed with the key; one that is not is counted."""
        record = unsigned(content)
        if record is not content and hmac.compare_digest(
            content[-_LENGTH:][len(_HEAD) : -len(_END)], self._signature(kind, record)
        ):
            return True
        self.refused[kind] += 1
        return False

    def describe_refused(self) -> str | None:
        """Return how many records were not taken, None where all were."""
        if not self.refused:
            return None
        counts = ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in self.refused.items())
        return f"{counts} of the store had no signature of --agentbench-store-key's key and were not taken"

    def _signature(self, kind: Kind, record: bytes) -> bytes:
        return hmac.new(self._key, _PURPOSE + kind.encode() + b" " + record, sha256).hexdigest().encode()


def unsigned(content: bytes) -> bytes:
    """Return the record of a stored document without its signature; the very document where it has none."""
    if content[-_LENGTH:].startswith(_HEAD) and content.endswith(_END):
        return content[:-_LENGTH] + b"}"
    return content
