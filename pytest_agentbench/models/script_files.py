"""The files that scripted models answer from.

`demo.yaml` in a case's folder, next to its test.yaml:

    schema_version: 1
    replies:
      - steps:                                   # one per request since the last user message
          - tool_calls: [{name: read_file, arguments: {path: notes.txt}}]
          - tool_calls: [{portable: shell, arguments: {command: ls}}]   # the agent's own tool for this purpose
          - content: The notes say 42.
      - when: And in French?                     # another user message of the same case, word for word
        content: Quarante-deux.                  # short for one step
    judge:                                       # a judge's verdict on this case
      overall: 8
      dimensions: {task: 9, efficiency: {score: 6, evidence: [one call too many]}}   # or a system's own dimensions
      expectations: [{kind: hard, index: 0, met: 1}]   # one for each of the case's own
    judgement: {correct: true, reason: It says 42.}    # a judge's vote on the answer's correctness; short: true
    web_search:
      capital of France: [{title: Paris, url: "https://example.org/paris", snippet: The capital.}]
    web_fetch:
      https://example.org/paris: Paris is the capital of France.
    roles:                                       # a model that plays a role in the run
      user: [{content: And in French?}]

`<name>.demo.yaml` next to a dataset `<name>.jsonl`, or another file with cases `<name>.json`:

    schema_version: 1
    answers:                                     # by item id: a text, a reply, or a list of replies
      q1: "4"
      q2: {steps: [{tool_calls: [{name: web_search}]}, {content: Paris}]}
    default: I do not know.
    judge: {overall: 8}                          # a judge's verdict on each item
    judges: {q2: {overall: 3}}                   # of these in its place
    judgements:                                  # a judge's votes on answers' correctness, by item id
      q1: true
      q2: [true, {correct: false, reason: Names a second city.}]   # one for each repetition
    web_fetch:                                   # the pages that answers cite; default: the web
      https://example.org/paris: Paris is the capital of France.

Packs whose graders ask judges in stages add a section for each to the latter, the field `scripts` of a Pack:
replies on every item (`NAME`), and on single ones (`NAMES`, by item id). A stage has JSON, or a text that
is sent as it is, or a list with one for each request. The name of a request's response schema is then `NAME_STAGE`.

Replies depend on nothing but the conversation, so the same conversation always gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictInt,
    Tag,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from pytest_agentbench.bounded.patterns import compile_pattern, search_pattern
from pytest_agentbench.config.agent_file import PORTABLE_ARGUMENTS
from pytest_agentbench.config.base import ConfigFile, Problems, suggest
from pytest_agentbench.config.kinds import described_schema
from pytest_agentbench.extensions import load_extensions
from pytest_agentbench.records.base import DIMENSIONS, PortableName, Record

Tokens = Annotated[StrictInt, Field(ge=0)]
Score = Annotated[float, Field(ge=0, le=10)]

_SECONDS = 1.0
"""How long a pattern may be looked for in one message."""


PORTABLE, MCP = "portable:", "mcp"
"""Prefix of a portable tool's name on its way to the agent's runner, which maps it to the agent's own tool. The name of
a tool of the case begins with the second one, and a colon.
"""


class McpTool(Record):
    """A tool of the case's MCP servers, or of the case itself, for agents that get it by MCP."""

    mcp: Annotated[str, Field(min_length=1)]
    """`Server:tool`, or the name of a tool of the case."""


