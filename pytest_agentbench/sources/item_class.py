"""The user's class that makes items of raw rows: `benchmark: module:Class` in a descriptor (seed 001, mode B)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.benchmark_item import BenchmarkItem

ItemParser = Callable[[dict[str, Any], int], BenchmarkItem]
"""`_parse_item(data, line_num)` of an object: `line_num` is the row's 1-based line in JSONL, else its 0-based index."""


class CodeNotRun(ConfigError):
    """The dataset is read by code, which this command does not run: that is no fault of the dataset."""


def load_item_class(name: str, folder: Path) -> ItemParser:
    """The `_parse_item` of an object of `module:Class`, made without arguments.

    The module is imported as Python finds it, else it is the file `module.py` in `folder`. It is trusted like a
    conftest.py. Raises ValueError where there is no such class or making it fails.
    """
    module_name, _, class_name = name.partition(":")
    module = _import(module_name, folder)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ValueError(f"found no class {class_name!r} in {getattr(module, '__file__', module_name)}")
    try:
        parse = getattr(found(), "_parse_item", None)
    except (Exception, SystemExit) as error:  # it is the user's code
        raise ValueError(f"{class_name}() failed: {describe(error)}") from error
    if not callable(parse):
        raise ValueError(f"the class {class_name!r} has no method _parse_item(self, data, line_num)")
    return parse  # type: ignore[no-any-return]


def call_parser(parse: ItemParser, data: dict[str, Any], line_num: int) -> dict[str, Any]:
    """What the user's code makes of a row, as a row of the standard form. Raises ValueError for what is no item."""
    called = getattr(parse, "__qualname__", "_parse_item")
    try:
        item = parse(data, line_num)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{called} raised {describe(error)}") from error
    if not isinstance(item, BenchmarkItem):
        raise ValueError(f"{called} returned {type(item).__name__}, expected a BenchmarkItem")
    metadata = {} if item.metadata is None else item.metadata
    if not isinstance(metadata, dict):
        raise ValueError(f"{called}: metadata: found {type(metadata).__name__}, expected a dict")
    standard = {"id": item.id, "question": item.question, "metadata": metadata}
    return standard if item.answer is None else {**standard, "answer": item.answer}


def describe(error: BaseException) -> str:
    """An exception in one short line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _import(name: str, folder: Path) -> ModuleType:
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    try:
        if _is_importable(name):
            return importlib.import_module(name)
        if file.is_file():
            return _import_file(file)
    except (Exception, SystemExit) as error:
        raise ValueError(f"cannot import {name}: {describe(error)}") from error
    raise ValueError(f"found no module {name!r}, neither on the import path nor as {file}")


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def _import_file(file: Path) -> ModuleType:
    """The module of a file, under a name of its own: files of the same name in other folders are other modules."""
    name = f"{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
