"""The store: fingerprints that tell what a result depends on, and the output folder with its artifacts.

A session asks its `Store` for one `Lane` per model and writes each run and evaluation through it. What is written is
whole or not there, and holds no secrets.
"""

from pytest_agentbench.store.artifacts import Lane, Store
from pytest_agentbench.store.files import write_atomically
from pytest_agentbench.store.fingerprints import (
    canonical_json,
    evaluation_fingerprint_input,
    fingerprint,
    run_fingerprint_input,
)
from pytest_agentbench.store.judgements import JUDGEMENTS, Judgements
from pytest_agentbench.store.layout import slug
from pytest_agentbench.store.reading import load_evaluation, load_run
from pytest_agentbench.store.redaction import REDACTED, Redactor

__all__ = [
    "JUDGEMENTS",
    "REDACTED",
    "Judgements",
    "Lane",
    "Redactor",
    "Store",
    "canonical_json",
    "evaluation_fingerprint_input",
    "fingerprint",
    "load_evaluation",
    "load_run",
    "run_fingerprint_input",
    "slug",
    "write_atomically",
]