class ScriptedToolCall(Record):
    """A tool call; a text as `arguments` is sent as it is, so that broken JSON can be shown too."""

    name: Annotated[str, Field(min_length=1)] = ""
    """The tool."""
    portable: PortableName | McpTool | None = None
    """Replaces `name` for agents with their own tools: the agent's tool for this purpose, or its name of a tool that it
    gets by MCP.
    """
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """Arguments of the call; a text is sent unchanged."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if bool(self.name) == (self.portable is not None):
            raise ValueError("expected exactly one of 'name' and 'portable'")
        if isinstance(self.portable, str):
            wanted = PORTABLE_ARGUMENTS[self.portable]
            if not isinstance(self.arguments, dict) or self.arguments.keys() != wanted:
                raise Problems([(("arguments",), f"expected {' and '.join(sorted(wanted))} of {self.portable!r}")])
        return self

    @model_serializer(mode="wrap")
    def _leave_unsaid(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Scripts without portable calls keep their digests.
        return {name: value for name, value in dump(self).items() if name != "portable" or value is not None}

    @property
    def sent_name(self) -> str:
        """Return the name by which the model calls it."""
        if self.portable is None:
            return self.name
        if isinstance(self.portable, McpTool):
            return f"{PORTABLE}{MCP}:{self.portable.mcp}"
        return f"{PORTABLE}{self.portable}"


class ScriptedError(Record):
    """An HTTP error instead of an answer. With `times`, only for this number of requests; a retry has its number."""

    status: Annotated[StrictInt, Field(ge=400, le=599)]
    """The HTTP status."""
    message: str = "a scripted error"
    """Message of the error."""
    code: str | None = None
    """The code in the error's body."""
    retry_after: Annotated[float, Field(ge=0)] | None = None
    """Seconds that the header Retry-After asks to wait."""
    times: Annotated[StrictInt, Field(ge=1)] | None = None
    """How many requests get it before the answer comes; default: all."""


class ScriptedUsage(Record):
    """Token counts to report; a missing one is counted from the texts, four bytes a token."""

    input_tokens: Tokens | None = None
    """Tokens sent."""
    output_tokens: Tokens | None = None
    """Tokens answered."""
    reasoning_tokens: Tokens = 0
    """Tokens of thought among those of the reply."""
    cached_tokens: Tokens = 0
    """Cached tokens among those sent."""
    cache_write_tokens: Tokens = 0
    """Tokens among those sent that were written to a cache."""


class Step(Record):
    """One answer: a text, tool calls (all of them parallel), both, or an error."""

    content: str | None = None
    """Text of the answer."""
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    """Tool calls of the answer, all at once."""
    error: ScriptedError | None = None
    """An HTTP error instead."""
    latency_seconds: Annotated[float, Field(ge=0)] = 0.0
    """How long the answer takes."""
    usage: ScriptedUsage | None = None
    """Tokens to report."""

    @model_validator(mode="after")
    # `times` ends: then a step needs an answer too.
    def _require_content(self) -> Self:
        nothing = self.content is None and not self.tool_calls
        if nothing and (self.error is None or self.error.times is not None):
            raise ValueError("needs 'content' or 'tool_calls' (only an 'error' without 'times' needs neither)")
        return self


class Reply(Record):
    """The answers to the user message that is `when`, or in which the regex `matches` is found; else to any other."""

    when: str | None = None
    """The whole user message that it answers."""
    matches: str | None = None
    """A regular expression that is found in the message that it answers."""
    content: str | None = None
    """The answer, if it is one text."""
    steps: tuple[Step, ...] = ()
    """The answers one after the other: to the user message, then to the results of tools."""

    @field_validator("matches")
    @classmethod
    def _require_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            compile_pattern(pattern)
        return pattern

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.content is None) == (not self.steps):
            raise ValueError("needs either 'content' or 'steps'")
        if self.when is not None and self.matches is not None:
            raise ValueError("Specify only one of 'when' and 'matches'")
        return self

    def answers(self, user_message: str) -> bool:
        """Return whether this reply is for `user_message`. Raises TimeoutError where its pattern takes too long."""
        if self.when is not None:
            return self.when == user_message
        return self.matches is None or search_pattern(self.matches, user_message, _SECONDS) is not None

    @property
    def is_specific(self) -> bool:
        """Return whether the reply names a message; such a reply wins over one that answers any."""
        return self.when is not None or self.matches is not None

    @property
    def sequence(self) -> tuple[Step, ...]:
        """Return the steps, whichever way they are written."""
        return self.steps or (Step(content=self.content),)


class ScriptedScore(Record):
    """A judge's score with its evidence."""

    score: Score
    """From 0 to 10."""
    evidence: tuple[str, ...] = ()
    """Evidence for the score."""


class ScriptedExpectation(Record):
    """The degree to which the expectation `index` of its kind is met."""

    kind: Literal["hard", "soft"]
    """List of the expectation."""
    index: Tokens
    """Which of the list, from 0."""
    met: Annotated[float, Field(ge=0, le=1)]
    """From 0, unmet, to 1, met."""
    evidence: str = ""
    """Evidence for the score."""


VERDICT_FORMS = "scripted_verdict"
"""The seam of verdicts that judges of packs write, by the name of the response schema."""


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """Form in which judges of one kind write a scripted verdict: their dimensions, and the reply."""

    dimensions: tuple[str, ...]
    write: Callable[[ScriptedVerdict], str]


