"""Remove secrets from stored and sent texts: values of environment variables, and well-known forms of keys."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain, groupby
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import to_json

from pytest_agentbench.records.base import MADE_HERE, HexId, Record
from pytest_agentbench.secrets.encodings import (
    LONG_RUN,
    Layer,
    Span,
    encode_hex,
    list_base64_forms,
    list_plain_forms,
    split_secret,
    unescape_layers,
)

_RANDOM = r"(?=[A-Za-z._~+/-]{0,80}[0-9])"
"""Names that may be words with hyphens are keys only if they contain a digit."""
_PEM = [b64encode(f"-----BEGIN {kind}PRIVATE".encode()) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")]

# Forms of keys: (beginnings that one provider uses, expression for the rest).
_OWN_KEYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk-",), _RANDOM + r"[A-Za-z0-9_-]{20,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse, ...
    (("gsk_",), r"[A-Za-z0-9]{40,}"),  # Groq
    (("xai-",), r"[A-Za-z0-9]{60,}"),
    (("pplx-",), r"[A-Za-z0-9]{40,}"),
    (("hf_",), r"[A-Za-z0-9]{30,}"),
    (("AIza",), r"[A-Za-z0-9_-]{35}"),  # Google
    (("GOCSPX-",), r"[A-Za-z0-9_-]{24,}"),
    (("ya29.",), r"[A-Za-z0-9_-]{30,}"),
    (("r8_",), r"[A-Za-z0-9]{37}"),  # Replicate
    (("csk-",), r"[a-z0-9]{40,}"),  # Cerebras
    (("tgp_v1_",), r"[A-Za-z0-9_-]{40,}"),  # Together
    (("nvapi-",), r"[A-Za-z0-9_-]{50,}"),
    (("tvly-",), _RANDOM + r"[A-Za-z0-9-]{28,}"),  # Tavily
    (("pcsk_",), r"[A-Za-z0-9_]{50,}"),  # Pinecone
    (("jina_",), r"[A-Za-z0-9_-]{50,}"),
    (("fc-",), r"[0-9a-f]{32}"),  # Firecrawl
    (("e2b_",), r"[0-9a-f]{40}"),
    (("lsv2_pt_", "lsv2_sk_"), r"[0-9a-f]{32}_[0-9a-f]{10}"),  # LangSmith
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9_]{36,}"),
    (("github_pat_",), r"[A-Za-z0-9_]{40,}"),
    (
        (
            "glpat-",
            "gldt-",
            "glrt-",
            "glptt-",
            "glft-",
            "glsoat-",
            "glcbt-",
            "glimt-",
            "glagent-",
            "gloas-",
            "GR1348941",
        ),
        r"[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]{2,}){0,2}",
    ),
    (("npm_",), r"[A-Za-z0-9]{36}"),
    (("pypi-",), r"[A-Za-z0-9_-]{60,}"),
    (("dckr_pat_", "dckr_oat_"), r"[A-Za-z0-9_-]{20,}"),
    (("rubygems_",), r"[0-9a-f]{48}"),
    (("https://hooks.slack.com/services/",), r"(?i:T\w+/B\w+/\w+)"),
    (("xoxa-", "xoxb-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"), r"(?:[0-9]+-)+[A-Za-z0-9]+"),
    (("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), _RANDOM + r"[A-Za-z0-9-]{20,}"),
    (("xoxe.xoxb-", "xoxe.xoxp-"), r"[A-Za-z0-9-]{20,}"),
    (("ntn_",), r"[A-Za-z0-9]{40,}"),  # Notion
    (("lin_api_",), r"[A-Za-z0-9]{40}"),
    (("figd_",), r"[A-Za-z0-9_-]{40,}"),
    (("ATATT3",), r"[A-Za-z0-9_=-]{60,}"),  # Atlassian
    (("AKIA", "ASIA", "ABIA", "ACCA"), r"[0-9A-Z]{16}(?![A-Za-z0-9])"),  # AWS
    (("A3T",), r"[0-9A-Z]{17}"),
    (("AccountKey=",), r"[A-Za-z0-9+/=]{88}"),  # Azure Storage
    (("sq0csp-",), r"[A-Za-z0-9_\\-]{43}"),  # Square
    (("ABSK",), r"[A-Za-z0-9+/]{100,}={0,2}"),  # Bedrock
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{64}"),  # DigitalOcean
    (("dapi",), r"[0-9a-f]{32}(?:-[0-9])?(?![A-Za-z0-9])"),  # Databricks
    (("hvs.", "hvb."), r"[A-Za-z0-9_-]{24,}"),  # Vault
    (("tskey-",), r"[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{20,}"),  # Tailscale
    (("glsa_", "glc_"), r"[A-Za-z0-9_+/=]{32,}"),  # Grafana
    (("sntrys_", "sntryu_"), r"[A-Za-z0-9_+/=]{40,}"),  # Sentry
    (("sbp_", "sb_secret_"), _RANDOM + r"[A-Za-z0-9_-]{30,}"),  # Supabase
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9A-Fa-f]{32}"),  # Shopify
    (("sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_"), r"[A-Za-z0-9]{16,}"),  # Stripe
    (("whsec_",), r"[A-Za-z0-9+/=]{24,}"),
    (("SG.",), r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),  # SendGrid
    (("AKCp",), r"[A-Za-z0-9]{60,}"),  # Artifactory
    (("cmVmdGtuOj",), r"[A-Za-z0-9+/]{40,}"),
    (("AGE-SECRET-KEY-1",), r"[0-9A-Z]{50,}"),
    # The header of a JWT is ASCII that never comes out as _ or -.
    (("eyJ",), r"[A-Za-z0-9]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}"),
    (("Bearer ", "bearer "), _RANDOM + r"[A-Za-z0-9._~+/-]{20,}=*"),
    (("Basic ", "basic "), r"(?=[A-Za-z+/]{0,80}(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9+/]{16,}={0,2}"),
    # A private key whose lines are encoded once more, as in a Kubernetes secret.
    (tuple(each[: len(each) // 4 * 4 - 4].decode() for each in _PEM), r"[A-Za-z0-9+/]{60,}={0,2}"),
)

# Forms without a fixed beginning.
_UNMARKED_KEYS = (
    r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}",  # Discord
    r"[0-9a-z]{32}-us[0-9]{1,2}",  # Mailchimp
    r"[0-9]{8,10}:[A-Za-z0-9_-]{35}",  # Telegram
)
_UNMARKED_MIDDLE = re.compile(r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}|:[A-Za-z0-9_-]{35}")
"""Each of these keys contains one of these parts, or `-us`."""
# AWS's secret keys look like any 40 characters of base64, so a telling name must precede them.
_AWS_NAME = re.compile(r"(?i:aws)[\w.-]{0,30}(?i:key|token|pass|pwd?)\w{0,20}[\"'\s:=>]{1,12}$", re.ASCII)
_AWS_LENGTH = 40
_AWS_SECRET = re.compile(rf"[A-Za-z0-9+/]{{{_AWS_LENGTH}}}(?![A-Za-z0-9+/])")
_LONGEST_NAME = 80

# A key begins after no letter or digit. Inside JSON it may follow `\n` or `\u001b`, which are single characters.
# The pattern begins with the character before: a set of characters is found fifty times faster than a place.
_BEFORE = r"[^A-Za-z0-9_](?:(?<=\\)(?:[bfnrt]|u[0-9A-Fa-f]{4}))?"
_LETTER_AND_DIGIT = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")
"""Random text has a letter next to a digit; `1234567890:a-title-of-three-words` does not."""


def find_key_spans(text: str, runs: list[Span], shown: str) -> Iterator[Span]:
    """Yield the spans of keys in the runs of `text`, in any order. Takes time linear in the length.

    `shown` are the runs with the character before each. One search of all runs nearly always shows that there is no
    key; to search each run costs five times as much.
    """
    text = "\n" + text  # so that a key at its beginning has a character before it
    runs = [(start + 1, end + 1) for start, end in runs]
    found: list[Iterator[Span]] = []
    if "-" in text and ("xox" in text or "sq0csp-" in text):  # these keys may be outside of the runs
        found.append(_find_own_keys(text, [(1, len(text))]))
    elif _compile_beginnings()[0].search(shown) is not None or _may_hold_credentials(text):
        found.append(_find_own_keys(text, runs))
    if _may_hold_unmarked_keys(shown):
        found.append(_find_unmarked_keys(text, runs))
    if any(end - start >= _AWS_LENGTH for start, end in runs) and "aws" in text.lower():
        found.append(_find_aws_keys(text, runs))
    for start, end in chain.from_iterable(found):
        yield start - 1, end - 1


# A search for a character alone costs a fiftieth of any other, so it comes first.
def _may_hold_unmarked_keys(shown: str) -> bool:
    """Return whether a run contains the middle part of such a key."""
    return ("-" in shown and "-us" in shown) or (
        ("." in shown or ":" in shown) and _UNMARKED_MIDDLE.search(shown) is not None
    )


def _may_hold_credentials(text: str) -> bool:
    """Return whether `Bearer` or `Basic` precedes a run."""
    return " " in text and ("earer " in text or "asic " in text)


def _find_own_keys(text: str, runs: list[Span]) -> Iterator[Span]:
    """Yield where keys of our own list begin and end."""
    beginnings, longest = _compile_beginnings()
    done = 0
    for start, end in runs:
        at = max(done - 1, start - longest, 0)
        while (begun := beginnings.search(text, at, end)) is not None:
            at = begin = begun.start(1)
            ends = [key.end() for form in _compile_own_forms(begun[1]) if (key := form.match(text, begin))]
            if ends:
                # Keys of several forms may begin alike (`sk-`, `sk_live_`): the longest match wins, or its end would
                # stay.
                done = max(ends)
                # One character back: `_BEFORE` needs the last one of this key as the border of the next.
                at = done - 1
                yield begin, done


def _find_unmarked_keys(text: str, runs: list[Span]) -> Iterator[Span]:
    """Yield the spans of keys without a fixed beginning."""
    for start, end in runs:
        if _LETTER_AND_DIGIT.search(text, start, end) is not None:
            for key in _compile_unmarked().finditer(text, start - 1, end):
                if _LETTER_AND_DIGIT.search(key["key"]) is not None:
                    yield key.span("key")


def _find_aws_keys(text: str, runs: list[Span]) -> Iterator[Span]:
    """Yield the spans of AWS secret keys that follow a telling name."""
    for start, end in runs:
        if end - start < _AWS_LENGTH or _LETTER_AND_DIGIT.search(text, start, end) is None:
            continue
        # A run may include the separator after the name (`aws_key=...`) or begin after it (`aws_key = "..."`).
        last = end - _AWS_LENGTH
        for begin in {start, text.rfind("=", start, last) + 1, text.rfind(":", start, last) + 1} - {0}:
            secret = _AWS_SECRET.match(text, begin, end)
            if secret is not None and _AWS_NAME.search(text[max(0, begin - _LONGEST_NAME) : begin]) is not None:
                yield secret.span()


@cache
def _compile_beginnings() -> tuple[re.Pattern[str], int]:
    """Return the shortest expression for our list's beginnings, and how far before a run one may begin."""
    texts = {beginning for beginnings, _ in _OWN_KEYS for beginning in beginnings}
    return re.compile(f"{_BEFORE}({_match_any(texts)})"), max(map(len, texts)) + 7


