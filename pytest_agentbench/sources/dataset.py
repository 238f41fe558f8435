"""What a dataset is: files of questions (JSONL, JSON), as they are or as a descriptor beside them says.

Definitions: seed 001 and its data loading. What a file holds, its content says: lines of objects, a list,
`{"items": [...]}`, or one object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded import FileRefusedError, open_file
from pytest_agentbench.config import (
    DATA_SUFFIXES,
    UNVERIFIED,
    ConfigRoot,
    DatasetDescriptor,
    Known,
    RunProfile,
    is_descriptor_name,
    load_in,
    located,
    match_files,
    named_servers,
    read_bytes,
)
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import MetricSpec
from pytest_agentbench.sources.claims import claimed, descriptors_listing
from pytest_agentbench.sources.few_shot import Shots
from pytest_agentbench.sources.item_class import ItemParser, load_item_class
from pytest_agentbench.sources.json_items import UTF16_BOMS, first_element, first_object
from pytest_agentbench.sources.mcp_tasks import shows_tasks
from pytest_agentbench.sources.recipe import Recipe
from pytest_agentbench.sources.task_settings import TaskSettings

EXACT_MATCH = MetricSpec(name="exact_match", threshold=1.0)
"""What decides a row unless something else is asked for."""

_HEAD = 64 * 2**10
_FIRST_LINE = 64 * 2**20
_CASE_FILES = ("test.yaml", "test.yml")
ANSWERED = frozenset({"prediction", "predictions"})
"""What only answers to a dataset have."""

_LONGEST_ID = 200
_ILLEGAL = re.compile("::|[\\[\\]\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Dataset:
    """A file of questions, or what a descriptor makes of files and sources.

    `name` begins its case ids; `metrics` decide the rows that have no evaluator. `known` tells a plugin's checks from
    its metrics where a row's evaluator names one. `recipe` is what the `descriptor` says of rows, None where they are
    used as they are. `parse` is user code that makes the items of raw rows, in place of the recipe's fields. `tasks`
    says what is made of the rows of a task file of MCP-Bench, None for other files.
    """

    path: Path
    name: str
    metrics: tuple[MetricSpec, ...] = (EXACT_MATCH,)
    known: Known = UNVERIFIED
    description: str = ""
    descriptor: DatasetDescriptor | None = None
    recipe: Recipe | None = None
    parse: ItemParser | None = None
    tasks: TaskSettings | None = None

    @cached_property
    def shots(self) -> Shots | None:
        """The examples that the descriptor shows before each question, read at the first need. Raises ConfigError."""
        if self.recipe is None or self.recipe.descriptor.few_shot is None:
            return None
        return Shots(self.recipe, self.recipe.descriptor.few_shot, self.parse)


def is_dataset(path: Path, top: Path | None = None) -> bool:
    """Whether the file is one that a folder's collection takes.

    That is a descriptor; a `.jsonl` whose first object has a `question`, or a `.json` whose head (64 KB) shows a list,
    or `items`, of such objects, or tasks of MCP-Bench. Predictions, saved results and schemas are none, and neither is
    a file that a descriptor uses which lies beside it or, with `top`, in a folder above it up to `top`.
    """
    if is_descriptor_name(path.name):
        return is_ours(path)
    return path.suffix in DATA_SUFFIXES and _holds_cases(path) and not claimed(path, top or path.parent)


def in_case_folder(folder: Path, top: Path) -> bool:
    """Whether `folder`, or one above it up to `top`, is a case's: its JSONL files are attachments, never datasets."""
    folders = [folder, *folder.parents]
    reach = folders.index(top) + 1 if top in folders else 1
    return any((each / name).is_file() for each in folders[:reach] for name in _CASE_FILES)


def dataset_name(path: Path, root: Path) -> str:
    """The path below the config root without its suffix, which stays where two files differ in nothing else."""
    relative = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    twins = sum(path.with_suffix(suffix).exists() for suffix in DATA_SUFFIXES)
    return legal_id((relative if twins > 1 else relative.with_suffix("")).as_posix())


