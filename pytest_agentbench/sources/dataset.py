"""Datasets: files of questions (JSONL, JSON), used unchanged or through the descriptor that lists them.

Definitions: seed 001 and its data loading. The content determines the form of a file: lines of objects, a list,
`{"items": [...]}`, or one object.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from pytest_agentbench.bounded.json_files import first_element, first_object
from pytest_agentbench.config.base import UNVERIFIED, Known, Scope, load_in, resolve_path
from pytest_agentbench.config.data_files import match_files
from pytest_agentbench.config.dataset_file import DatasetDescriptor, is_descriptor_name, parse_template
from pytest_agentbench.config.documents import make_located_error, read_document
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import map_servers
from pytest_agentbench.config.session_roots import naming_folder
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import MetricSpec, legal_id
from pytest_agentbench.sources.case_source import CaseSource, Claims
from pytest_agentbench.sources.items import ItemParser, is_answered, load_item_class
from pytest_agentbench.sources.names import load_source, source_names
from pytest_agentbench.sources.recipe import Recipe, Shots

_SETTLED = 2.0
"""Seconds after which a folder's modification time proves that it is unchanged."""


def is_claimed(path: Path, top: Path) -> bool:
    """Return whether a descriptor in the file's folder, or in a folder above it up to `top`, uses the file.

    True if a descriptor cannot be read: the files that it uses are unknown.
    """
    text = str(path)
    for descriptor in _descriptors_above(path, top):
        claims = _claims_of(descriptor, top)
        # An unreadable descriptor may use any file of its folder, but usually none of the folders below.
        is_next_to = os.path.dirname(descriptor) == os.path.dirname(text)
        if text in claims.listed or text in claims.others or (claims.unknown and is_next_to):
            return True
        if claims.tree is not None and (text + os.sep).startswith(claims.tree + os.sep):
            return True
    return False


def descriptors_listing(path: Path, top: Path) -> list[Path]:
    """Return the descriptors in the file's folder, or above it up to `top`, that describe its rows."""
    text = os.path.normpath(path)
    above = _descriptors_above(path, top)
    return [Path(descriptor) for descriptor in above if text in _claims_of(descriptor, top).listed]


def _descriptors_above(path: Path, top: Path) -> Iterator[str]:
    for folder in path.parents:
        yield from _descriptors_in(str(folder))
        if folder == top or not folder.is_relative_to(top):
            return


def _descriptors_in(folder: str) -> tuple[str, ...]:
    """Return the descriptors in a folder, which is listed once, because it may contain thousands of data files."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return ()
    # A folder that changed just now may change again within the resolution of its modification time.
    if time.time() - changed / 1e9 > _SETTLED:
        return _listed(folder, changed)
    return _listed.__wrapped__(folder, changed)


# `_changed` is part of the cache key only: a changed folder is listed again.
@lru_cache(maxsize=10_000)
def _listed(folder: str, _changed: int) -> tuple[str, ...]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".yaml", ".yml")) and _source_of(name))
    except OSError:
        return ()
    return tuple(os.path.join(folder, name) for name in names)


def _source_of(descriptor: str) -> CaseSource | None:
    """Return the source that reads a descriptor with this name, or None if it is no name of a descriptor."""
    sources = map(load_source, source_names(descriptor))
    return next((source for source in sources if source.names_data), None)


def _claims_of(descriptor: str, top: Path) -> Claims:
    folder = os.path.dirname(descriptor)
    root = folder
    if (folder + os.sep).startswith(str(top) + os.sep):
        root = str(top)
    try:
        status = os.stat(descriptor)
        return _read_claims(descriptor, root, status.st_mtime_ns, status.st_size, os.stat(folder).st_mtime_ns)
    except OSError:
        return Claims(unknown=True)


# The arguments with an underscore are part of the cache key only: a changed descriptor or folder is read again.
@lru_cache(maxsize=1000)
def _read_claims(descriptor: str, root: str, _changed: int, _size: int, _folder_changed: int) -> Claims:
    try:
        data: Any = read_document(Path(descriptor)).data
    except ConfigError:
        return Claims(unknown=True)
    source = _source_of(os.path.basename(descriptor))
    if source is None or not isinstance(data, dict) or "schema_version" not in data:
        return Claims()  # a file of another tool
    return source.claims(data, Scope(os.path.dirname(descriptor), os.path.realpath(root)))


def claims_of_descriptor(data: Mapping[str, Any], scope: Scope) -> Claims:
    """Return the data files that a dataset's descriptor uses: its `files`, its examples, the folder of its source."""
    files, source, shots = data.get("files"), data.get("source"), data.get("few_shot")
    if not (_are_texts(files) or isinstance(source, str)):
        return Claims(unknown=True)
    claims = Claims(listed=matching_files(files, scope))
    if isinstance(shots, dict):
        claims = claims._replace(others=matching_files([shots.get("file")], scope))
    place = str(source or "").removeprefix("hf:")
    if place.startswith((".", "/")):  # any other source is a name on the hub
        claims = claims._replace(tree=os.path.normpath(os.path.join(scope.folder, place)))
    return claims