@cache
def _compile_own_forms(beginning: str) -> list[re.Pattern[str]]:
    """Return expressions for the keys of our list that begin so, to the end of the word."""
    return [
        re.compile(rf"{re.escape(begins)}(?:{rest})\w*", re.ASCII)
        for beginnings, rest in _OWN_KEYS
        for begins in beginnings
        if begins.startswith(beginning)
    ]


@cache
def _compile_unmarked() -> re.Pattern[str]:
    """Return an expression for the keys of `_UNMARKED_KEYS`, to the end of the word."""
    return re.compile(rf"{_BEFORE}(?P<key>(?:{'|'.join(f'(?:{form})' for form in _UNMARKED_KEYS)})\w*)", re.ASCII)


def _match_any(texts: set[str]) -> str:
    """Return an expression that matches the shortest of the texts. Any other text is rejected at its first character.

    To group by more than the first character would take three times as long to compile and match no faster.
    """
    shortest: list[str] = []
    for text in sorted(texts):
        if not (shortest and text.startswith(shortest[-1])):
            shortest.append(text)
    groups = groupby(shortest, key=lambda text: text[0])
    return "|".join(
        f"{re.escape(first)}(?:{'|'.join(re.escape(each[1:]) for each in group)})" for first, group in groups
    )


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
# Compiled when a text first needs them: most sessions meet no key block and no credentials in a URL.
_BLOCK = f"{_PRIVATE_KEY}|{_PUTTY_KEY}"
_IN_URL = (
    r"://(?:(?P<user>[^\s:/?#@\"'<>\\]{0,100}):(?!\d{1,5}[^\w@])(?P<password>[^\s/\"'<>\\]{1,200})"
    r"|(?P<alone>[^\s:/?#@\"'<>\\]{16,200}))@(?!sha\d+:)"
)
"""Credentials before the host in a URL: user and password, or one of them. `localhost:8080,` is a port."""
_EXAMPLE = (
    r"(?i)(?:your|my|some|the|db)?[-_]?(?:pass(?:word|wd|phrase)?|pwd?|secret|token|(?:api)?[-_]?key|credentials?|user(?:name)?"
    r"|example|changeme)[-_]?(?:here)?|[x*.…]+|[$%{<\[(].*|.*[}>)\]]"
)
"""Passwords that pages and programs write where another one is meant."""
_NAME = r"[A-Za-z][A-Za-z._+-]{0,18}[0-9]{0,4}"
"""Users who log in without a password in the URL: `git`."""


