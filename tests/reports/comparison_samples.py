"""Comparisons of rows for the tests of this folder."""

from __future__ import annotations

import json

import jsonschema
from reports_samples import MODEL, make_row

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report

SCHEMA = report_schema()
COMPARISON = jsonschema.Draft202012Validator({"$ref": "#/$defs/comparison", "$defs": SCHEMA["$defs"]})


def report(*rows, **session):
    return build_report(rows, session)


def outcomes(letters, model=MODEL, **fields):
    """A row a letter: p passed, f failed, e error, s skipped; cases c00, c01, ..."""
    names = {"p": "passed", "f": "failed", "e": "error", "s": "skipped"}
    return [make_row(names[letter], f"c{n:02}", model, **fields) for n, letter in enumerate(letters)]


def compared(baseline, current, **options):
    """The comparison of two reports' rows as JSON, which keeps the published schema."""
    found = compare(
        build_campaign(report(*baseline), "a.json"), build_campaign(report(*current), "b.json"), **options
    ).as_dict()
    COMPARISON.validate(found)
    return json.loads(json.dumps(found, allow_nan=False))


def only_model(found):
    (model,) = found["models"]
    return model
