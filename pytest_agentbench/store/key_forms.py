"""The well-known forms of keys: our own list, and those that the library detect-secrets knows."""

from __future__ import annotations

import importlib
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

_RANDOM = r"(?=[A-Za-z._~+/-]{0,80}[0-9])"
"""Of names that may be words with hyphens, only those with a digit are keys."""
_PEM = [b64encode(f"-----BEGIN {kind}PRIVATE".encode()) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")]

# How a key begins, and what follows: (beginnings of one provider, expression for the rest).
_OWN: tuple[tuple[tuple[str, ...], str], ...] = (
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
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{36,}"),
    (("github_pat_",), r"[A-Za-z0-9_]{40,}"),
    (("glpat-", "gldt-", "glrt-", "glptt-"), r"[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]{2,}){0,2}"),
    (("npm_",), r"[A-Za-z0-9]{36}"),
    (("pypi-",), r"[A-Za-z0-9_-]{60,}"),
    (("dckr_pat_", "dckr_oat_"), r"[A-Za-z0-9_-]{20,}"),
    (("rubygems_",), r"[0-9a-f]{48}"),
    (("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), _RANDOM + r"[A-Za-z0-9-]{20,}"),
    (("xoxe.xoxb-", "xoxe.xoxp-"), r"[A-Za-z0-9-]{20,}"),
    (("ntn_",), r"[A-Za-z0-9]{40,}"),  # Notion
    (("lin_api_",), r"[A-Za-z0-9]{40}"),
    (("figd_",), r"[A-Za-z0-9_-]{40,}"),
    (("ATATT3",), r"[A-Za-z0-9_=-]{60,}"),  # Atlassian
    (("AKIA", "ASIA", "ABIA", "ACCA"), r"[0-9A-Z]{16}(?![A-Za-z0-9])"),  # AWS
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

# Plugins of detect-secrets whose secrets are known by their own form. Of the others, some go by the words around a
# secret (keyword, npm, cloudant, ibm_*, softlayer), some take ordinary text for one (artifactory: words in capitals;
# basic_auth: every example with a password; twilio: ids that are no secrets), private_key knows only the first line,
# jwt leaves the signature, openai takes time squared: the list above and the Redactor have forms for those.
_PLUGINS = (
    "aws",
    "azure_storage_key",
    "discord",
    "github_token",
    "gitlab_token",
    "mailchimp",
    "pypi_token",
    "sendgrid",
    "slack",
    "square_oauth",
    "stripe",
    "telegram_token",
)

# A key begins after no letter or digit. Inside JSON it may follow `\n` or `\u001b`, which are characters of their own.
# What is looked for begins with the character before: a set of characters is found fifty times faster than a place.
_BEFORE = r"[^A-Za-z0-9_](?:(?<=\\)(?:[bfnrt]|u[0-9A-Fa-f]{4}))?"
_LETTER_AND_DIGIT = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")
"""What is random has a letter beside a digit; `1234567890:a-title-of-three-words` has none."""


def key_spans(text: str, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where keys begin and end, in no order, in the runs of `text`. Takes time linear in its length."""
    text = "\n" + text  # so that a key at its beginning has a character before it
    runs = [(start + 1, end + 1) for start, end in runs]
    for start, end in (*_own_keys(text, runs), *_known_keys(text, runs)):
        yield start - 1, end - 1


def load_key_forms() -> None:
    """Import now what texts with keys need: once many runs are under way there may be no file left to open."""
    _known_forms()


def _own_keys(text: str, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where keys of our own list begin and end."""
    beginnings, longest = _beginnings()
    done = 0
    for start, end in runs:
        at = max(done - 1, start - longest, 0)
        while (begun := beginnings.search(text, at, end)) is not None:
            at = begin = begun.start(1)
            ends = [key.end() for form in _own_forms(begun[1]) if (key := form.match(text, begin))]
            if ends:
                done = max(ends)
                at = done - 1
                yield begin, done


def _known_keys(text: str, runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield where keys that detect-secrets knows begin and end."""
    for start, end in runs:
        if _LETTER_AND_DIGIT.search(text, start, end) is None:
            continue
        for key in _known_forms().finditer(text, start - 1, end):
            if _LETTER_AND_DIGIT.search(key["key"]) is not None:
                yield key.span("key")


@cache
def _beginnings() -> tuple[re.Pattern[str], int]:
    """An expression for all of our list, which finds the shortest that fits, and how far before a run it may begin."""
    texts = {beginning for beginnings, _ in _OWN for beginning in beginnings}
    return re.compile(f"{_BEFORE}({_any_of(texts)})"), max(map(len, texts)) + 7


@cache
def _own_forms(beginning: str) -> list[re.Pattern[str]]:
    """Expressions for the keys of our list that begin so, to the end of the word."""
    return [
        re.compile(rf"{re.escape(begins)}(?:{rest})\w*", re.ASCII)
        for beginnings, rest in _OWN
        for begins in beginnings
        if begins.startswith(beginning)
    ]


@cache
def _known_forms() -> re.Pattern[str]:
    """Return an expression for the keys that the installed detect-secrets knows, to the end of the word.

    It takes 0.14 s to import, most of that for requests, which it imports first of all: that is why this is called
    where the first run begins, or at the first text that could hold a key. A plugin that a later version no longer has
    is left out.
    """
    names = [name for plugin in _PLUGINS if find_spec(name := f"detect_secrets.plugins.{plugin}") is not None]
    kinds = [kind for name in names for kind in vars(importlib.import_module(name)).values()]
    lists = [kind.denylist for kind in kinds if isinstance(getattr(kind, "denylist", None), list | tuple)]
    forms = dict.fromkeys(_inline(form) for denylist in lists for form in denylist)
    return re.compile(rf"{_BEFORE}(?P<key>(?:{'|'.join(forms)})\w*)", re.ASCII)


def _inline(pattern: re.Pattern[str]) -> str:
    """The expression with its own flags, to stand beside others."""
    flags = "".join(letter for letter, flag in (("i", re.I), ("s", re.S), ("x", re.X)) if pattern.flags & flag)
    return f"(?{flags}:{pattern.pattern})"


def _any_of(texts: set[str]) -> str:
    """An expression for the shortest of the texts that fits; it looks at each character once."""
    if "" in texts:
        return ""
    following: dict[str, set[str]] = {}
    for text in texts:
        following.setdefault(text[0], set()).add(text[1:])
    return f"(?:{'|'.join(re.escape(first) + _any_of(rest) for first, rest in sorted(following.items()))})"
