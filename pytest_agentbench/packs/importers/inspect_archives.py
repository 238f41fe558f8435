"""Read Inspect's .eval files: zip archives with a header and samples. A sample is one member or a folder of chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.archives import ArchiveRefusedError, ZipReader
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.importers.drafts import FileContents, Place, Row, fit_row, parse_document

MAX_LOG = 1024**3
"""Bytes of a log."""
MAX_MEMBER = 256 * 1024 * 1024
"""Bytes of one member of an .eval file, and of all attachments of one sample."""
_HEADER, _START = "header.json", "_journal/start.json"
_SHELL = "sample.json"
_PART = re.compile(
    r"(samples/.*_epoch_\d+)/((?:sample|metadata|skeleton)\.json|(?:messages|events|calls|attachments)/\w+\.json)",
    re.DOTALL,
)
"""Member of a chunked sample: its folder, and its name there."""
_ATTACHMENTS = re.compile(r"attachments/(\d{1,9})\.json")
"""Chunk of a sample's attachments, with the index of the first one."""


@contextmanager
def open_archive(path: Path) -> Iterator[EvalArchive]:
    """Open an .eval file. Raises ConfigError if it cannot be read as one."""
    try:
        archive = ZipReader(path, MAX_LOG)
    except (OSError, ArchiveRefusedError) as error:
        raise ConfigError(f"{path}:1:1: cannot be read as a log of Inspect: {error}") from error
    with archive:
        log = EvalArchive(path, archive)
        if log.header_name is None:
            raise ConfigError(f"{path}:1:1: found neither {_HEADER} nor {_START}, expected the log of an evaluation")
        yield log


@dataclass(frozen=True)
class EvalArchive:
    """An open .eval file."""

    path: Path
    archive: ZipReader

    @property
    def header_name(self) -> str | None:
        """Return the name of the member with the data of all samples. Only a finished evaluation has `header.json`."""
        return next((name for name in (_HEADER, _START) if name in self.archive.names), None)

    @property
    def is_finished(self) -> bool:
        """Return whether the evaluation has finished: the log of one that was killed has no scores."""
        return self.header_name == _HEADER

    def read_header(self) -> dict[str, Any]:
        """Return the data of all samples. Raises ConfigError if the member cannot be read."""
        return self._read_object(self.header_name or _HEADER)

    def list_samples(self, gathered: FileContents, only: Collection[str]) -> Iterator[Row]:
        """Yield each sample, reduced to the keys `only`. One is in memory at a time; unreadable ones are lost."""
        names = {name for name in self.archive.names if name.startswith("samples/") and name.endswith(".json")}
        folders: dict[str, dict[str, str]] = {}
        for name in sorted(names):
            if (part := _PART.fullmatch(name)) is not None:
                folders.setdefault(part[1], {})[part[2]] = name
        chunked = {parts[_SHELL]: parts for folder, parts in folders.items() if _SHELL in parts}
        # Inspect reads a sample that has both forms from its one member.
        twice = {parts[_SHELL] for folder, parts in folders.items() if f"{folder}.json" in names and _SHELL in parts}
        inside = {name for parts in chunked.values() for name in parts.values()}
        for name in sorted((names - inside) | (chunked.keys() - twice)):
            place = Place(f"{self.path}!{name}")
            try:
                value = self._read_chunked(chunked[name]) if name in chunked else self._read_object(name)
            except ConfigError as error:
                gathered.lose(place, str(error))
            else:
                yield from fit_row(place, value, gathered, only)

    def _read_chunked(self, parts: Mapping[str, str]) -> dict[str, Any]:
        """Return a sample that is split into members: its own fields, its metadata, and its attachments by index."""
        sample = self._read_object(parts[_SHELL])
        if "metadata.json" in parts:
            sample["metadata"] = self._read_object(parts["metadata.json"])
        # The limit is for all chunks together: an archive may have any number of them.
        attachments: dict[str, Any] = {}
        remaining = MAX_MEMBER
        for part, name in parts.items():
            if (chunk := _ATTACHMENTS.fullmatch(part)) is None:
                continue
            content = self._read(name, remaining)
            remaining -= len(content)
            texts = parse_document(content, f"{self.path}!{name}")
            if not isinstance(texts, list):
                raise ConfigError(f"{self.path}!{name}:1:1: found {json.dumps(texts)[:40]}, expected a list")
            attachments |= {str(number): text for number, text in enumerate(texts, int(chunk[1]))}
        return {**sample, "attachments": attachments}

    def _read_object(self, name: str) -> dict[str, Any]:
        value = parse_document(self._read(name, MAX_MEMBER), f"{self.path}!{name}")
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path}!{name}:1:1: found {json.dumps(value)[:40]}, expected an object")
        return value

    def _read(self, name: str, most: int) -> bytes:
        file = f"{self.path}!{name}"
        try:
            return self.archive.read(name, most)
        except NotImplementedError as error:
            raise ConfigError(
                f"{file}:1:1: compressed by a method that is not supported ({error}); Inspect converts it: "
                f"inspect log convert {self.path} --to json --output-dir DIR"
            ) from error
        except ArchiveRefusedError as error:
            raise ConfigError(f"{file}:1:1: {str(error).removeprefix(f'{file}: ')}") from error
