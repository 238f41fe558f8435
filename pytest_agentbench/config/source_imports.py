"""Python of case folders, imported from its sources alone: nobody who reads a folder reads its bytecode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType


class _SourceLoader(SourceFileLoader):
    """Compiles a module's source, and neither reads nor writes bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def source_spec(name: str, path: Path) -> ModuleSpec:
    """Return the spec of a Python file's module, compiled from its source. Raises ImportError for other files."""
    if path.suffix not in SOURCE_SUFFIXES:
        raise ImportError(f"{path} is no Python file")
    spec = spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None  # a loader was named
    return spec


def import_sources_below(folders: Iterable[str]) -> Callable[[], None]:
    """Import modules below the folders, links resolved, from their sources. Return a function that ends this.

    Packages of the running Python are not affected: it may be installed in such a folder.
    """
    covered = tuple(folders)

    def find(path: str) -> FileFinder:
        real = Path(path or ".").resolve()
        if real.is_relative_to(Path(sys.prefix).resolve()) or not any(map(real.is_relative_to, covered)):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, SOURCE_SUFFIXES))

    def end() -> None:
        sys.path_hooks.remove(find)
        sys.path_importer_cache.clear()

    if not covered:
        return lambda: None
    sys.path_hooks.insert(0, find)
    sys.path_importer_cache.clear()
    return end