class Redactor:
    """Replace secrets by `[redacted]` in texts, JSON-like values and JSON documents.

    Secrets are the values of variables in `environ` whose names look like keys, values added by `know` and
    `know_values`, well-known forms of keys, and passwords in URLs. A value that is an existing path
    (`GOOGLE_APPLICATION_CREDENTIALS`) is kept, because it only points to a secret.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._secrets = set(_select_secret_values(environ))
        self._prepare_forms()

    def know(self, names: Iterable[str]) -> None:
        """Treat the values of these variables as secrets too, regardless of their names."""
        self._add_secrets({self._environ[name] for name in names if name in self._environ})

    def know_values(self, variables: Mapping[str, str]) -> None:
        """Take for secrets the values of variables of another program whose names look like keys."""
        self._add_secrets(set(_select_secret_values(variables)))

    def _add_secrets(self, values: set[str]) -> None:
        if not values <= self._secrets:
            self._secrets |= values
            self._prepare_forms()

    def _prepare_forms(self) -> None:
        secrets = {*_select_redactable(self._secrets)}
        secrets |= {*_select_redactable(part for secret in secrets for part in split_secret(secret))}
        encoded = {form for secret in secrets for form in list_base64_forms(secret)}
        short = {form for form in encoded if len(form) < LONG_RUN}  # too short to be in a run
        websafe = {form.replace("+", "-").replace("/", "_") for form in short}
        plain = {form for secret in secrets for form in list_plain_forms(secret)} | short | websafe
        self._plain, self._base64 = tuple(sorted(plain)), tuple(sorted(encoded - short))
        self._hex = tuple(sorted(map(encode_hex, secrets)))

    def text(self, text: str) -> str:
        """Return `text` without secrets, or the same object if it has no secrets."""
        if len(text) < MIN_SECRET_LENGTH and "://" not in text:  # only passwords in URLs may be shorter
            return text
        spans = [layer.origin(span) for layer in unescape_layers(text) for span in self._find_spans(layer)]
        if not spans:
            return text
        pieces: list[str] = []
        done = 0
        for start, end in sorted(spans):
            # Spans of several layers and forms overlap: all that touches becomes one `[redacted]`.
            if start >= done:
                pieces += (text[done:start], REDACTED)
            done = max(done, end)
        return "".join((*pieces, text[done:]))

    def _find_spans(self, layer: Layer) -> list[Span]:
        """Return the spans of secrets in a layer, in any order."""
        text, runs = layer.text, layer.runs
        found = [span for form in self._plain if form in text for span in _find_all(form, text)]
        shown = layer.show_runs() if runs else ""
        if runs:
            found += self._find_encoded(text, runs, shown)
        # Joined lines put words side by side that only look like a key or a URL; known values are sure even so.
        if layer.is_unwrapped:
            return found
        if "PRIVATE KEY" in text or "Private-Lines: " in text:
            found += [block.span() for block in re.finditer(_BLOCK, text)]
        if "@" in text and "://" in text:
            found += _find_url_credentials(text)
        if runs or "-" in text:
            found += find_key_spans(text, runs, shown)
        return found

    def _find_encoded(self, text: str, runs: list[Span], shown: str) -> Iterator[Span]:
        """Yield the spans of secrets in hex of any case, or in base64 of either alphabet."""
        for forms, normalize in ((self._base64, _standardize_base64), (self._hex, str.lower)):
            alike = normalize(shown)
            for form in forms:
                if form in alike:
                    for start, end in runs:
                        yield from ((start + at, start + to) for at, to in _find_all(form, normalize(text[start:end])))

    def value(self, value: Any) -> Any:
        """Return a JSON-like value without secrets in any string, keys of mappings included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.value(key): REDACTED if _is_aws_key(key, item) else self.value(item) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def is_clean(self, record: Record, *others: str) -> bool:
        """Return whether a record and texts are known to have no secret; most are, which saves serialising them."""
        # One look at all texts costs less than one at each. No key and no escape goes on behind a quotation mark, so
        # that each secret is found here too.
        texts = [*others]
        return _collect_texts(record, texts) and self.text(together := '"'.join(texts)) is together

    def dump(self, record: Record) -> str:
        """Return `record.model_dump_json()` without secrets in any text that may be somebody else's.

        These are all but the record's own names, its times, and the ids and hashes that it declares as `HexId`. Raises
        PydanticSerializationError where `model_dump_json` does.
        """
        document = record.model_dump_json()
        if self.is_clean(record):
            return document
        written = self._clean_written(record, record.model_dump(mode="json"))
        return to_json(written, inf_nan_mode="null").decode()

    def _clean_written(self, value: object, written: Any) -> Any:
        """Return the JSON form of `value` without secrets. Field names, ids and times of records are kept."""
        if type(written) is list and isinstance(value, list | tuple) and len(value) == len(written):
            return [self._clean_written(item, each) for item, each in zip(value, written, strict=True)]
        if type(written) is not dict or not isinstance(value, Record):
            return self.value(written)
        fields = _list_own_forms(type(value))
        cleaned = {}
        for name, item in written.items():
            form = fields.get(name)
            if form is None or type(item) is not str or not form.fullmatch(item):
                item = self._clean_written(getattr(value, name, None), item)
            cleaned[name if name in fields else self.text(name)] = item
        return cleaned

    def json(self, document: str) -> str:
        """Return a JSON document without secrets in any string; only its strings change, so it stays one."""
        # Most documents hold no secret: one look at the raw text saves parsing and dumping them.
        if self.text(document) is document:
            return document
        return json.dumps(self.value(json.loads(document)), ensure_ascii=False, separators=(",", ":"))


