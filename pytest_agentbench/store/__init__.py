"""The store: fingerprints that tell what a result depends on, and the output folder with its artifacts.

A session asks its `Store` for one `Lane` per model and writes each run and evaluation through it. What is written is
whole or not there, and holds no secrets.
"""

from typing import TYPE_CHECKING

from pytest_agentbench.lazy import lazy_exports
from pytest_agentbench.store.archives import OUTPUT_TYPE, whole_archive, whole_file
from pytest_agentbench.store.artifacts import PROFILE_FILE, Lane, Store
from pytest_agentbench.store.files import lies_below, make_folder, temporary_file, write_atomically
from pytest_agentbench.store.fingerprints import (
    Plain,
    canonical_json,
    evaluation_fingerprint_input,
    fingerprint,
    judge_input,
    metric_judge_input,
    plain,
    rubric_input,
    run_fingerprint_input,
)
from pytest_agentbench.store.judgements import JUDGEMENTS, Judgements, KeptReply
from pytest_agentbench.store.layout import slug
from pytest_agentbench.store.locks import allow_open_files
from pytest_agentbench.store.reading import load_evaluation, load_run
from pytest_agentbench.store.redaction import REDACTED, Redactor
from pytest_agentbench.store.remote import Remote, without_credentials
from pytest_agentbench.store.remote_results import (
    pull_evaluation,
    pull_run,
    share_evaluation,
    share_run,
)
from pytest_agentbench.store.signing import Signer

if TYPE_CHECKING:
    from pytest_agentbench.store.contents import Contents, Folder, is_verdict_on, refuse_links
    from pytest_agentbench.store.history import History, read_history
    from pytest_agentbench.store.pruning import Waste, is_at_work, remove, waste
    from pytest_agentbench.store.verifying import Verification

_HOMES = {
    "contents": ("Contents", "Folder", "is_verdict_on", "refuse_links"),
    "history": ("History", "read_history"),
    "pruning": ("Waste", "is_at_work", "remove", "waste"),
    "verifying": ("Verification",),
}
"""What only `agentbench store` and dry runs use."""
__getattr__ = lazy_exports(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "JUDGEMENTS",
    "OUTPUT_TYPE",
    "PROFILE_FILE",
    "REDACTED",
    "Contents",
    "Folder",
    "History",
    "Judgements",
    "KeptReply",
    "Lane",
    "Plain",
    "Redactor",
    "Remote",
    "Signer",
    "Store",
    "Verification",
    "Waste",
    "allow_open_files",
    "canonical_json",
    "evaluation_fingerprint_input",
    "fingerprint",
    "is_at_work",
    "is_verdict_on",
    "judge_input",
    "lies_below",
    "load_evaluation",
    "load_run",
    "make_folder",
    "metric_judge_input",
    "plain",
    "pull_evaluation",
    "pull_run",
    "read_history",
    "refuse_links",
    "remove",
    "rubric_input",
    "run_fingerprint_input",
    "share_evaluation",
    "share_run",
    "slug",
    "temporary_file",
    "waste",
    "whole_archive",
    "whole_file",
    "without_credentials",
    "write_atomically",
]
