"""Keeps secrets out of what is written or sent: the environment's keys and the well-known forms of keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pytest_agentbench.records import Record

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 8
"""Shorter values (`true`, `none`, a port) would blank out ordinary words."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASS$|PASSPHRASE|CREDENTIAL|AUTH(?!OR(?!IZ))", re.IGNORECASE)

# The well-known forms: literals one of which every match holds (found fast, mostly absent), and the expression.
_KEY_FORMS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk-",), r"sk-[A-Za-z0-9_-]{20,}"),
    (("sk_live_", "sk_test_"), r"sk_(?:live|test)_[A-Za-z0-9]{16,}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,}"),
    (("github_pat_",), r"github_pat_[A-Za-z0-9_]{40,}"),
    (("glpat-",), r"glpat-[A-Za-z0-9_-]{20,}"),
    (("hf_",), r"hf_[A-Za-z0-9]{30,}"),
    (("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"xox[abprs]-[A-Za-z0-9-]{20,}"),
    (("AKIA", "ASIA"), r"A[KS]IA[0-9A-Z]{16}(?![A-Za-z0-9])"),
    (("AIza",), r"AIza[A-Za-z0-9_-]{35}"),
    (("npm_",), r"npm_[A-Za-z0-9]{36}"),
    (("eyJ",), r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    (("earer ",), r"[Bb]earer [A-Za-z0-9._~+/-]{20,}=*"),
    (
        ("PRIVATE KEY-----",),
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
        r"(?:(?:(?!-----)[\s\S]){0,8000}-----END [A-Z ]*PRIVATE KEY-----|(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{40,})*)",
    ),
)
# A key begins after no letter or digit. Inside JSON it may follow `\n` or `\u001b`, which are characters of their own.
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4}))"


class Redactor:
    """Replaces secrets by `[redacted]` in texts, JSON-like values and JSON documents.

    Secrets are the values of the variables of `environ` whose names look like keys, and the well-known key forms.
    A value that names an existing path (`GOOGLE_APPLICATION_CREDENTIALS`) only says where a secret lies, and stays.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        secrets = {form for secret in _secrets(environ) for form in _forms(secret)}
        literals = sorted(secrets, key=len, reverse=True)
        self._markers = (*literals, *(marker for markers, _ in _KEY_FORMS for marker in markers))
        forms = "|".join(form for _, form in _KEY_FORMS)
        self._pattern = re.compile("|".join([*map(re.escape, literals), f"{_START}(?:{forms})"]))

    def text(self, text: str) -> str:
        """`text` without secrets; the same object where it holds none."""
        return self._pattern.sub(REDACTED, text) if self._suspects(text) else text

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
        if not (self._suspects(document) and self._pattern.search(document)):
            return document
        return json.dumps(self.value(json.loads(document)), ensure_ascii=False, separators=(",", ":"))

    def _suspects(self, text: str) -> bool:
        return any(map(text.__contains__, self._markers))


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, raw in environ.items():
        value = raw.strip()
        if (
            len(value) >= MIN_SECRET_LENGTH
            and _SECRET_NAME.search(name)
            and value not in _vocabulary()
            and not os.path.exists(value)
        ):
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
    """The secret as it stands, as it stands inside a JSON string, and as it stands inside JSON inside a JSON string."""
    once = {secret, *_inside_json(secret)}
    return once | {twice for form in once for twice in _inside_json(form)}


def _inside_json(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
