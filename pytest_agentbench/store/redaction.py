"""Keeps secrets out of what is written or sent: the environment's keys and the well-known forms of keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin
from urllib.parse import quote, quote_plus

from pytest_agentbench.records import Record
from pytest_agentbench.store.key_forms import without_keys

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 8
"""Shorter values (`true`, `none`, a port) would blank out ordinary words."""

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASS$|PASS[-_]?PHRASE|CREDENTIAL|AUTH(?!OR(?!IZ))|WEBHOOK|CONNECTION_?STRING|_(?:PWD|PAT|DSN)$",
    re.IGNORECASE,
)

_KEY_LINES = r"(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{40,})*"
_PRIVATE_KEY = (
    r"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:(?:(?!----)[\s\S]){0,8000}-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|" + _KEY_LINES + ")"
)
_PUTTY_KEY = r"Private-Lines: [0-9]+(?:(?:(?!Private-)[\s\S]){0,8000}Private-MAC: [0-9a-f]+|" + _KEY_LINES + ")"
_IN_URL = r"(?<=://)[^\s:/?#@\"'<>\\]{1,100}:(?=[^\s/@]{0,200}[0-9])[^\s/@\"'<>\\]{8,200}(?=@)"
"""User and password of a URL; one without a digit is an example."""
_MARKERS = ("PRIVATE KEY", "Private-Lines: ", "://")


class Redactor:
    """Replaces secrets by `[redacted]` in texts, JSON-like values and JSON documents.

    Secrets are the values of the variables of `environ` whose names look like keys, those that `know` and
    `know_values` are told of, the well-known forms of keys, and passwords in URLs. A value that names an existing path
    (`GOOGLE_APPLICATION_CREDENTIALS`) only says where a secret lies, and stays.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._secrets = set(_look_like_keys(environ))
        self._prepare()

    def know(self, names: Iterable[str]) -> None:
        """Takes the values of these variables for secrets too, whatever their names look like."""
        self._hide({self._environ[name] for name in names if name in self._environ})

    def know_values(self, variables: Mapping[str, str]) -> None:
        """Takes for secrets the values of variables of another program whose names look like keys."""
        self._hide(set(_look_like_keys(variables)))

    def _hide(self, values: set[str]) -> None:
        if not values <= self._secrets:
            self._secrets |= values
            self._prepare()

    def _prepare(self) -> None:
        literals = sorted({form for secret in _worth_hiding(self._secrets) for form in _forms(secret)}, key=len)[::-1]
        self._markers = (*literals, *_MARKERS)
        self._pattern = re.compile("|".join([*map(re.escape, literals), _PRIVATE_KEY, _PUTTY_KEY, _IN_URL]))

    def text(self, text: str) -> str:
        """`text` without secrets; the same object where it holds none."""
        if any(map(text.__contains__, self._markers)):
            shown = self._pattern.sub(REDACTED, text)
            text = text if shown == text else shown
        return without_keys(text, REDACTED)

    def value(self, value: Any) -> Any:
        """A JSON-like value without secrets in any string, keys of mappings included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def json(self, document: str) -> str:
        """A JSON document without secrets in any string; only its strings change, so it stays one."""
        if self.text(document) is document:
            return document
        return json.dumps(self.value(json.loads(document)), ensure_ascii=False, separators=(",", ":"))


def _look_like_keys(variables: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in variables.items() if _SECRET_NAME.search(name))


def _worth_hiding(values: Iterable[str]) -> Iterator[str]:
    for value in map(str.strip, values):
        if len(value) >= MIN_SECRET_LENGTH and value not in _vocabulary() and not os.path.exists(value):
            yield value


@cache
def _vocabulary() -> frozenset[str]:
    """The words that stored records are made of (`assistant`, `provider_error`): without them nothing loads back."""
    words: set[object] = set()

    def collect(annotation: object) -> None:
        if get_origin(annotation) is Literal:
            words.update(get_args(annotation))
        for argument in get_args(annotation):
            collect(argument)

    kinds: list[type[Record]] = [Record]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        words.update(kind.model_fields)
        for field in kind.model_fields.values():
            collect(field.annotation)
    return frozenset(word for word in words if isinstance(word, str))


def _forms(secret: str) -> set[str]:
    """The secret as it stands, inside a URL, inside a JSON string, and inside JSON inside a JSON string."""
    in_urls = (write(secret, safe="", errors="surrogateescape") for write in (quote, quote_plus))
    once = {secret, *in_urls, *_inside_json(secret)}
    return once | {twice for form in once for twice in _inside_json(form)}


def _inside_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
