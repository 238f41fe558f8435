"""What a task's text must not refer to: things outside of it, and days that pass (seed 004, A.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pytest_agentbench.synthesis.base import Kind, Reason

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
_NO_WORD_BEFORE, _NO_WORD_AFTER = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s<>\"'`)\]}]+|\bwww\.[A-Za-z0-9-]+\.[^\s<>\"'`)\]}]+")

_FOLDERS = r"(?:home|Users|tmp|etc|var|usr|opt|mnt|root|srv|media|Volumes|private)"
_FILE_TYPES = (
    r"(?:csv|tsv|json|jsonl|ya?ml|xml|txt|md|rst|xlsx?|docx?|pptx?|pdf|db|sqlite3?|log|ini|toml|cfg|conf|env|zip|gz|"
    r"tar|parquet|pkl|ipynb|py|sh|sql|html?|png|jpe?g|gif|svg|webp|mp[34]|wav)"
)
_LOCAL_PATH = re.compile(
    rf"(?<![\w/.:])/{_FOLDERS}/[^\s\"'`,;)]+"
    r"|(?<![\w/])(?:~|\.\.?)/[\w.-][^\s\"'`,;)]*"
    r"|\b[A-Za-z]:\\[^\s\"'`,;)]+"
    rf"|{_NO_WORD_BEFORE}[\w-]{{1,80}}\.{_FILE_TYPES}{_NO_WORD_AFTER}(?!\()"
)

_STREET = r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Highway|Hwy)"
_ADDRESS = re.compile(
    rf"\b\d{{1,5}}[A-Za-z]?\s+(?:(?:[NSEW]|North|South|East|West)\.?\s+)?(?:(?:[A-Z][\w'’.-]*|\d+(?:st|nd|rd|th))\s+)"
    rf"{{1,3}}{_STREET}\b\.?(?!\s+[a-z]*\s*(?:station|sensors?)\b)"
    r"|[\u4e00-\u9fff]{1,8}(?:路|街|大道|巷|弄)\s?\d{1,5}\s?号"
)

_DATE = re.compile(
    rf"{_NO_WORD_BEFORE}(?:"
    rf"{_YEAR}[-/.](?:0?[1-9]|1[0-2])(?:[-/.](?:3[01]|[12]\d|0?[1-9]))?(?!\d|[-/.]\d)"
    rf"|(?:3[01]|[12]\d|0?[1-9])[-/.](?:3[01]|[12]\d|0?[1-9])[-/.]{_YEAR}"
    rf"|{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?"
    rf"|{_MONTH}\s+{_DAY}(?:,?\s+{_YEAR})?(?![\d%.:/])"
    rf"|{_MONTH},?\s+(?:of\s+)?{_YEAR}"
    rf"){_NO_WORD_AFTER}"
    rf"|{_YEAR}\s?年\s?\d{{1,2}}\s?月(?:\s?\d{{1,2}}\s?[日号])?|(?<!\d)\d{{1,2}}\s?月\s?\d{{1,2}}\s?[日号]"
)

FORBIDDEN: Mapping[Kind, re.Pattern[str]] = {
    "url": _URL,
    "local path": _LOCAL_PATH,
    "street address": _ADDRESS,
    "absolute date": _DATE,
}
"""What is looked for, by the name that a rejection gives it. A year alone is none: it may be part of a name."""

_ADVICE: Mapping[Kind, str] = {
    "url": "the agent must find everything with the tools, or in the text",
    "local path": "put the content into the text, or leave the file out",
    "street address": "name a city, a landmark or an area",
    "absolute date": "say it relative to today, such as 'the past 3 months'",
}


def forbidden_references(text: str, where: str) -> Iterator[Reason]:
    """A reason for each kind that `text` refers to; `where` is what the reason calls the text."""
    for kind, pattern in FORBIDDEN.items():
        if (found := pattern.search(text)) is not None:
            yield Reason(kind=kind, text=f"found {found.group()!r} in {where}; {_ADVICE[kind]}")
