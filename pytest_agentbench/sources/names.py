"""Find the files that may contain cases by their names and first bytes. Imports no source, so other files cost nothing.

A pack, plugin or conftest declares the files of a source as `SourceFiles`.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import cache_extensions, installed_names, load_extensions
from pytest_agentbench.seams import SourceFiles, resolve

if TYPE_CHECKING:
    from pytest_agentbench.sources.case_source import CaseSource

BUILTIN_SOURCES = {
    "cases": SourceFiles(
        "pytest_agentbench.sources.test_yaml:TEST_YAML", ["test.yaml", "test.yml"], ["case_id", "schema_version"]
    ),
    "descriptors": SourceFiles(
        "pytest_agentbench.sources.rows:DATASETS",
        ["dataset.yaml", "dataset.yml", "*.dataset.yaml", "*.dataset.yml"],
        ["schema_version"],
    ),
    "questions": SourceFiles("pytest_agentbench.sources.rows:DATASETS", ["*.json", "*.jsonl"], ['"question"']),
}
"""The sources of this package. They are tried after all others, because their patterns are the widest."""


class SourceName(NamedTuple):
    """A source by its name, and the files that it reads."""

    name: str
    files: SourceFiles
    words: tuple[bytes, ...]

    def may_hold(self, head: bytes) -> bool:
        """Return whether a file that begins so may have cases: it has one of the words, or there are no words."""
        return not self.words or any(word in head for word in self.words)


def source_names(file_name: str) -> list[SourceName]:
    """Return the sources whose patterns match the name of a file, in the order in which they are tried."""
    return [source for source in _table() if any(fnmatchcase(file_name, pattern) for pattern in source.files.patterns)]


def is_table(file_name: str) -> bool:
    """Return whether a file has rows that only a dataset.yaml can read: CSV or Parquet."""
    return file_name.lower().endswith((".csv", ".parquet"))


def describe_expected_rows(file: str) -> str:
    """Return the error for a file that is not JSON although rows are expected."""
    place = os.path.basename(file) if is_table(file) else "<path>"
    return f"{file}: expected a .jsonl or .json file; a dataset.yaml reads CSV and Parquet with `source: hf:./{place}`"


def load_source(name: SourceName) -> CaseSource:
    """Import and return a source. Raises ConfigError if it cannot be imported."""
    from pytest_agentbench.sources.case_source import CaseSource

    source = name.files.source
    if isinstance(source, str):
        try:
            source = resolve(source)
        except Exception as error:
            raise ConfigError(f"the case source {name.name!r} cannot be imported from {source}: {error!r}") from error
    if not isinstance(source, CaseSource):
        raise ConfigError(f"the case source {name.name!r} is {type(source).__name__}, expected a CaseSource")
    return source


@cache_extensions
def _table() -> tuple[SourceName, ...]:
    added, packs = load_extensions("source"), installed_names("source")
    # Sources of the session's plugins take precedence.
    names = sorted(added, key=lambda name: (name in packs, name))
    files = {name: added[name] for name in names} | BUILTIN_SOURCES
    return tuple(SourceName(name, each, tuple(word.encode() for word in each.words)) for name, each in files.items())
