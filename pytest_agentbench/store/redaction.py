"""Keeps secrets out of what is written or sent: the environment's keys and the well-known forms of keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pytest_agentbench.records import Record
from pytest_agentbench.store.encodings import (
    LONG_RUN,
    Layer,
    Span,
    base64_forms,
    hex_form,
    layers,
    parts_of,
    plain_forms,
)
from pytest_agentbench.store.key_forms import key_spans

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 8
"""Shorter values (`true`, `none`, a port) would blank out ordinary words."""

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASS$|PASS[-_]?(?:PHRASE|CODE)|CREDENTIAL|CREDS$|AUTH(?!OR(?!IZ))|WEBHOOK|BEARER"
    r"|CONNECTION_?STRING|_(?:PWD?|PAT|DSN|PSK)$|BIND_?PWD?$|LDAP_?BIND$|JWT$|COOKIES?$|MNEMONIC$"
    r"|(?:^|[-_])(?:PIN|T?OTP|SALT|(?<!DESKTOP_)(?<!SHELL_)(?<!TERM_)(?<!XDG_)SESSION(?:_?ID)?)$",
    re.IGNORECASE,
)
"""Short words count at the end of a name alone: COOKIE_DOMAIN and OTP_VERSION are no secrets, nor is PINYIN."""

_KEY_LINES = r"(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{40,})*"
_PRIVATE_KEY = (
    r"-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:(?:(?!----)[\s\S]){0,8000}-{4,5} ?END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}|" + _KEY_LINES + ")"
)
_PUTTY_KEY = r"Private-Lines: [0-9]+(?:(?:(?!Private-)[\s\S]){0,8000}Private-MAC: [0-9a-f]+|" + _KEY_LINES + ")"
_BLOCK = re.compile(f"{_PRIVATE_KEY}|{_PUTTY_KEY}")
_IN_URL = re.compile(
    r"://(?:(?P<user>[^\s:/?#@\"'<>\\]{0,100}):(?!\d{1,5}[^\w@])(?P<password>[^\s/\"'<>\\]{1,200})"
    r"|(?P<alone>[^\s:/?#@\"'<>\\]{16,200}))@(?!sha\d+:)"
)
"""What stands before the host in a URL: user and password, or one of them. `localhost:8080,` is a port."""
_EXAMPLE = re.compile(
    r"(?:your|my|some|the|db)?[-_]?(?:pass(?:word|wd|phrase)?|pwd?|secret|token|(?:api)?[-_]?key|credentials?|user(?:name)?"
    r"|example|changeme)[-_]?(?:here)?|[x*.…]+|[$%{<\[(].*|.*[}>)\]]",
    re.IGNORECASE,
)
"""Passwords that pages and programs write where another one is meant."""
_NAME = re.compile(r"[A-Za-z][A-Za-z._+-]{0,18}[0-9]{0,4}")
"""Users who log in without a password in the URL: `git`."""


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
        worth = {*_worth_hiding(self._secrets)}
        worth |= {*_worth_hiding(part for secret in worth for part in parts_of(secret))}
        encoded = {form for secret in worth for form in base64_forms(secret)}
        short = {form for form in encoded if len(form) < LONG_RUN}  # they may stand outside of the runs
        websafe = {form.replace("+", "-").replace("/", "_") for form in short}
        plain = {form for secret in worth for form in plain_forms(secret)} | short | websafe
        self._plain, self._base64 = tuple(sorted(plain)), tuple(sorted(encoded - short))
        self._hex = tuple(sorted(map(hex_form, worth)))

    def text(self, text: str) -> str:
        """Return `text` without secrets; the same object where it holds none."""
        spans = [layer.origin(span) for layer in layers(text) for span in self._spans(layer)]
        if not spans:
            return text
        pieces: list[str] = []
        done = 0
        for start, end in sorted(spans):
            if start >= done:
                pieces += (text[done:start], REDACTED)
            done = max(done, end)
        return "".join((*pieces, text[done:]))

    def _spans(self, layer: Layer) -> list[Span]:
        """Return where secrets stand in a layer, in no order."""
        text, runs = layer.text, layer.runs
        found = [span for form in self._plain if form in text for span in _places(form, text)]
        if runs:
            found += self._encoded(text, runs)
        if layer.is_unwrapped:
            return found
        if "PRIVATE KEY" in text or "Private-Lines: " in text:
            found += [block.span() for block in _BLOCK.finditer(text)]
        if "://" in text:
            found += _in_urls(text)
        if runs:
            found += key_spans(text, runs)
        return found

    def _encoded(self, text: str, runs: list[Span]) -> Iterator[Span]:
        """Yield where secrets stand in hex of any case, or in base64 of either alphabet."""
        shown = "\n".join([text[start:end] for start, end in runs])
        for forms, told in ((self._base64, _standard), (self._hex, str.lower)):
            alike = told(shown)
            for form in forms:
                if form in alike:
                    for start, end in runs:
                        yield from ((start + at, start + to) for at, to in _places(form, told(text[start:end])))

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


def _places(form: str, text: str) -> Iterator[Span]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _standard(digits: str) -> str:
    return digits.replace("-", "+").replace("_", "/")


def _in_urls(text: str) -> Iterator[Span]:
    """Yield where users with their passwords stand in URLs, and tokens in their place; not where both are examples."""
    for found in _IN_URL.finditer(text):
        user, password, alone = found.group("user", "password", "alone")
        if alone is not None:
            if not _NAME.fullmatch(alone) and not _EXAMPLE.fullmatch(alone):
                yield found.span("alone")
        elif password != user and not _EXAMPLE.fullmatch(password):
            yield found.start("user"), found.end("password")