_ID = re.compile("[0-9a-f]{32}|[0-9a-f]{64}")
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}(?:Z|[+-][0-9:]{5})?")
_RECORDS = Record.__module__.rpartition(".")[0] + "."
_TEXTLESS: frozenset[type] = frozenset({type(None), bool, int, float, datetime})


def _collect_texts(value: Any, texts: list[str]) -> bool:
    """Add the texts of others to `texts`. Return False if only serialisation shows them."""
    kind: Any = type(value)
    if kind is str:
        texts.append(value)
    elif kind is dict:
        for key, item in value.items():
            # In JSON the key 1 becomes "1": if both are keys, the document has more members than can be read again.
            if type(key) is not str:
                return False
            texts.append(key)
            if type(item) is str:
                texts.append(item)
            elif type(item) not in _TEXTLESS and not _collect_texts(item, texts):
                return False
    elif kind is tuple or kind is list:
        for item in value:
            if not _collect_texts(item, texts):
                return False
    elif kind not in _TEXTLESS:
        fields = _list_plain_fields(kind)
        if fields is None:
            return False
        for name, item in value.__dict__.items():
            if type(item) is str:
                form = fields.get(name)
                if form is None or not form.fullmatch(item):
                    texts.append(item)
            elif type(item) not in _TEXTLESS and not _collect_texts(item, texts):
                return False
    return True