def matching_files(patterns: object, scope: Scope) -> frozenset[str]:
    """Return the files that match patterns. A pattern that leaves the root is ignored: reading the descriptor reports
    it.
    """
    files: set[str] = set()
    if not _are_texts(patterns):
        return frozenset()
    for pattern in patterns:
        with suppress(ValueError):
            resolve_path(pattern, scope)
            files.update(map(str, match_files(pattern, scope.folder)))
    return frozenset(files)


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


EXACT_MATCH = MetricSpec(name="exact_match", threshold=1.0)
"""Metric of rows for which no other is set."""

_CASE_FILES = ("test.yaml", "test.yml")


class Row(NamedTuple):
    """A row as collection stores it.

    `raw` is its JSON in the standard form, parsed again when it runs. `path` and `line` (1-based) are its data file and
    line, or for a source the descriptor and the row's number. `index` is its 0-based position among all items of the
    dataset (of its split), good or bad, before they are shuffled or limited. `took_expected`: the answer is that of its
    field `expected`.
    """

    line: int
    case_id: str
    tags: tuple[str, ...]
    raw: bytes
    path: Path
    index: int  # type: ignore[assignment]  # the tuple's method is of no use here
    took_expected: bool = False


@dataclass(frozen=True)
class Dataset:
    """A file of questions, or the files and sources of a descriptor.

    `name` begins its case ids. `metrics` decide the rows without an evaluator. `known` distinguishes checks from
    metrics of plugins if a row's evaluator names one. `recipe` applies the `descriptor` to rows, None if they are used
    unchanged. `parse` is user code that makes the items of raw rows, in place of the recipe's fields.
    """

    path: Path
    name: str
    metrics: tuple[MetricSpec, ...] = (EXACT_MATCH,)
    known: Known = UNVERIFIED
    description: str = ""
    descriptor: DatasetDescriptor | None = None
    recipe: Recipe | None = None
    parse: ItemParser | None = None
    _prompted: dict[str, Dataset] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_prompt(self, template: str) -> Dataset:
        """Return the dataset with another template for its prompts, the same object for all rows.

        Raises ValueError for a text that is no template.
        """
        if template not in self._prompted:
            parse_template(template)
            recipe = self.recipe
            if recipe is None:
                descriptor = DatasetDescriptor(schema_version=1, files=(self.path.name,))
                recipe = Recipe(self.path, descriptor, Scope(str(self.path.parent)), (self.path,))
            changed = recipe.descriptor.model_copy(update={"prompt": template})
            self._prompted[template] = replace(self, recipe=replace(recipe, descriptor=changed))
        return self._prompted[template]

    @cached_property
    def shots(self) -> Shots | None:
        """Return the examples before each question, read at the first use. Raises ConfigError if they are invalid."""
        if self.recipe is None or self.recipe.descriptor.few_shot is None:
            return None
        return Shots(self.recipe, self.recipe.descriptor.few_shot, self.parse)

    @cached_property
    def takes_expected(self) -> bool:
        """Return whether `expected` is the answer of rows without one: nothing else says where the answers are."""
        return self.parse is None and (self.descriptor is None or self.descriptor.has_usual_fields)


def in_case_folder(folder: Path, top: Path) -> bool:
    """Return whether `folder`, or a folder above it up to `top`, has the file of a case: its data are attachments."""
    folders = [folder]
    if folder.is_relative_to(top):
        folders += [above for above in folder.parents if above.is_relative_to(top)]
    return any((above / name).is_file() for above in folders for name in _CASE_FILES)


def dataset_name(path: Path, root: ConfigRoot) -> str:
    """Return the path without its suffix, below the folder that names it. Other files there do not affect it."""
    top, place = naming_folder(path, root), path.with_suffix("")
    # The path, not the place: `evals.jsonl` next to the folder `evals` is not in it
    if not path.is_relative_to(top):
        return legal_id(place.name)
    return legal_id(place.relative_to(top).as_posix())


