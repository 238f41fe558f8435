"""What of a request cassettes keep and compare."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.models.tape import WORKSPACE, canonicalize
from pytest_agentbench.secrets.redaction import REDACTED, Redactor

FOLDER, SECRET, BOUNDARY = '/tmp/wörk "1"\\x', 'se"crét-0123456789', f"<<<DATA {'0123456789abcdef' * 2}"
PIECES = {FOLDER: WORKSPACE, SECRET: REDACTED, BOUNDARY: "<<<DATA [boundary]", "Paris ": "Paris ", '"\n☃': '"\n☃'}
TEXTS = st.lists(st.sampled_from(sorted(PIECES)), max_size=3)


@given(st.lists(TEXTS, max_size=3), st.booleans())
def test_folders_secrets_and_codes_of_blocks_are_taken_out(texts, escaped):
    """Also inside JSON inside a text, as arguments of tools are."""

    def request(forms):
        contents = [" ".join(forms[piece] for piece in text) for text in texts]
        contents = [json.dumps({"path": each}, ensure_ascii=False) if escaped else each for each in contents]
        return {"model": "m", "messages": [{"role": "user", "content": each} for each in contents]}

    as_sent = {piece: piece.replace(FOLDER, "/tmp/work") if escaped else piece for piece in PIECES}
    folder = "/tmp/work" if escaped else FOLDER
    found = canonicalize({**request(as_sent), "user": "me"}, folder, Redactor({"MY_PASSWORD": SECRET}))
    assert found == request(PIECES)


def test_a_request_is_compared_without_its_folder_only_where_it_has_one():
    request = {"model": "m", "messages": [{"role": "user", "content": "look at /tmp/work"}]}
    assert canonicalize(request, None, Redactor({})) == request
