"""Rows of Hugging Face datasets: from the hub, or from local folders and files. No code of a dataset is run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.columns import require_bounded_columns
from pytest_agentbench.bounded.files import open_descriptor
from pytest_agentbench.bounded.json_files import BadItem, Item
from pytest_agentbench.config.base import Scope, resolve_path
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.sources.items import describe_error, dump_item

_BATCH = 1000
"""Number of rows that are converted at a time."""
_BUILDERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".arrow": "arrow"}
_COLUMNS = frozenset({".parquet", ".arrow"})
_PACKED = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".tar", ".tgz", ".7z"})
_MISSING = "found an hf: source, which needs the package datasets; install it with: pip install 'pytest-agentbench[hf]'"


def read_source(descriptor: DatasetDescriptor, scope: Scope, split: str | None) -> Iterator[Item | BadItem]:
    """Yield every row of the descriptor's source: `line` and `number` are its position, counted from 1.

    Raises ValueError with a readable reason if the source cannot be loaded.
    """
    number = 1
    try:
        with _quiet():
            dataset = _one_split(_load(descriptor, scope, split), split)
        for batch in dataset.with_format("arrow").iter(batch_size=_BATCH):  # images and audio stay undecoded
            for row in batch.to_pylist():
                yield _item(number, row)
                number += 1
    except ImportError as error:
        if error.name == "datasets":
            raise ValueError(_MISSING) from error
        raise ValueError(f"cannot be loaded: {describe_error(error)}") from error
    except Exception as error:  # `datasets` raises errors of a dozen libraries
        reason = describe_error(error).removeprefix("ValueError: ")
        raise ValueError(f"cannot be loaded: {reason}") from error


def _item(number: int, row: dict[str, Any]) -> Item | BadItem:
    try:
        value = {name: _json_value(cell, name) for name, cell in row.items()}
        return Item(number, number, dump_item(value), value)
    except ValueError as error:
        return BadItem(number, 1, str(error))


def _json_value(value: Any, path: str) -> Any:
    """Return the value as JSON: dates and decimals become texts, NaN and infinities null.

    Raises ValueError for binary data, such as images and audio.
    """
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            if math.isfinite(value):
                return value
            return None
        case dict():
            return {str(key): _json_value(inner, f"{path}.{key}") for key, inner in value.items()}
        case list():
            return [_json_value(inner, f"{path}.{at}") for at, inner in enumerate(value)]
        case tuple():  # a pair of an Arrow map
            return [_json_value(inner, path) for inner in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case bytes():
            found = f"binary data ({len(value):,} bytes), such as an image or audio"
            raise ValueError(f"{path}: found {found}, expected a JSON value; messages can only be texts")
    raise ValueError(f"{path}: found {type(value).__name__}, expected a JSON value")


def _load(descriptor: DatasetDescriptor, scope: Scope, split: str | None) -> Any:
    import datasets  # type: ignore[import-untyped]

    options: dict[str, Any] = {"name": descriptor.config, "revision": descriptor.revision}
    options = {name: value for name, value in options.items() if value is not None}
    place = descriptor.local_source
    if place is None:
        name = (descriptor.source or "").removeprefix("hf:")
        return datasets.load_dataset(f"hf://datasets/{name}", split=split, **options)  # never a folder of that name
    path = Path(resolve_path(place, scope))
    if path.is_dir() and any((path / name).is_file() for name in ("state.json", "dataset_dict.json")):
        loaded = datasets.load_from_disk(str(path))
        splits = [*loaded.values()] if isinstance(loaded, dict) else [loaded]
        # Checked after the load, which only maps the files into memory: the folder's JSON names them.
        _require_usable([file["filename"] for part in splits for file in part.cache_files], scope)
        return loaded
    if path.is_dir():
        named = datasets.load_dataset_builder(str(path), **options).config.data_files or {}
        _require_usable([str(file) for files in named.values() for file in files], scope)
        return datasets.load_dataset(str(path), split=split, **options)
    builder = _BUILDERS.get(path.suffix.lower())
    if builder is None:
        raise ValueError(f"found {path.name!r}, expected a folder or a file that ends in {', '.join(_BUILDERS)}")
    _require_usable([str(path)], scope)
    if path.suffix.lower() == ".tsv":
        options["delimiter"] = "\t"
    files = {split or "train": str(path)}
    return datasets.load_dataset(builder, data_files=files, split=split or "train", **options)


def _require_usable(files: Iterable[str], scope: Scope) -> None:
    """Raise ValueError if a folder's dataset description, or a link in it, leads out of the config root.

    Also for special files, and for archives that unpack to too many bytes: `datasets` unpacks to any size.
    """
    for file in files:
        if "://" in file:
            raise ValueError(f"found {file!r}, expected a file of the folder")
        resolve_path(file, scope)
        os.close(open_descriptor(file, limit=None)[0])  # raises for anything but a plain file
        suffix = Path(file).suffix.lower()
        if suffix in _PACKED:
            raise ValueError(f"found {file!r}, which is packed; unpack it")
        if suffix in _COLUMNS:
            require_bounded_columns(Path(file))


def _one_split(loaded: Any, split: str | None) -> Any:
    """Return the named split, or the only one. Raises ValueError for a split that does not exist, and if there are
    several splits and none is named.
    """
    if not isinstance(loaded, dict):
        return loaded
    if split is None and len(loaded) == 1:
        return next(iter(loaded.values()))
    if split not in loaded:
        raise ValueError(f"split: found {split or 'none'}, expected one of {', '.join(map(str, loaded))}")
    return loaded[split]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bars of `datasets` inside the block."""
    import datasets

    was_enabled = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if was_enabled:
            datasets.enable_progress_bars()