def open_dataset(
    path: Path,
    root: ConfigRoot,
    known: Known = UNVERIFIED,
    metrics: tuple[MetricSpec, ...] | None = None,
    *,
    run_code: bool = False,
    allow_outside: bool = False,
) -> Dataset:
    """Return the dataset of a descriptor or data file below the config root `root`.

    A descriptor that lists the data file determines how its rows are read. `metrics` replace the descriptor's. Its
    class `benchmark` is imported only if `run_code`; otherwise `read_rows` raises CodeNotRun. With `allow_outside` its
    paths may lead anywhere. Raises ConfigError.
    """
    described = path if is_descriptor_name(path.name) else _the_descriptor(path, root.path)
    if described is None:
        return Dataset(path, dataset_name(path, root), metrics or (EXACT_MATCH,), known)
    scope = root.scope(described.parent, known, allow_outside=allow_outside)
    descriptor = load_in(described, DatasetDescriptor, scope).read_by(root.origin(described))
    # A guest's descriptor must not start servers that the user has not allowed.
    root.require_servers(described, map_servers(descriptor.mcp_servers))
    files = _files(descriptor, described.parent)
    return Dataset(
        path=path,
        name=_name(descriptor, described, files, root),
        metrics=metrics or _metrics(descriptor),
        known=known,
        description=descriptor.description,
        descriptor=descriptor,
        recipe=Recipe(described, descriptor, scope, files, None if path == described else path),
        parse=_item_class(described, descriptor.benchmark) if run_code else None,
    )


def shows_questions(path: Path, text: str | None) -> bool:
    """Return whether the head of a data file, which may be cut off, is that of a file of questions."""
    if text is None:
        return path.suffix == ".jsonl"  # reading it reports the reason: a dataset must not vanish silently
    if path.suffix == ".jsonl":
        return _asks(first_object(text))
    if '"question"' not in text:
        return False
    shown = first_element(text)
    if shown is not None:
        return shown.get("question") == '"' and not is_answered(shown)
    # A file with the suffix .json may have lines of JSON.
    first, newline, _ = text.partition("\n")
    return bool(newline) and _asks(first_object(first))


def _asks(item: dict[str, Any] | None) -> bool:
    return item is not None and isinstance(item.get("question"), str) and not is_answered(item)


def _the_descriptor(path: Path, root: Path) -> Path | None:
    descriptors = descriptors_listing(path, root)
    if len(descriptors) > 1:
        names = " and ".join(map(str, descriptors))
        raise ConfigError(f"{path}:1:1: found several descriptors that list it, {names}; name one of them instead")
    return next(iter(descriptors), None)


def _files(descriptor: DatasetDescriptor, folder: Path) -> tuple[Path, ...]:
    return tuple(
        dict.fromkeys(file for pattern in descriptor.files or () for file in match_files(pattern, str(folder)))
    )


def _name(descriptor: DatasetDescriptor, path: Path, files: tuple[Path, ...], root: ConfigRoot) -> str:
    """Return the declared name, else the path of the only data file, else the path of the folder or of
    `<name>.dataset.yaml`.
    """
    if descriptor.name is not None:
        return legal_id(descriptor.name)
    if descriptor.names_one_file and files:
        return dataset_name(files[0], root)
    place, top = _named_place(path), naming_folder(path, root)
    if place.is_relative_to(top) and place != top:
        return legal_id(place.relative_to(top).as_posix())
    return legal_id(place.name)


def _named_place(descriptor: Path) -> Path:
    stem = descriptor.stem.removesuffix("dataset").rstrip(".")
    if stem:
        return descriptor.with_name(stem)
    return descriptor.parent


def _metrics(descriptor: DatasetDescriptor) -> tuple[MetricSpec, ...]:
    if descriptor.verify is not None and "metrics" not in descriptor.model_fields_set:
        return ()  # hidden tests decide the rows, so the default metric does not apply
    if descriptor.compat is None:
        return descriptor.metrics
    return tuple(metric.model_copy(update={"compat": descriptor.compat}) for metric in descriptor.metrics)


def _item_class(path: Path, name: str | None) -> ItemParser | None:
    if name is None:
        return None
    try:
        return load_item_class(name, path.parent)
    except ValueError as error:
        raise make_located_error(path, [(("benchmark",), str(error))]) from error