@lru_cache(256)  # agents may make a class for each run
def _list_plain_fields(kind: type) -> dict[str, re.Pattern[str] | None] | None:
    """Return `_list_own_forms` of a record whose JSON consists of its fields, or None for any other type.

    Only records of this package are known to be so: other types may serialise more than their fields.
    """
    if issubclass(kind, Record) and kind.__module__.startswith(_RECORDS):
        return _list_own_forms(kind)
    return None


@cache
def _list_own_forms(kind: type[Record]) -> dict[str, re.Pattern[str] | None]:
    """Return the fields of a record, each with the form in which it is this package's own, None for others' texts."""

    def form(field: FieldInfo) -> re.Pattern[str] | None:
        kinds = (field.annotation, *get_args(field.annotation))
        if MADE_HERE in field.metadata or HexId in kinds:
            return _ID
        if datetime in kinds:
            return _TIME
        return None

    return {name: form(field) for name, field in kind.model_fields.items()}


def _is_aws_key(name: object, value: object) -> bool:
    """Return whether a value is an AWS secret key by the name of its field."""
    if not isinstance(value, str) or len(value) != _AWS_LENGTH or not isinstance(name, str):
        return False
    return _AWS_SECRET.fullmatch(value) is not None and _AWS_NAME.search(f"{name[-_LONGEST_NAME:]}:") is not None