def _list_dimensions() -> list[str]:
    forms: Iterable[VerdictForm] = load_extensions(VERDICT_FORMS).values()
    return [*DIMENSIONS, *(name for form in forms for name in form.dimensions)]


def _check_dimensions(given: dict[str, Any]) -> dict[str, Any]:
    # Packs are asked only for a name that is not ours: most scripts import none.
    if given.keys() - set(DIMENSIONS):
        known = _list_dimensions()
        if unknown := [name for name in given if name not in known]:
            raise ValueError(f"found {unknown[0]!r}{suggest(unknown[0], known)}, expected {', '.join(known)}")
    return given


def _name_dimensions(schema: dict[str, Any]) -> None:
    schema["propertyNames"] = {"enum": _list_dimensions()}


class ScriptedVerdict(Record):
    """A judge's answer. Dimensions left out get the overall score. `content` is sent instead, as it is."""

    overall: Score | ScriptedScore = 0.0
    """The score of the whole, 0 to 10."""
    dimensions: Annotated[dict[str, Score | ScriptedScore], AfterValidator(_check_dimensions)] = Field(
        default_factory=dict, json_schema_extra=_name_dimensions
    )
    """Scores by dimension; default: the overall one."""
    expectations: tuple[ScriptedExpectation, ...] = ()
    """How far expectations are met."""
    criteria: dict[str, Score | ScriptedScore] = Field(default_factory=dict)
    """Scores of the rubric's own criteria, by name."""
    summary: str = "A scripted verdict."
    """The judge's summary, a sentence."""
    content: str | None = None
    """A raw reply instead, such as a broken one."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and "overall" not in self.model_fields_set and not self._is_complete():
            raise ValueError("needs 'overall', or 'content' for a raw reply, or all dimensions of a system's own judge")
        return self

    def _is_complete(self) -> bool:
        if self.dimensions.keys() <= set(DIMENSIONS):  # no form of a pack's judge has to be imported
            return False
        forms = load_extensions(VERDICT_FORMS).values()
        return any(set(form.dimensions) <= self.dimensions.keys() for form in forms)

    def scored(self, dimension: str | None = None) -> ScriptedScore:
        """Return the score of a dimension, or the overall one."""
        return _with_evidence(self.dimensions.get(dimension or "", self.overall))

    def scored_criteria(self) -> list[dict[str, Any]]:
        """Return the scores of criteria as a judge's reply has them."""
        return [{"name": name, **_with_evidence(score).model_dump()} for name, score in self.criteria.items()]


def _with_evidence(score: float | ScriptedScore) -> ScriptedScore:
    if isinstance(score, ScriptedScore):
        return score
    return ScriptedScore(score=score)


def _tag_count(said: Any) -> str:
    if isinstance(said, list | tuple):
        return "many"
    return "one"


ScriptedVerdicts = Annotated[
    # By a tag: pydantic would otherwise report the errors of both forms for a mistake in one.
    Annotated[ScriptedVerdict, Tag("one")] | Annotated[tuple[ScriptedVerdict, ...], Field(min_length=1), Tag("many")],
    Discriminator(_tag_count),
]
"""The same verdict in each iteration, or a list with one for each."""


class ScriptedJudgement(Record):
    """A judge's word on whether an answer is correct. `content` is sent instead, as it is."""

    correct: StrictBool | None = None
    """Whether the answer is."""
    reason: str = "A scripted verdict."
    """Why."""
    content: str | None = None
    """A raw reply instead, such as a broken one."""

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if (self.correct is None) == (self.content is None):
            raise ValueError("needs either 'correct', or 'content' for a raw reply")
        return self


ScriptedVote = StrictBool | ScriptedJudgement
ScriptedVotes = ScriptedVote | Annotated[tuple[ScriptedVote, ...], Field(min_length=1)]
"""The same vote at each repetition, or a list with one for each."""


class ScriptedSearchResult(Record):
    """One hit of a scripted web search."""

    title: str
    """Title of the page."""
    url: str
    """Its address."""
    snippet: str = ""
    """A piece of its text."""


ScriptedStages = dict[str, Any]
"""A judge's replies by stage: JSON or a text, or a list with one for each request."""


