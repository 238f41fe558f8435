"""Question-answer files (JSONL, JSON) as cases: one streaming pass for collection, one parse for each row that runs.

Definitions: seed 001 and its data loading. What a file holds, its content says: lines of objects, a list,
`{"items": [...]}`, or one object.
"""

from __future__ import annotations

import difflib
import json
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from pytest_agentbench.config import Known
from pytest_agentbench.records import BUILTIN_KINDS, Case, Check, Message, MetricSpec, RunnerSpec
from pytest_agentbench.sources.json_items import (
    UTF16_BOMS,
    BadItem,
    Item,
    first_element,
    first_object,
    read_items,
)

EXACT_MATCH = MetricSpec(name="exact_match", threshold=1.0)
"""What decides a row unless something else is asked for."""

_HEAD = 64 * 2**10
_FIRST_LINE = 64 * 2**20
_MOST_REPORTED = 100
_TITLE = 60
_SUFFIXES = (".json", ".jsonl")
_CASE_FILES = ("test.yaml", "test.yml")
_EVALUATOR = frozenset({"func", "args"})
_CORE = frozenset({"id", "question", "answer", "metadata"})
_ANSWERED = frozenset({"prediction", "predictions"})
_ILLEGAL = re.compile("::|[\\[\\]\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNVERIFIED = Known()
_RUNNER = RunnerSpec(type="llm_probe")
_Deciders = tuple[tuple[Check, ...], tuple[MetricSpec, ...], str | None]


class Row(NamedTuple):
    """An item as collection keeps it: `raw` is its JSON, parsed again when it runs. `line` is 1-based."""

    line: int
    case_id: str
    tags: tuple[str, ...]
    raw: bytes


class BadRow(NamedTuple):
    """An item that cannot be used; `message` is a whole sentence, `file:line:column: ...`."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A question-answer file. `name` begins its case ids; `metrics` decide the rows that have no evaluator.

    `known` tells a plugin's checks from its metrics where a row's evaluator names one.
    """

    path: Path
    name: str
    metrics: tuple[MetricSpec, ...] = (EXACT_MATCH,)
    known: Known = _UNVERIFIED


def is_dataset(path: Path) -> bool:
    """Whether the file is one that a folder's collection takes.

    That is a `.jsonl` whose first object has a `question`, or a `.json` whose head (64 KB) shows a list, or `items`, of
    such objects. Predictions, saved results and schemas are none.
    """
    if path.suffix not in _SUFFIXES:
        return False
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if path.suffix == ".jsonl" and b"\n" not in head.lstrip():
                head += file.readline(_FIRST_LINE)
    except OSError:
        return path.suffix == ".jsonl"  # reading it will say why: a dataset must not vanish silently
    text = head.decode("utf-16" if head[:2] in UTF16_BOMS else "utf-8-sig", "replace").strip()
    if path.suffix == ".jsonl":
        return _asks(first_object(text))
    shown = first_element(text)
    if shown is not None:
        return shown.get("question") == '"' and _ANSWERED.isdisjoint(shown)
    first, newline, _ = text.partition("\n")
    return bool(newline) and _asks(first_object(first))


def in_case_folder(folder: Path, top: Path) -> bool:
    """Whether `folder`, or one above it up to `top`, is a case's: its JSONL files are attachments, never datasets."""
    folders = [folder, *folder.parents]
    reach = folders.index(top) + 1 if top in folders else 1
    return any((each / name).is_file() for each in folders[:reach] for name in _CASE_FILES)


def dataset_name(path: Path, root: Path) -> str:
    """The path below the config root without its suffix, which stays where two files differ in nothing else."""
    relative = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    twins = sum(path.with_suffix(suffix).exists() for suffix in _SUFFIXES)
    return _legal((relative if twins > 1 else relative.with_suffix("")).as_posix())


def open_dataset(
    path: Path, root: Path, known: Known = _UNVERIFIED, metrics: tuple[MetricSpec, ...] | None = None
) -> Dataset:
    """The dataset of a data file below the config root `root`. `metrics` win over what the dataset asks for.

    Raises ConfigError.
    """
    return Dataset(path, dataset_name(path, root), metrics or (EXACT_MATCH,), known)


def read_rows(dataset: Dataset) -> Iterator[Row | BadRow]:
    """Every item of the file, in one pass; after 100 bad ones the rest are only counted, in one last BadRow.

    Raises ConfigError where the file cannot be read at all.
    """
    lines: dict[str, int] = {}
    bad = 0
    line = 1
    for item in read_items(dataset.path):
        line = item.line
        row = _row(dataset, item, lines) if isinstance(item, Item) else _bad(dataset, item)
        if isinstance(row, Row) or (bad := bad + 1) <= _MOST_REPORTED:
            yield row
    if bad > _MOST_REPORTED:
        yield _bad(dataset, BadItem(line, 1, f"{bad - _MOST_REPORTED} more items of this file are bad"))
    elif not bad and not lines:
        yield _bad(dataset, BadItem(1, 1, "found no item, expected at least one object with a `question`"))


def row_case(dataset: Dataset, row: Row) -> Case:
    """The case of a row that `read_rows` gave: the question as one user message, its answer as the reference.

    Without answer and evaluator there is no metric: only a judge can decide it.
    """
    item: dict[str, Any] = json.loads(row.raw)
    metadata = _metadata(item)
    checks, metrics, reference = _deciders(dataset, metadata, _answer(item))
    question = item["question"]
    return Case(
        case_id=row.case_id,
        title=_title(question),
        path=dataset.path,
        line=row.line,
        dataset=dataset.name,
        tags=row.tags,
        runner=_RUNNER,
        messages=(Message(role="user", content=question),),
        checks=checks,
        metrics=metrics,
        reference=reference,
        metadata=metadata,
    )


def _row(dataset: Dataset, item: Item, lines: dict[str, int]) -> Row | BadRow:
    """The item as a row. `lines` maps the case ids so far to their lines."""
    line, number, raw, value = item
    wrong = _wrong(dataset, raw, value)
    if wrong is not None:
        return _bad(dataset, BadItem(line, 1, wrong))
    own_id = value.get("id")
    identifier = f"item_{number}" if own_id is None else str(own_id)
    case_id = f"{dataset.name}.{_legal(identifier)}"
    if case_id in lines:
        reason = f"id: found {identifier[:80]!r} again, first on line {lines[case_id]}; give each item its own id"
        return _bad(dataset, BadItem(line, 1, reason))
    lines[case_id] = line
    return Row(line, case_id, _tags(value["tags"]) if "tags" in value else (), raw)


def _wrong(dataset: Dataset, raw: bytes, value: Any) -> str | None:
    """What keeps a value from being an item."""
    if not isinstance(value, dict):
        return f"found {_kind(value)}, expected an object with a `question`"
    question = value.get("question")
    if not isinstance(question, str):
        found = _kind(question) if "question" in value else "none"
        return f"question: found {found}, expected a text; this is what the agent is asked"
    if not question.strip():
        return "question: found a blank text; this is what the agent is asked"
    if not _ANSWERED.isdisjoint(value):
        return "found a `prediction`: predictions are no cases; pass the dataset that they answer"
    if isinstance(value.get("id"), (dict, list)) or value.get("id") == "":
        return f"id: found {_kind(value['id'])}, expected a text or a number; without `id` the place names the item"
    if (b"\\ud" in raw or b"\\uD" in raw) and _is_no_text({key: value[key] for key in value if key != "id"}):
        return "found half of a surrogate pair (\\ud800-\\udfff), which is no text"
    if "evaluator" in value or "metadata" in value:
        try:
            _deciders(dataset, _metadata(value), _answer(value))
        except ValueError as error:
            return f"evaluator: {error}"
    return None


def _metadata(item: Mapping[str, Any]) -> dict[str, Any]:
    """All other keys, and the pairs of `metadata`, which win."""
    metadata = {key: value for key, value in item.items() if key not in _CORE}
    own = item.get("metadata")
    if isinstance(own, dict):
        metadata.update(own)
    elif own is not None:
        metadata["metadata"] = own
    return metadata


def _answer(item: Mapping[str, Any]) -> str | None:
    """The answer as text: "" for null, None where there is none."""
    if "answer" not in item:
        return None
    answer = item["answer"]
    return "" if answer is None else str(answer)


def _deciders(dataset: Dataset, metadata: Mapping[str, Any], answer: str | None) -> _Deciders:
    """Checks, metrics and reference of a row. Raises ValueError for an evaluator that says nothing usable."""
    evaluator = metadata.get("evaluator")
    if evaluator is None:
        return (), dataset.metrics if answer else (), answer
    if not isinstance(evaluator, dict) or not isinstance(evaluator.get("func"), str) or evaluator.keys() - _EVALUATOR:
        raise ValueError(
            f"found {json.dumps(evaluator)[:80]}, expected {{func: a registered check or metric, args: {{...}}}}"
        )
    name, args = evaluator["func"], evaluator.get("args") or {}
    if not isinstance(args, dict):
        raise ValueError(f"args: found {_kind(args)}, expected an object")
    known = dataset.known
    if name in BUILTIN_KINDS or name in (known.checks or ()):
        return (_evaluator_check(name, args),), (), answer
    if known.metrics is not None and name not in known.metrics:
        names = {*BUILTIN_KINDS, *(known.checks or ()), *known.metrics}
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
        raise ValueError(f"func: found {name!r}, expected a registered check or metric; {hint}")
    return (), *_evaluator_metric(name, args, answer)


def _evaluator_check(kind: str, args: Mapping[str, Any]) -> Check:
    try:
        return Check.model_validate({"check_id": "evaluator", "declarative": {**args, "kind": kind}})
    except ValidationError as error:
        raise ValueError("; ".join(f"args.{e['loc'][-1]}: {e['msg']}" for e in error.errors())) from error


def _evaluator_metric(
    name: str, args: Mapping[str, Any], answer: str | None
) -> tuple[tuple[MetricSpec, ...], str | None]:
    """`args` may hold `threshold` (default 1.0) and `reference` (default: the answer); the rest is the metric's own."""
    own = dict(args)
    reference = _answer({"answer": own.pop("reference")}) if "reference" in own else answer
    if not reference:
        raise ValueError(f"{name} has nothing to compare with; give the row an `answer` or args a `reference`")
    try:
        return (MetricSpec(name=name, threshold=own.pop("threshold", 1.0), args=own),), reference
    except ValidationError as error:
        raise ValueError("; ".join(f"args.{e['loc'][-1]}: {e['msg']}" for e in error.errors())) from error


def _asks(item: dict[str, Any] | None) -> bool:
    return item is not None and isinstance(item.get("question"), str) and _ANSWERED.isdisjoint(item)


def _legal(identifier: str) -> str:
    """The identifier as a node id can carry it; a hash keeps what was replaced apart from its neighbours."""
    if _ILLEGAL.search(identifier) is None:
        return identifier
    digest = sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_ILLEGAL.sub('_', identifier)}-{digest[:6]}"


def _tags(tags: object) -> tuple[str, ...]:
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return ()
    return _shared_tags(tuple(tags))


@lru_cache(maxsize=1024)
def _shared_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Stripped, deduplicated, sorted; one object for all rows that say the same."""
    return tuple(sorted({tag.strip() for tag in tags} - {""}))


def _is_no_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _title(question: str) -> str:
    words = " ".join(question[: 4 * _TITLE].split())
    return words if len(words) <= _TITLE else f"{words[: _TITLE - 1].rstrip()}…"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _bad(dataset: Dataset, item: BadItem) -> BadRow:
    return BadRow(item.line, f"{dataset.path}:{item.line}:{item.column}: {item.reason}")
