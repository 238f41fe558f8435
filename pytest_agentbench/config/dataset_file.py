"""`dataset.yaml` (or `<name>.dataset.yaml`): how files of questions, or a Hugging Face dataset, become cases."""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pytest_agentbench.config.base import Scope, complain, known_of, resolve_path, scope_of
from pytest_agentbench.config.case_context import CaseContext
from pytest_agentbench.config.case_file import (
    CaseVerifier,
    HookField,
    KnownRunner,
    Metrics,
    OfferedServers,
    tools_problems,
)
from pytest_agentbench.config.data_files import find_data_file_problems
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.variant_files import CasesWithVariants
from pytest_agentbench.records.base import AtLeastOne, Later, Record, Tags, Text
from pytest_agentbench.records.case import Compat, InsidePath, MetricSpec, RunnerSpec
from pytest_agentbench.records.gold import Rule

if TYPE_CHECKING:
    import pytest_agentbench.records.skills

_NAME = re.compile(r"[\w$@-]+(?:[. ][\w$@-]+)*")


def parse_template(text: str) -> tuple[str, ...]:
    """Return literal texts, at even places, and the dotted names of fields, at odd ones.

    :raises ValueError: braces hold something other than a name.
    """
    literal, *others = text.split("{{")
    parts = [literal]
    for other in others:
        inside, end, literal = other.partition("}}")
        if not end:
            raise ValueError("found {{ without }}, expected the name of a field between them")
        name = inside.strip()
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"found {{{{{inside[:40]}}}}}, expected the name of a field, such as {{{{ question }}}}; "
                "there are no expressions"
            )
        parts += [name, literal]
    return tuple(parts)


def find_only_field(value: object) -> str | None:
    """Return the field that a value names and nothing else: `answer` of "{{ answer }}"; None for any other value."""
    if not isinstance(value, str):
        return None
    try:
        before, *name, after = parse_template(value.strip())
    except ValueError:
        return None
    if len(name) == 1 and not before and not after:
        return name[0]
    return None


_DESCRIPTORS = ("dataset.yaml", "dataset.yml")
_NAMED_DESCRIPTORS = (".dataset.yaml", ".dataset.yml")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_LOCAL = (".", "/", "~", os.sep)


def is_descriptor_name(name: str) -> bool:
    """Return whether a file of that name may be a dataset's descriptor."""
    return name in _DESCRIPTORS or name.endswith(_NAMED_DESCRIPTORS)


def _check_field_path(text: str) -> str:
    if not all(part.strip() for part in text.split(".")):
        raise ValueError(f"found {text!r}, expected the name of a field, or a path such as answers.text.0")
    return text


def _check_prompt(text: str) -> str:
    if len(parse_template(text)) == 1:
        raise ValueError("found no field in it, so that all rows would ask the same; put {{ question }} into it")
    return text


def _check_template(text: str) -> str:
    parse_template(text)
    return text


def _check_class_name(text: str, info: ValidationInfo) -> str:
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", text):
        raise ValueError(f"found {text!r}, expected module:Class")
    if (scope := scope_of(info)) is not None:
        scope.refuse_program(f"the class {text!r}")
    return text


def _file_problems(pattern: str, scope: Scope) -> Iterator[str]:
    elsewhere = f"; `source: hf:./{pattern}` in place of files reads CSV and Parquet"
    return find_data_file_problems(pattern, scope, elsewhere)


def _check_file(file: str, info: ValidationInfo) -> str:
    if (scope := scope_of(info)) is not None:
        complain(((), problem) for problem in _file_problems(file, scope))
    return file


DataFile = Annotated[Text, AfterValidator(_check_file)]
"""The path of a data file, relative to the descriptor."""
FieldPath = Annotated[Text, AfterValidator(_check_field_path)]
"""Dotted names from the top of a row; a number is a place in a list."""


