"""Find the files that may contain cases by their names and first bytes. Imports no source, so other files cost nothing.

A source is named by one text, `NAME PATTERN... ~WORD...`: patterns of file names, and words. Each file of cases has one
of the words, in its first 64 KB if it is data; without words, each file that a pattern matches is opened. A pack uses
the text as the name of its entry point, after `source`; a conftest or plugin as a key in the result of the hook
`pytest_agentbench_case_sources`::

    'source notes *.notes.yaml ~schema_version' = "my_package.notes:NOTES"
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import cache_extensions, extension_names, find_extension, installed_names

if TYPE_CHECKING:
    from pytest_agentbench.sources.case_source import CaseSource

_BUILTIN = {
    "cases test.yaml test.yml ~case_id ~schema_version": "pytest_agentbench.sources.test_yaml:TEST_YAML",
    "descriptors dataset.yaml dataset.yml *.dataset.yaml *.dataset.yml ~schema_version": (
        "pytest_agentbench.sources.rows:DATASETS"
    ),
    'questions *.json *.jsonl ~"question"': "pytest_agentbench.sources.rows:DATASETS",
}
"""The sources of this package. They are tried after all others, because their patterns are the widest."""


class SourceName(NamedTuple):
    """The parts of a source's name. `text` is the whole name, by which the source is loaded."""

    name: str
    patterns: tuple[str, ...]
    words: tuple[bytes, ...]
    text: str

    def may_hold(self, head: bytes) -> bool:
        """Return whether a file that begins so may have cases: it has one of the words, or the name has no words."""
        return not self.words or any(word in head for word in self.words)


def source_names(file_name: str) -> list[SourceName]:
    """Return the sources whose patterns match the name of a file, in the order in which they are tried.

    Raises ConfigError for invalid names of sources.
    """
    return [source for source in _table() if any(fnmatchcase(file_name, pattern) for pattern in source.patterns)]


def is_table(file_name: str) -> bool:
    """Return whether a file has rows that only a dataset.yaml can read: CSV or Parquet."""
    return file_name.lower().endswith((".csv", ".parquet"))


def describe_expected_rows(file: str) -> str:
    """Return the error for a file that is not JSON although rows are expected."""
    place = os.path.basename(file) if is_table(file) else "<path>"
    return f"{file}: expected a .jsonl or .json file; a dataset.yaml reads CSV and Parquet with `source: hf:./{place}`"


def load_source(name: SourceName) -> CaseSource:
    """Import and return a source. Raises ConfigError if a pack's source cannot be imported."""
    if name.text in _BUILTIN:
        module, _, attribute = _BUILTIN[name.text].partition(":")
        found: CaseSource = getattr(import_module(module), attribute)
        return found
    return find_extension("source", name.text)  # type: ignore[return-value]


@cache_extensions
def _table() -> tuple[SourceName, ...]:
    # Sources of the session's plugins take precedence.
    packs = installed_names("source")
    names = [_read(text) for text in (*sorted(extension_names("source") - packs), *sorted(packs), *_BUILTIN)]
    first: dict[str, SourceName] = {}
    for source in names:
        if first.setdefault(source.name, source) is not source:
            raise ConfigError(f"the case source {source.name!r} is added twice ({source.text!r}); choose another name")
    return tuple(names)


def _read(text: str) -> SourceName:
    name, *rest = text.split()
    patterns = tuple(word for word in rest if not word.startswith("~"))
    if not patterns:
        raise ConfigError(f"found the case source {text!r}, expected 'NAME PATTERN... ~WORD...'")
    return SourceName(name, patterns, tuple(word[1:].encode() for word in rest if word.startswith("~")), text)