class CaseScript(ConfigFile):
    """`demo.yaml`: how a scripted model answers one case."""

    replies: tuple[Reply, ...] = ()
    """The model's replies to user messages; a reply with a `when` takes precedence over one without."""
    judge: ScriptedVerdicts | None = None
    """A judge's verdict on the run; a list has one for each request."""
    judgement: ScriptedVotes | None = None
    """Whether a judge finds the answer correct."""
    web_search: dict[str, tuple[ScriptedSearchResult, ...]] = Field(default_factory=dict)
    """Results of the tool web_search by query."""
    web_fetch: dict[str, str] = Field(default_factory=dict)
    """The text of the pages that the tool web_fetch gets, by URL."""
    roles: dict[str, tuple[Reply, ...]] = Field(default_factory=dict)
    """The replies of a model that plays a role in the run, such as a simulated user, by the role."""


def _tag_form(said: Any) -> str:
    if isinstance(said, str):
        return "text"
    if isinstance(said, list | tuple):
        return "replies"
    return "reply"


def _require_some(replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
    if not replies:
        raise ValueError("found none, expected at least one reply")
    return replies


ScriptedAnswer = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Reply, Tag("reply")]
    | Annotated[tuple[Reply, ...], AfterValidator(_require_some), Tag("replies")],
    Discriminator(_tag_form),
]
"""A model's answer to an item: a text, a reply, or replies for different messages."""


class DatasetScript(ConfigFile):
    """`<name>.demo.yaml`: how a scripted model answers the rows of a file with cases, by item id."""

    answers: dict[str, ScriptedAnswer] = Field(default_factory=dict)
    """The model's answers by item id."""
    default: ScriptedAnswer | None = None
    """Its answer to every other item."""
    judge: ScriptedVerdicts | None = None
    """A judge's verdict on every item."""
    judges: dict[str, ScriptedVerdicts] = Field(default_factory=dict)
    """A judge's verdict on single items, in place of `judge`, by item id."""
    judgements: dict[str, ScriptedVotes] = Field(default_factory=dict)
    """Whether a judge finds the answers correct, by item id."""
    web_fetch: dict[str, str] = Field(default_factory=dict)
    """The pages that reports cite, and that the tool web_fetch gets, by URL; without it the web has them."""
    roles: dict[str, ScriptedAnswer] = Field(default_factory=dict)
    """Answers of a model that plays a role in the runs, such as a simulated user, by the role."""

    def stages(self, item_id: str | None = None) -> dict[str, ScriptedStages]:
        """Return the judges' staged replies for an item by section; None: for every other item."""
        return {
            section: {**getattr(self, section), **getattr(self, by_item).get(item_id, {})}
            for section, by_item in list_stage_sections()
        }

    @property
    def item_ids(self) -> dict[str, Any]:
        """Return the ids of items in the script."""
        staged = (getattr(self, by_item) for _, by_item in list_stage_sections())
        return {item_id: True for field in (self.answers, self.judges, self.judgements, *staged) for item_id in field}


def list_stage_sections() -> list[tuple[str, str]]:
    """Return the sections that packs add: the name for every item, and the name for some in its place."""
    return [(name, sections.by_item) for name, sections in load_extensions("script").items()]


# Made once: pydantic takes milliseconds to make a model, and the packs of a process are always the same.
@cache
def dataset_script_model() -> type[DatasetScript]:
    """Return the model of dataset scripts with the sections of packs, without importing the packs."""
    fields: dict[str, Any] = {}
    for one, each in list_stage_sections():
        fields[one] = (ScriptedStages, Field(default_factory=dict))
        fields[each] = (dict[str, ScriptedStages], Field(default_factory=dict))
    made: type[DatasetScript] = create_model(
        DatasetScript.__name__, __base__=DatasetScript, __module__=__name__, __doc__=DatasetScript.__doc__, **fields
    )
    return made


def script_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas (draft 2020-12) of both kinds of script by name, for editors."""
    kinds: dict[str, type[ConfigFile]] = {"demo": CaseScript, "dataset_demo": dataset_script_model()}
    schemas = {name: described_schema(kind) for name, kind in kinds.items()}
    properties = schemas["dataset_demo"]["properties"]
    for name, sections in load_extensions("script").items():
        properties[name]["description"] = sections.about
        properties[sections.by_item]["description"] = sections.about_by_item
    return schemas