def open_dataset(
    path: Path,
    root: ConfigRoot,
    known: Known = UNVERIFIED,
    metrics: tuple[MetricSpec, ...] | None = None,
    *,
    run_code: bool = False,
    allow_outside: bool = False,
    run_profile: RunProfile | None = None,
) -> Dataset:
    """The dataset of a descriptor or data file below the config root `root`.

    A descriptor that lists the data file says how its rows are read. `metrics` win over the descriptor's. Its class
    `benchmark` is imported only with `run_code`; without, `read_rows` raises CodeNotRun. `allow_outside`: its paths may
    lead anywhere. `run_profile` says what is made of the tasks of a task file. Raises ConfigError.
    """
    top = root.path
    described = path if is_descriptor_name(path.name) else _the_descriptor(path, top)
    if described is None and path.suffix == ".json" and shows_tasks(_head(path) or ""):
        settings = TaskSettings.of(path, root, run_profile)
        return Dataset(path, dataset_name(path, top), metrics or (), known, tasks=settings)
    if described is None:
        return Dataset(path, dataset_name(path, top), metrics or (EXACT_MATCH,), known)
    scope = root.scope(described.parent, known, allow_outside=allow_outside)
    descriptor = load_in(described, DatasetDescriptor, scope)
    root.require_servers(described, named_servers(descriptor.mcp_servers))
    files = _files(descriptor, described.parent)
    return Dataset(
        path=path,
        name=_name(descriptor, described, files, top),
        metrics=metrics if metrics else _metrics(descriptor),
        known=known,
        description=descriptor.description,
        descriptor=descriptor,
        recipe=Recipe(described, descriptor, scope, files, None if path == described else path),
        parse=_item_class(described, descriptor.benchmark) if run_code and descriptor.benchmark else None,
    )


def legal_id(identifier: str) -> str:
    """The identifier as a node id can carry it; a hash keeps what was replaced or cut apart from its neighbours."""
    if len(identifier) <= _LONGEST_ID and _ILLEGAL.search(identifier) is None:
        return identifier
    digest = sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_ILLEGAL.sub('_', identifier[:_LONGEST_ID])}-{digest[:6]}"


def is_ours(path: Path) -> bool:
    """Other tools have files of these names too: ours have a schema_version."""
    try:
        return b"schema_version" in read_bytes(path).replace(b"\0", b"")  # YAML may be UTF-16
    except ConfigError:
        return True  # reading it will say why


def _holds_cases(path: Path) -> bool:
    text = _head(path)
    if text is None:
        return path.suffix == ".jsonl"  # reading it will say why: a dataset must not vanish silently
    if path.suffix == ".jsonl":
        return _asks(first_object(text))
    if shows_tasks(text):
        return True
    if '"question"' not in text:
        return False
    shown = first_element(text)
    if shown is not None:
        return shown.get("question") == '"' and ANSWERED.isdisjoint(shown)
    first, newline, _ = text.partition("\n")
    return bool(newline) and _asks(first_object(first))


def _head(path: Path) -> str | None:
    """The beginning of a data file's text, of JSONL with a whole first line; None where it cannot be read."""
    try:
        with open_file(path, limit=None) as file:
            head = file.read(_HEAD)
            if path.suffix == ".jsonl" and b"\n" not in head.lstrip():
                head += file.readline(_FIRST_LINE) + file.read(_HEAD)
    except FileRefusedError:
        return ""
    except OSError:
        return None
    return head.decode("utf-16" if head[:2] in UTF16_BOMS else "utf-8-sig", "replace").strip()


def _asks(item: dict[str, Any] | None) -> bool:
    return item is not None and isinstance(item.get("question"), str) and ANSWERED.isdisjoint(item)


def _the_descriptor(path: Path, root: Path) -> Path | None:
    found = descriptors_listing(path, root)
    if len(found) > 1:
        names = " and ".join(map(str, found))
        raise ConfigError(f"{path}:1:1: found several descriptors that list it, {names}; name one of them instead")
    return found[0] if found else None


def _files(descriptor: DatasetDescriptor, folder: Path) -> tuple[Path, ...]:
    return tuple(
        dict.fromkeys(file for pattern in descriptor.files or () for file in match_files(pattern, str(folder)))
    )


def _name(descriptor: DatasetDescriptor, path: Path, files: tuple[Path, ...], root: Path) -> str:
    """The declared name, else that of the only data file, else the path of the folder (or of `<name>.dataset.yaml`)."""
    if descriptor.name is not None:
        return legal_id(descriptor.name)
    if len(files) == 1:
        return dataset_name(files[0], root)
    stem = path.stem.removesuffix("dataset").rstrip(".")
    place = path.with_name(stem) if stem else path.parent
    inside = place.is_relative_to(root) and place != root
    return legal_id(place.relative_to(root).as_posix() if inside else place.name)


def _metrics(descriptor: DatasetDescriptor) -> tuple[MetricSpec, ...]:
    if descriptor.compat is None:
        return descriptor.metrics
    return tuple(metric.model_copy(update={"compat": descriptor.compat}) for metric in descriptor.metrics)


def _item_class(path: Path, name: str) -> ItemParser:
    try:
        return load_item_class(name, path.parent)
    except ValueError as error:
        raise located(path, [(("benchmark",), str(error))]) from error
