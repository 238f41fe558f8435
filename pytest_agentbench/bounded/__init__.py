"""What others made, taken in with bounds: files, archives, replies, patterns, schemas, queries.

All that reads what a user, a case, a dataset, an artifact, a server or a model names or sends goes through here; a lint
rule and `tests/bounded/` refuse what would go around it.
"""

from typing import TYPE_CHECKING

from pytest_agentbench.bounded.files import (
    MAX_DOCUMENT,
    MAX_RECORD,
    MAX_TEXT,
    FileRefusedError,
    open_descriptor,
    open_file,
    plain_size,
    read_file,
    read_lines,
)
from pytest_agentbench.lazy import lazy_exports

if TYPE_CHECKING:
    from pytest_agentbench.bounded.archives import ArchiveRefusedError, ZipReader, read_tar
    from pytest_agentbench.bounded.columns import require_bounded_columns
    from pytest_agentbench.bounded.patterns import compile_pattern, search_pattern
    from pytest_agentbench.bounded.queries import select_values
    from pytest_agentbench.bounded.replies import MAX_LISTING, ReplyRefusedError, bound_reply, bounded_replies
    from pytest_agentbench.bounded.schemas import BoundedSchema, UncheckableError, bounded_schema

_HOMES = {
    "archives": ("ArchiveRefusedError", "ZipReader", "read_tar"),
    "columns": ("require_bounded_columns",),
    "patterns": ("compile_pattern", "search_pattern"),
    "queries": ("select_values",),
    "replies": ("MAX_LISTING", "ReplyRefusedError", "bound_reply", "bounded_replies"),
    "schemas": ("BoundedSchema", "UncheckableError", "bounded_schema"),
}
"""What only those pay for who use it."""
__getattr__ = lazy_exports(__name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names})

__all__ = [
    "MAX_DOCUMENT",
    "MAX_LISTING",
    "MAX_RECORD",
    "MAX_TEXT",
    "ArchiveRefusedError",
    "BoundedSchema",
    "FileRefusedError",
    "ReplyRefusedError",
    "UncheckableError",
    "ZipReader",
    "bound_reply",
    "bounded_replies",
    "bounded_schema",
    "compile_pattern",
    "open_descriptor",
    "open_file",
    "plain_size",
    "read_file",
    "read_lines",
    "read_tar",
    "require_bounded_columns",
    "search_pattern",
    "select_values",
]
