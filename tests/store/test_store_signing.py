"""Signatures of stored records: who lacks the key can forge none, and what is not taken is counted."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256

import pytest

from pytest_agentbench.store.documents import Signer, strip_signature

RECORD = b'{"run_id":"r","score":1}'
SIGNED = Signer("key").sign("run", RECORD)


def test_a_signature_is_the_last_member_and_is_of_kind_and_record():
    wanted = hmac.new(b"key", b"agentbench store 1 run " + RECORD, sha256).hexdigest()
    assert json.loads(SIGNED) == {"run_id": "r", "score": 1, "signature": wanted}
    assert strip_signature(SIGNED) == RECORD
    assert strip_signature(RECORD) is RECORD


def test_a_record_signed_with_the_key_is_accepted():
    signer = Signer("key")
    assert signer.accepts("run", SIGNED)
    assert (signer.refused, signer.describe_refused()) == ({}, None)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("run", RECORD),
        ("run", b"{}"),
        ("run", b""),
        ("evaluation", SIGNED),
        ("run", SIGNED.replace(b'"score":1', b'"score":2')),
        ("run", SIGNED.replace(b'"r"', b'"s"')),
        ("run", Signer("other").sign("run", RECORD)),
        ("run", SIGNED[:-3] + b'0"}' if SIGNED[-3:-2] != b"0" else SIGNED[:-3] + b'1"}'),
        ("run", SIGNED + b"\n"),
        ("run", SIGNED[:-1] + b',"score":9}'),
        ("run", RECORD[:-1] + b',"signature":"' + b"0" * 64 + b'"}'),
        ("run", RECORD[:-1] + b',"signature":""}'),
    ],
)
def test_anything_else_is_refused_and_counted(kind, content):
    signer = Signer("key")
    assert not signer.accepts(kind, content)
    assert signer.refused == {kind: 1}


def test_refused_records_are_counted_by_kind():
    signer = Signer("key")
    for kind in ("run", "vote", "run"):
        signer.accepts(kind, RECORD)
    said = "2 runs, 1 vote of the store had no signature of --agentbench-store-key's key and were ignored"
    assert signer.describe_refused() == said