def _select_secret_values(variables: Mapping[str, str]) -> Iterator[str]:
    return (value for name, value in variables.items() if _SECRET_NAME.search(name))


def _select_redactable(values: Iterable[str]) -> Iterator[str]:
    for value in map(str.strip, values):
        if len(value) >= MIN_SECRET_LENGTH and value not in _record_words() and not os.path.exists(value):
            yield value


@cache
def _record_words() -> frozenset[str]:
    """Return the words that stored records are made of (`assistant`, `provider_error`).

    Were one of them somebody's password, redacting it would leave records that do not load.
    """
    # Import the modules of the records here: the result must not depend on other imports.
    from pytest_agentbench.records import case, evaluation, run  # noqa: F401

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


def _find_all(form: str, text: str) -> Iterator[Span]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _standardize_base64(digits: str) -> str:
    return digits.replace("-", "+").replace("_", "/")


def _find_url_credentials(text: str) -> Iterator[Span]:
    """Yield the spans of users with passwords, and of tokens, in URLs; none for examples of documentation."""
    for found in re.finditer(_IN_URL, text):
        user, password, alone = found.group("user", "password", "alone")
        if alone is not None:
            if not re.fullmatch(_NAME, alone) and not re.fullmatch(_EXAMPLE, alone):
                yield found.span("alone")
        elif password != user and not re.fullmatch(_EXAMPLE, password):
            yield found.start("user"), found.end("password")


_USER = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(://[^?\s'\"]*\?)[^\s'\"]+")


def strip_credentials(text: str) -> str:
    """Return a text whose URLs have only address and path: without users, passwords and query values."""
    return _QUERY.sub(r"\1[redacted]", _USER.sub("[redacted]@", text))