class AnswerRule(Record):
    """Several right answers in a field that holds a list: exactly one of any_of and all_of."""

    any_of: FieldPath | None = None
    """The field with answers of which one is enough."""
    all_of: FieldPath | None = None
    """The field with answers that all have to be given."""

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.any_of is None) == (self.all_of is None):
            found = "none" if self.any_of is None else "any_of and all_of"
            raise ValueError(f"found {found}, expected exactly one of any_of and all_of, with the name of a field")
        return self

    @property
    def rule(self) -> Rule:
        """Return how many of the answers have to be given."""
        if self.any_of is None:
            return "all_of"
        return "any_of"

    @property
    def field(self) -> str:
        """Return the field with the answers."""
        return self.any_of or self.all_of or ""


def _answer_form(answer: Any) -> str:
    if isinstance(answer, dict | AnswerRule):
        return "rule"
    return "field"


AnswerField = Annotated[
    Annotated[FieldPath, Tag("field")] | Annotated[AnswerRule, Tag("rule")], Discriminator(_answer_form)
]
"""A field, or a rule for a field with several right answers."""


class RowFields(Record):
    """Places of an item's parts in a row; all other fields are its metadata."""

    id: FieldPath = "id"
    """Names the item; a row without it is named by its place."""
    question: FieldPath = "question"
    """The question for the agent."""
    answer: AnswerField = "answer"
    """The right answer, or `{any_of: field}` and `{all_of: field}` of a list; else an evaluator or judge is needed."""
    metadata: FieldPath = "metadata"
    """An object whose pairs join the item's metadata and win."""
    tags: FieldPath = "tags"
    """A text or a list of texts."""
    split: FieldPath = "split"
    """Which split the row belongs to."""

    def path(self, name: str) -> str:
        """Return the place in a row of the part of that name."""
        place: str | AnswerRule = getattr(self, name)
        if isinstance(place, AnswerRule):
            return place.field
        return place


_USUAL_FIELDS = RowFields()

AnswerIs = Literal["index", "index1", "letter", "text"]


class ChoiceFields(Record):
    """Options of each question, made one list of texts that `{{ choices }}` names."""

    fields: Annotated[tuple[FieldPath, ...], Field(min_length=1)]
    """The options' fields, in order: fields with a text, a list, or an object by letter."""
    labels: FieldPath | None = None
    """A list of the options' labels, one of which the answer is; the answer becomes the option's letter."""
    shuffle_seed: StrictInt | None = None
    """Shuffle the options of each row; the answer becomes the letter of the right one."""

    @property
    def letters_answer(self) -> bool:
        """Return whether the answers become letters."""
        return self.labels is not None or self.shuffle_seed is not None


class PredictionFields(Record):
    """Places of ids and predictions in files of predictions that others wrote: `prediction` or `lists`."""

    items: FieldPath | None = None
    """The key of the list of objects, if the file is an object."""
    id: FieldPath | None = None
    """The id in each object; default: the file is one object, and its keys are the ids."""
    prediction: FieldPath | None = None
    """The answer. Several objects with one id are repetitions."""
    lists: dict[Text, FieldPath] = Field(default_factory=dict)
    """Predictions, and the lists of the ids that have them: `resolved: resolved_ids`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.prediction is None) == (not self.lists):
            found = "neither" if self.prediction is None else "both"
            raise ValueError(f"found {found} of prediction and lists, expected exactly one")
        if self.lists and (self.id is not None or self.items is not None):
            raise ValueError("found lists together with id or items, expected lists alone")
        return self


class Example(Record):
    """A question with its answer; further fields are for the prompt template."""

    model_config = ConfigDict(frozen=True, extra="allow")

    question: Text
    """The question."""
    answer: str | StrictBool | StrictInt | StrictFloat
    """The right answer, shown as the assistant's."""


