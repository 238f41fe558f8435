"""Texts that several tests of metrics share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_SHARED = Path(__file__).parents[3] / "shared" / "data"
_VECTORS = _SHARED / "datasets" / "metric_vectors.sample.jsonl"


def vectors() -> list[dict[str, Any]]:
    """The recorded scores of the original metrics, none where the conformance data is not here."""
    return [json.loads(line) for line in _VECTORS.read_text().splitlines()] if _VECTORS.exists() else []


def reported(folder: str) -> list[Any]:
    """The rows of a folder of public bug reports as (row, prediction); one that is skipped if they are not here."""
    place = _SHARED / "reports" / folder
    if not place.is_dir():
        return [pytest.param({}, "", marks=pytest.mark.skip(reason="the shared data is not here"))]
    predictions = json.loads((place / "p.json").read_text(encoding="utf-8"))
    rows = map(json.loads, (place / "d.jsonl").read_text(encoding="utf-8").splitlines())
    return [pytest.param(row, predictions[row["id"]], id=row["id"]) for row in rows]


LENGTH = 40_000
HOSTILE = {
    "digits": "9" * LENGTH,
    "digits, then a letter": "9" * LENGTH + "x",
    "brackets": "(" * LENGTH,
    "open braces": "{" * LENGTH,
    "lists": "[" * LENGTH,
    "one and a comma": "1," * (LENGTH // 2),
    "nines": "9 " * (LENGTH // 2),
    "thousands that end wrong": "234," * (LENGTH // 4) + "2345",
    "fractions": "1/" * (LENGTH // 2),
    "ranges": "1-" * (LENGTH // 2),
    "letters and digits": "a1" * (LENGTH // 2),
    "combining marks": "a" + "\u0301\u0316" * (LENGTH // 2),
    "boxes": "\\boxed{" * (LENGTH // 7),
    "LaTeX fractions": "\\frac{1" * (LENGTH // 7),
    "fences": "```x\n" * (LENGTH // 5),
    "answers": "answer is " * (LENGTH // 10),
    "letters": "A, " * (LENGTH // 3),
    "lines": "\n" * LENGTH,
    "dots that end wrong": "234." * (LENGTH // 4) + "2345",
    "dots and commas": "234.234,234." * (LENGTH // 12),
    "lakhs": "12,34," * (LENGTH // 6),
    "versions": "1." * (LENGTH // 2),
    "times": "1:" * (LENGTH // 2),
    "asides": "x1 (2" * (LENGTH // 5),
    "citations": "[1]" * (LENGTH // 3),
    "ends of thoughts": "</think>" * (LENGTH // 8),
    "labels": "x: A" * (LENGTH // 4),
    "conclusions": "So it is A, " * (LENGTH // 12),
    "listed options": "A. x\n" * (LENGTH // 5),
    "emphasis": "**a" * (LENGTH // 3),
    "marks of emphasis": "*" * LENGTH,
    "tags": "<span a=" * (LENGTH // 8),
    "digits and blanks": "999 9/" * (LENGTH // 6),
    "powers": "1^-" * (LENGTH // 3),
    "exponents": "1e" * (LENGTH // 2),
    "fonts": "\\text{" * (LENGTH // 6),
    "signs": "= - " * (LENGTH // 4),
    "answer lines": "#### 1\n" * (LENGTH // 7),
    "headings": "#" * LENGTH,
    "further questions": "#### 1\nQ: a b c d e f g h?\n" * (LENGTH // 27),
    "question marks": "#### 1\n" + "a b ? " * (LENGTH // 6) + "x\n#### 1",
    "blanks": "- " + " " * LENGTH + "x",
    "corrections": "wait, " * (LENGTH // 6),
    "answers in Spanish": "la respuesta " * (LENGTH // 13),
    "articles": "la respuesta es " + "la " * (LENGTH // 3),
    "answers in Turkish": "cevap " * (LENGTH // 6),
    "letters that are right": "B es " * (LENGTH // 5),
    "Chinese": "".join(chr(0x4E00 + n % 5000) for n in range(LENGTH // 3)),
}
"""Texts on which a careless regular expression takes a time that grows with their square."""