class FewShot(Record):
    """Solved examples that are shown before each question: exactly one of examples, file and split."""

    examples: tuple[Example, ...] | None = None
    """Here."""
    file: DataFile | None = None
    """A data file whose rows have the dataset's fields."""
    split: Text | None = None
    """Another split of the dataset."""
    count: AtLeastOne | None = None
    """How many are shown; default: all `examples`, 5 of a file or split."""
    shuffle_seed: StrictInt | None = None
    """Shuffle instead of taking the first ones."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = [name for name in ("examples", "file", "split") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"found {' and '.join(given) or 'none'}, expected exactly one of examples, file and split")
        if self.examples == ():
            complain([(("examples",), "found none, expected at least one")])
        return self


class RowVerifier(CaseVerifier):
    """Decides each row by the state of the workspace, with hidden files that hold fields of the row."""

    texts: dict[InsidePath, Annotated[str, AfterValidator(_check_template)]] = Field(default_factory=dict)
    """Further files that the agent never sees, by their paths in the workspace: texts with `{{ field }}` for fields."""


class DatasetDescriptor(CasesWithVariants):
    """A dataset: its rows, their prompts and their scoring."""

    name: Text | None = None
    """Begins the case ids; default: the only named data file's path below the config root, else the folder's."""
    description: str = ""
    """For people."""
    files: tuple[Text, ...] | None = None
    """JSONL and JSON files, as paths or glob patterns relative to this file."""
    source: Text | None = None
    """Instead of files: `hf:<dataset id>` of the Hugging Face hub, or `hf:./<folder or file>` in this file's folder."""
    config: Text | None = None
    """The configuration of the Hugging Face dataset."""
    split: Text | None = None
    """Only this split: of a Hugging Face dataset, or the rows of files whose split field is equal."""
    revision: Text | None = None
    """Commit, tag or branch of the Hugging Face dataset."""
    fields: RowFields = Field(default_factory=RowFields)
    """The places of question, answer and other parts in a row."""
    choices: ChoiceFields | None = None
    """Options in several fields, with labels, or to be shuffled."""
    answer: str | StrictBool | StrictInt | StrictFloat | None = None
    """The right answer of every row, in place of a field."""
    predictions: Later[PredictionFields] | None = None
    """Where files of predictions have ids and answers, if others wrote them."""
    prompt: Annotated[Text, AfterValidator(_check_prompt)] | None = None
    """The prompt, with `{{ field }}` for fields of the row; default: the question."""
    metrics: Metrics = (MetricSpec(name="exact_match", threshold=1.0),)
    """Metrics of rows with an answer; default: exact_match of 1. An arg may be a field: `"{{ choices }}"`."""
    answer_is: AnswerIs | None = None
    """How multiple_choice reads the answers: index from 0, index1 from 1; default: a number is an index from 0 if it is
    in range, a text is a letter, else an option's text.
    """
    compat: Compat | None = None
    """`v1`: the metrics as the original benchmark defines them; `v2`: as its rewrite for rollouts does."""
    verify: Later[RowVerifier] | None = None
    """Hidden tests or a command that decide each row; `metrics` then decide only if they are named."""
    setup: HookField | None = None
    """A command in each run's workspace before the agent starts, or lines for /bin/sh; if it fails, the item errors."""
    teardown: HookField | None = None
    """A command in each run's workspace after the verdict, or lines for /bin/sh; if it fails, the session warns."""
    runner: KnownRunner = RunnerSpec(type="llm_probe")
    """The runner's type and settings that win over the run profile's."""
    context: CaseContext = Field(default_factory=dict)
    """Settings of runners: `llm_probe: {tools: [...]}`, your own."""
    functions_from: FieldPath | None = None
    """A field with declarations of functions that the model may call in this row; nothing runs them."""
    mcp_servers: OfferedServers = Field(default_factory=dict)
    """MCP servers whose tools the agent may call: declared by name, or names of declared ones."""
    skill: Later["pytest_agentbench.records.skills.SkillTrigger"] | None = None
    """Whether the agent should use a skill for the rows, for the skill's trigger rate."""
    report_only: StrictBool = False
    """Nothing can fail a row: it is run, and its metrics are reported."""
    tags: Tags = ()
    """Tags of every row."""
    tags_from: tuple[FieldPath, ...] = ()
    """Fields whose values are tags: a text itself, another value as `<field>-<value>`, of a list each element."""
    few_shot: FewShot | None = None
    """Solved examples before each question."""
    join: DataFile | None = None
    """A data file whose rows add their fields to the rows with the same id, such as separate answers."""
    limit: AtLeastOne | None = None
    """At most so many rows, the first ones."""
    shuffle_seed: StrictInt | None = None
    """Shuffle the rows. New rows do not change the order of the others."""
    benchmark: Annotated[Text, AfterValidator(_check_class_name)] | None = None
    """`module:Class`, importable or in this file's folder, whose `_parse_item(data, line_num)` makes the items."""

    @field_validator("context")
    @classmethod
    def _context_fits_the_runner(cls, value: CaseContext, info: ValidationInfo) -> CaseContext:
        complain(tools_problems(info.data.get("runner"), value, known_of(info)))
        return value

    @field_validator("functions_from")
    @classmethod
    def _check_functions(cls, value: str | None, info: ValidationInfo) -> str | None:
        context = {"llm_probe": {"functions": value}}
        complain(((), text) for _, text in tools_problems(info.data.get("runner"), context, known_of(info)))
        return value

    @field_validator("files")
    @classmethod
    def _check_files(cls, files: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        scope = scope_of(info)
        if files == ():
            raise ValueError("found none, expected at least one path or pattern")
        if scope is not None:
            complain(((at,), text) for at, each in enumerate(files or ()) for text in _file_problems(each, scope))
        return files

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source is None:
            return None
        kind, _, place = source.partition(":")
        local = place.startswith(_LOCAL)
        if kind != "hf" or not (local or _HUB_ID.fullmatch(place)):
            raise ValueError(f"found {source!r}, expected hf:<dataset id>, or hf:./<folder or file> for a local one")
        scope = scope_of(info)
        if local and scope is not None and not os.path.exists(real := resolve_path(place, scope)):
            raise ValueError(f"found {source!r}, expected a folder or file that exists; there is no {real}")
        return source

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        complain([*self._source_problems(), *self._prompt_problems(), *self._class_problems()])
        return self

    @property
    def local_source(self) -> str | None:
        """Return the path in `source` as written, or None for a dataset of the hub."""
        place = (self.source or "").removeprefix("hf:")
        if place.startswith(_LOCAL):
            return place
        return None

    @property
    def has_usual_fields(self) -> bool:
        """Return whether question and answer have their usual places in each row."""
        return self.fields == _USUAL_FIELDS and self.answer is None and self.join is None and self.benchmark is None

    @property
    def names_one_file(self) -> bool:
        """Return whether its only data file is named, and not whichever a pattern matches by now."""
        return len(self.files or ()) == 1 and not glob.has_magic((self.files or ("",))[0])

    @property
    def is_remote(self) -> bool:
        """Return whether the rows come from the hub: reading them sends a request, and may download."""
        return self.source is not None and self.local_source is None

    def _source_problems(self) -> Iterable[tuple[Loc, str]]:
        if (self.files is None) == (self.source is None):
            found = "neither files nor source" if self.files is None else "both files and source"
            yield (), f"found {found}, expected exactly one of them"
        if self.source is None:
            for name in ("config", "revision"):
                if getattr(self, name) is not None:
                    yield (name,), f"only a source has a {name}; remove it"

    def _prompt_problems(self) -> Iterable[tuple[Loc, str]]:
        answer = self.fields.path("answer")
        answers = {"answer", answer, answer.removeprefix(f"{self.fields.metadata}.")}
        for name in parse_template(self.prompt or "")[1::2]:
            if any(_overlap(name, each) for each in answers) or (name == "metadata" and "." in answer):
                yield ("prompt",), f"found {{{{ {name} }}}}, which would hand the answer to the agent; remove it"

    def _class_problems(self) -> Iterable[tuple[Loc, str]]:
        if self.benchmark is None:
            return
        for name in sorted(self.fields.model_fields_set - {"split"}):
            yield ("fields", name), "the class of `benchmark` defines the items; remove one of the two"


def _overlap(one: str, other: str) -> bool:
    """Return whether one of two dotted paths is a prefix of the other."""
    first, second = (path.removeprefix("metadata.").split(".") for path in (one, other))
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared]
