"""A case: messages for an agent, servers, and the checks, metrics and judges that decide."""

import re
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    StrictBool,
    StrictFloat,
    StrictInt,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.extensions import OWN, find_extension
from pytest_agentbench.records.base import (
    AtLeastOne,
    CasePart,
    Later,
    Record,
    RecordWithParts,
    SandboxType,
    Seconds,
    Slug,
    Tags,
    Text,
    VariableName,
)
from pytest_agentbench.records.check_specs import Check, Fraction
from pytest_agentbench.records.gold import Gold, Golds

if TYPE_CHECKING:
    import pytest_agentbench.records.conversations
    import pytest_agentbench.records.skills

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""How a header names a variable."""


class SandboxSettings(Record):
    """The sandbox of the agent's commands, and its limits. A provider's own fields are those of a subclass."""

    type: SandboxType = "auto"
    """auto: docker if a daemon runs and an image is named, else bubblewrap; local isolates nothing."""
    image: Text | None = None
    """Image of the containers, pinned by tag or digest; a case may name its own."""
    network: Literal["deny", "watch", "allow"] = "deny"
    """Network for commands. watch: none, and attempts to reach other hosts are recorded; in bubblewrap only."""
    build_network: Literal["deny", "allow"] = "deny"
    """Network while images of cases are built."""
    cpus: Annotated[float, Field(strict=True, gt=0)] = 2.0
    """Processors of a container."""
    memory_mb: AtLeastOne = 2048
    """Memory of all processes of a run."""
    processes: AtLeastOne = 512
    """Processes and threads of a run."""
    workspace_mb: AtLeastOne = 512
    """Maximum size of a run's workspace."""


def find_settings(kind: Any) -> type[SandboxSettings]:
    """Return the model of a sandbox's settings: that of its provider, if the provider has fields of its own."""
    # The package's own kinds have none, and a session without commands does not import their providers
    provider = find_extension("sandbox", kind) if isinstance(kind, str) and kind not in OWN["sandbox"] else None
    if provider is None:
        return SandboxSettings
    model: type[SandboxSettings] = provider.settings
    return model


def change_type(settings: SandboxSettings, kind: str) -> SandboxSettings:
    """Return the settings for another kind of sandbox, with the defaults of its provider's own fields.

    Raises UnavailableError if the provider requires a field that the settings lack.
    """
    if kind == settings.type:
        return settings
    model = find_settings(kind)
    try:
        return model(**{name: getattr(settings, name) for name in SandboxSettings.model_fields} | {"type": kind})
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise UnavailableError(
            f"the sandbox {kind} has settings that the run profile lacks ({fields}): write them there, as "
            f"`sandbox: {{type: {kind}, ...}}`"
        ) from error


def _read_settings(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, dict) and (model := find_settings(value.get("type"))) is not SandboxSettings:
        return model.model_validate(value)
    return handler(value)


# Chooses one member of SandboxChoice; without it pydantic reports the mistakes of both.
def _form(sandbox: Any) -> str:
    if isinstance(sandbox, dict | SandboxSettings):
        return "settings"
    return "type"


SandboxChoice = Annotated[
    Annotated[SandboxType, Tag("type")]
    | Annotated[SerializeAsAny[Later[SandboxSettings]], WrapValidator(_read_settings), Tag("settings")],
    Discriminator(_form),
]
"""A type of sandbox, or its settings."""


# Values are not shown: they may be keys.
def _environment(env: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
        raise ValueError("expected names that are not empty and have no '=', and no NUL in names and values")
    return env


# A value with a line break could add further headers to each request.
def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not re.fullmatch(r"[\t -~]*", value):
            raise ValueError(f"found a header {name!r} that HTTP does not allow, expected one line of ASCII")
    return headers


# Names of headers that providers read keys from: their values may be variables only.
_KEY_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "api-key", "x-api-key", "x-goog-api-key", "ocp-apim-subscription-key"}
)
_FROM_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


def _endpoint_headers(headers: dict[str, str]) -> dict[str, str]:
    _headers(headers)
    for name, value in headers.items():
        is_variable = _FROM_VARIABLE.fullmatch(value) is not None
        if not is_variable and (value.startswith("env:") or name.lower() in _KEY_HEADERS):
            raise ValueError(f"found a value of {name!r} in the file, expected env:VARIABLE: keys must not be in files")
    return headers


EndpointHeaders = Annotated[dict[str, str], AfterValidator(_endpoint_headers)]
"""Headers of requests to a model; a value `env:VARIABLE` is that of the variable."""


def header_variable(value: str) -> str | None:
    """Return the variable whose value an endpoint's header has, or None for a literal value."""
    match = _FROM_VARIABLE.fullmatch(value)
    return match and match[1]


def _address(url: str) -> str:
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ValueError(f"found {url!r}, expected an address that begins with http:// or https://")
    return url


def check_argument(text: str) -> str:
    """Return an argument of a program. Raises ValueError for one that no program accepts."""
    if "\0" in text:
        raise ValueError("found a NUL character, which no program accepts")
    return text


class McpServer(Record):
    """An MCP server: a program (`command`) that speaks over its stdin and stdout, or an address (`url`).

    With both, the program is started and then spoken to at the address; such a server is shared by all runs.
    """

    command: Annotated[Text, AfterValidator(check_argument)] | None = None
    """The program to start: its name on PATH, or its path where that is installed or below the session's root."""
    args: tuple[Annotated[str, AfterValidator(check_argument)], ...] = ()
    """Its arguments."""
    env: Annotated[dict[str, str], AfterValidator(_environment)] = Field(default_factory=dict)
    """Environment of the server: only these variables, those of `env_from`, and AGENTBENCH_WORKSPACE."""
    env_from: tuple[VariableName, ...] = ()
    """Names of variables that it gets from this process. Servers of cases get those that keys.yaml grants."""
    cwd: str | None = None
    """The folder it starts in, which it can read; relative to the file that declares it. Default: the workspace."""
    url: Annotated[Text, AfterValidator(_address)] | None = None
    """Address of a server that speaks streamable HTTP."""
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    """Headers of requests to `url`; `${NAME}` in a value is that variable of this process, as in `env_from`."""
    scope: Literal["run", "session"] = "run"
    """A process for each run, so that state never leaks, or one for all."""
    timeout_seconds: Seconds | None = None
    """Limit of one call; default: 60."""
    sandbox: SandboxChoice | None = None
    """Where its program runs, in servers.yaml and run profiles only; default: the run profile's sandbox."""
    category: Text | None = None
    """Its subject: a tag of the tasks that it serves."""
    exclude_tools: tuple[Text, ...] = ()
    """Names of its tools that no run is offered."""

    @property
    def header_variables(self) -> list[str]:
        """Return the names of this process's variables that its headers hold."""
        return [name for value in self.headers.values() for name in VARIABLE.findall(value)]

    @model_validator(mode="after")
    def _some_way(self) -> Self:
        if self.command is None and self.url is None:
            raise ValueError("found neither 'command' nor 'url', expected one of them, or both")
        # A process for each run would need an address for each run
        if self.command is not None and self.url is not None and self.scope != "session":
            raise ValueError("a server with both 'command' and 'url' has one address for all runs: set scope: session")
        return self


# By its text alone: the workspace does not exist yet. Links in it are checked when the path is used.
def _inside(path: str) -> str:
    if path.startswith("/") or "\0" in path or ".." in path.split("/") or not path.strip("/."):
        raise ValueError(f"found {path!r}, expected a path below the workspace, without `..`")
    return path


def _inside_or_itself(path: str) -> str:
    if path.strip("/") in ("", ".") and not path.startswith("/"):
        return path
    return _inside(path)


InsidePath = Annotated[Text, AfterValidator(_inside)]
"""A path below the workspace, relative to it."""

InsideFolder = Annotated[Text, AfterValidator(_inside_or_itself)]
"""The same, or the workspace itself: `.`."""


def _test_id(text: str) -> str:
    text = text.strip()
    _inside(text.partition("::")[0])  # only the file is a path; parameters of a test may contain `..` and slashes
    return text


TestId = Annotated[Text, AfterValidator(_test_id)]
"""A file, folder or node id of pytest, relative to the workspace. A test function includes all its parameters."""


class Expected(Record):
    """The end that a verifier's command must come to."""

    exit_code: StrictInt = 0
    """Its exit code."""
    output_contains: tuple[Text, ...] = ()
    """Texts that it prints, on stdout or stderr."""
    result: dict[str, Any] | None = None
    """Members that the JSON object in the file named by $AGENTBENCH_RESULT must include."""


class PytestTests(Record):
    """Tests that pytest runs. Each one that is named has to run and pass: none may be skipped, xfailed or missing."""

    fail_to_pass: tuple[TestId, ...] = ()
    """Tests that failed before the agent did its work."""
    pass_to_pass: tuple[TestId, ...] = ()
    """Tests that passed before and still have to."""
    tests: tuple[TestId, ...] = ()
    """Further files, folders or tests."""
    pythonpath: tuple[InsideFolder, ...] = (".",)
    """Folders of the workspace that the tests import from; they come after the standard library."""
    plugins: tuple[Text, ...] = ()
    """Modules of installed pytest plugins that the tests need; no other is loaded."""
    config: InsidePath | None = None
    """A pytest configuration file among `files` or of the template; default: none at all."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.ids:
            raise ValueError("found no test, expected at least one of fail_to_pass, pass_to_pass and tests")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """Return all that is named, each once."""
        return tuple(dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass, *self.tests)))


class HiddenFile(Record):
    """A file or folder of the case's that is put at `target` in the workspace once the agent has stopped.

    It is a copy of `source`, or holds `text`.
    """

    target: str
    source: Path | None = None
    text: str = ""


class Verifier(Record):
    """Decides a run by the files that it left. Exactly one of `command` (its argv) and `pytest` is set.

    `keep` are paths whose files stay as the agent left them although their names could steer Python or pytest. `apart`:
    the agent's files are in a separate sandbox. `canary` is a folder with a known wrong solution; None: the case's
    workspace before the run. `answer_file` is the path for the code of the final answer.
    """

    check_id: Slug
    files: tuple[HiddenFile, ...] = ()
    command: tuple[str, ...] | None = None
    expected: Expected = Field(default_factory=Expected)
    pytest: PytestTests | None = None
    keep: tuple[str, ...] = ()
    apart: bool = False
    canary: Path | None = None
    answer_file: str | None = None
    timeout_seconds: float = 300.0


class CaseCommand(Record):
    """A command around a run of the case, by its argv.

    `file` declares it as `setup` or `teardown`, and errors name its line there. None: errors name the case's.
    """

    command: tuple[str, ...]
    timeout_seconds: float = 60.0
    file: Path | None = None


Role = Literal["system", "user", "assistant", "tool"]


class GivenCall(Record):
    """A tool call that a message of the case makes."""

    id: Text
    """The tool_call_id of the message with its result; unique in the conversation."""
    name: Text
    """The tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""


class Message(Record):
    """One chat message with its text in place.

    `max_seconds` is the time for the agent's answer to a turn; None: that of the conversation's limits.
    """

    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[Later[GivenCall], ...] = ()
    tool_call_id: Text | None = None
    max_seconds: Seconds | None = Field(None, exclude_if=lambda value: value is None)

    @property
    def calls(self) -> dict[str, Any]:
        """Return the tool calls of the message as JSON: the calls that it makes, or the id of the answered one."""
        if not self.tool_calls and self.tool_call_id is None:
            return {}
        return self.model_dump(mode="json", include={"tool_calls", "tool_call_id"}, exclude_defaults=True)


class Attachment(Record):
    """A local file shown to the agent. Addressed by content: `sha256` (hex) and `size` (bytes)."""

    name: str
    path: Path
    size: int
    sha256: str


class SandboxNeeds(Record):
    """Requirements of a case's commands that docker meets. `image` is pinned, `dockerfile` is built in its folder.

    `compose` is a file with services that run in addition to the agent's container.
    """

    image: Text | None = None
    dockerfile: Path | None = None
    compose: Path | None = None


class RunnerSpec(Record):
    """The runner of a case, with the case's own overrides as extra fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Text
    """The runner: `llm_probe`, or one that a pack or a plugin adds."""

    @property
    def overrides(self) -> dict[str, Any]:
        """Return the case-level runner fields: the last layer of the merge."""
        return dict(self.model_extra or {})


class Expectation(Record):
    """A statement in plain language that the judge weighs."""

    text: Text
    """The statement."""
    weight: Annotated[float, Field(strict=True, ge=0)] = 1.0
    """Its weight among others of its kind."""
    turn: AtLeastOne | None = Field(None, exclude_if=lambda value: value is None)
    """The turn of a conversation that it is about, from 1; default: the whole conversation."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything you like; not used by the framework."""

    @property
    def label(self) -> str:
        """Return its text for people, after the turn that it is about."""
        if self.turn is None:
            return self.text
        return f"turn {self.turn}: {self.text}"


class Expectations(Record):
    """Expectations for the judge: hard ones are critical; soft ones earn partial credit."""

    hard_expectations: tuple[Expectation, ...] = ()
    """Mandatory expectations; with `require_hard`, an unmet one fails the case."""
    soft_expectations: tuple[Expectation, ...] = ()
    """Desired expectations."""


_NO_EXPECTATIONS = Expectations()  # one object for all cases: it is frozen


class RubricScale(Record):
    """The rubric's own scale. The judge always answers 0-10, which maps to `min + s / 10 * (max - min)`."""

    min: StrictFloat = 0
    """The lowest score."""
    max: StrictFloat = 10
    """The highest score."""
    anchors: dict[str, str] = Field(default_factory=dict)
    """Meanings of scores, by score."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max <= self.min:
            raise ValueError(f"max ({self.max:g}) must be greater than min ({self.min:g})")
        return self


class Criterion(Record):
    """One thing the judge looks at."""

    name: Text
    """Its name in verdicts and reports."""
    what_good_looks_like: str | None = None
    """Properties that earn a high score."""
    what_bad_looks_like: str | None = None
    """Properties that earn a low score."""


class Rubric(Record):
    """Instructions for the judge."""

    version: StrictInt = 1
    """For people: count it up when the rubric changes."""
    scale: RubricScale = Field(default_factory=RubricScale)
    """Range of the scores, and their meanings."""
    criteria: tuple[Criterion, ...] = ()
    """Criteria for the judge, who scores each of them with evidence. The overall score is the verdict."""
    scoring_instructions: str | None = None
    """Further instructions for the judge."""

    @property
    def criterion_names(self) -> tuple[str, ...]:
        """Return the names by which a judge scores the criteria: each once, with single blanks."""
        return tuple(dict.fromkeys(" ".join(criterion.name.split()) for criterion in self.criteria))


COMPARING_METRICS = frozenset(
    {
        *("exact_match", "similarity", "contains_answer", "f1_score", "bleu_score", "rouge_score", "numeric_match"),
        *("json_match", "llm_judgement", "math_equal", "multiple_choice", "pass_at_k", "pass_hat_k"),
    }
)
"""Metrics of this package that compare with an answer, and are undefined without one."""


Compat = Literal["v1", "v2"]
"""Definitions of metrics: of the original benchmark (seed 001), or of its rewrite for rollouts."""


class MetricSpec(Record):
    """A registered metric of the final output against the reference; below `threshold` (None: report only) it fails.

    `compat` asks for the original benchmark's definition.
    """

    name: Text
    """A registered metric, such as `contains_answer`."""
    threshold: Fraction | None = None
    """The score from which it passes, 0 to 1; null only reports it."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Options of the metric."""
    compat: Compat | None = None
    """`v1` for the definition of the original benchmark, `v2` for that of its rewrite for rollouts."""


class Thresholds(Record):
    """Bounds that a case's repetitions must reach together."""

    pass_rate: Fraction | None = None
    """Least share of repetitions that pass, 0 to 1."""
    pass_hat_k: Fraction | None = None
    """Least pass^k over all repetitions 0 to 1."""


class Case(RecordWithParts):
    """One benchmark case with all files that it names resolved.

    `path` and `line` (1-based) are its place. `reference` is a right answer, or None; `golds` are all right answers for
    metrics if they are more than one text. `workspace` is the folder whose copy is a run's initial workspace, None for
    an empty one. `mcp_servers` are the servers whose tools the agent may call; None stands for a server that is
    declared elsewhere. `skills` are instructions that the agent may load, `skill` is whether it should load one of
    them. `parts` are the parts of packs by name: `case.part(Model)`. `context` and `metadata` are the file's mappings;
    `checks`, `verify`, `metrics` and the judge decide. `setup` runs before the agent, `teardown` after the verdict.
    `conversation` are the limits of a run with turns; they take precedence over the run profile's.
    """

    seam: ClassVar[str] = "case_part"

    case_id: str
    title: str
    path: Path
    line: int = 1
    dataset: str | None = None
    tags: Tags = ()
    runner: RunnerSpec
    messages: tuple[Message, ...] = ()
    turns: tuple[Message, ...] = ()
    attachments: tuple[Later[Attachment], ...] = ()
    context: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[str, ...] = ()
    mcp_servers: dict[str, Later[McpServer] | None] = Field(default_factory=dict)
    workspace: Path | None = None
    sandbox: Later[SandboxNeeds] | None = None
    expectations: Later[Expectations] = Field(default_factory=lambda: _NO_EXPECTATIONS)
    rubric: Later[Rubric] | None = None
    checks: tuple[Later[Check], ...] = ()
    metrics: tuple[Later[MetricSpec], ...] = ()
    reference: str | None = None
    golds: Later[Golds] | None = None
    verify: tuple[Later[Verifier], ...] = ()
    setup: Later[CaseCommand] | None = None
    teardown: Later[CaseCommand] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    must_pass: StrictBool = False
    report_only: StrictBool = False
    require_hard: StrictBool = False
    thresholds: Later[Thresholds] | None = None
    conversation: Later["pytest_agentbench.records.conversations.ConversationLimits"] | None = Field(
        None, exclude_if=lambda value: value is None
    )
    skill: Later["pytest_agentbench.records.skills.SkillTrigger"] | None = Field(
        None, exclude_if=lambda value: not value
    )
    skills: tuple[Later["pytest_agentbench.records.skills.Skill"], ...] = Field((), exclude_if=lambda value: not value)

    @property
    def case_parts(self) -> tuple[CasePart, ...]:
        """Return its parts that the engine may ask."""
        return tuple(part for part in self.parts.values() if isinstance(part, CasePart))

    @property
    def has_hooks(self) -> bool:
        """Return whether a command runs before or after the agent."""
        return self.setup is not None or self.teardown is not None

    @property
    def gold(self) -> Gold:
        """Return the answer for metrics, "" if there is none."""
        return self.golds or self.reference or ""

    @property
    def expected_artifact(self) -> str | None:
        """Return the file that the agent is to leave in its workspace, by its path there; None: it is left open.

        The `expected_artifact` that a runner's section of the context names.
        """
        hints = (each.get("expected_artifact") for each in self.context.values() if isinstance(each, dict))
        path = next((each for each in hints if isinstance(each, str)), None)
        if path is None:
            return None
        return str(PurePosixPath(path))

    @property
    def expects_status(self) -> frozenset[str]:
        """Return the statuses that its `status_is` checks name: such an end is not an error."""
        leaves = (leaf for check in self.checks for _, leaf in check.leaves)
        return frozenset(getattr(leaf.declarative, "status", "") for leaf in leaves if leaf.kind == "status_is")


DialectName = Literal[
    "openai",
    "azure",
    "openrouter",
    "anthropic",
    "gemini",
    "vertex",
    "deepseek",
    "moonshot",
    "mistral",
    "groq",
    "xai",
    "together",
    "fireworks",
    "bedrock",
    "local",
    "other",
]
"""The dialects of Chat Completions that `config.dialects` describes."""


ApiName = Literal["chat", "responses", "messages", "gemini"]
"""A protocol that models are asked in: Chat Completions, OpenAI's Responses, Anthropic's Messages, or Google's
generateContent."""


class Dialect(Record):
    """How an endpoint's Chat Completions differ. The defaults are accepted by most endpoints."""

    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The request field for the most tokens to generate."""
    seed: Text = "seed"
    """The request field for the seed."""
    auth_header: Text = "Authorization"
    """The header that holds the key: as `Bearer KEY` in Authorization, as it is in any other."""
    never_back: tuple[Text, ...] = ("annotations", "audio", "executed_tools")
    """Keys of the model's messages and calls that are not sent back; `*unknown`: all keys outside of the protocol."""
    always_back: tuple[Text, ...] = ()
    """Keys that `*unknown` does not mean."""
    return_empty_in_tool_loop: tuple[Text, ...] = ()
    """Keys that all of the model's messages get, as empty text, once one of them had it."""
    call_ids: Literal["any", "nine"] = "any"
    """Ids of calls that it accepts: any, or only nine letters and digits, into which other ids are then changed."""
    final_without_tools: bool = True
    """A final answer is asked for without tools; false: with them, and `tool_choice: none`."""
    temperature_max: Annotated[float, Field(strict=True, gt=0)] = 2.0
    """The highest temperature that it takes."""
    json_schema: bool = True
    """It takes a JSON Schema as `response_format`; false: `json_object` at most."""
    reasoning_object: bool = False
    """It takes `reasoning: {effort: ...}`; false: that is sent as `reasoning_effort`."""
    ignored: tuple[Text, ...] = ()
    """Request fields that have no effect there."""
    truncation_watch: bool = False
    """It cuts prompts that are too long without a word, which the counts of tokens are watched for."""
    prompt_cache: Literal["marks", "key"] | None = None
    """How requests enable the prompt cache: `cache_control` in messages for Anthropic's models, or a
    `prompt_cache_key`; null: not at all.
    """


CassetteMode = Literal["off", "record", "replay", "auto"]
"""Use of a model's cassette: none, record anew, replay, or replay as far as it goes and record the rest."""


Streamed = Literal["auto"] | StrictBool
"""Whether replies are streamed; auto: if a request may take over a minute, or stall_seconds is set."""


BatchKind = Literal["auto", "openai", "anthropic", "gemini"]
"""The protocol of an endpoint's batches; auto: by its host."""


class Prices(Record):
    """USD per million tokens."""

    input_per_1m: Annotated[float, Field(strict=True, ge=0)]
    """For a million tokens sent."""
    output_per_1m: Annotated[float, Field(strict=True, ge=0)]
    """For a million tokens answered."""
    cached_input_per_1m: Annotated[float, Field(strict=True, ge=0)] | None = None
    """For a million tokens sent that the provider had cached; default: as `input_per_1m`."""
    cache_write_per_1m: Annotated[float, Field(strict=True, ge=0)] | None = None
    """For a million tokens sent that the provider wrote to its cache; default: as `input_per_1m`."""
    cache_write_1h_per_1m: Annotated[float, Field(strict=True, ge=0)] | None = None
    """For a million of those that are kept for an hour; default: as `cache_write_per_1m`."""


class PromptCache(Record):
    """Parts of a prompt that the provider is asked to cache, if it needs a request for that."""

    system: StrictBool = True
    """All up to the end of the system prompt."""
    last_message: StrictBool = True
    """All up to the last message, which the next request of a conversation begins with."""
    ttl: Literal["5m", "1h"] = "5m"
    """How long it is kept: five minutes, or an hour, which costs more."""


class Limits(Record):
    """Limits of an endpoint: requests in flight, requests and tokens per minute. None: unlimited."""

    max_concurrency: Annotated[StrictInt, Field(ge=1)] = 64
    """Requests in flight."""
    rpm: Annotated[StrictInt, Field(ge=1)] | None = None
    """Requests per minute; null: unlimited."""
    tpm: Annotated[StrictInt, Field(ge=1)] | None = None
    """Tokens per minute; null: unlimited."""


class Model(Record):
    """A model as a session reaches it: identity, route, request parameters, prices, limits.

    `scripted` models answer from scripts and are never presented as real ones. `provider` is a plugin's route to the
    model. `api_key_env` names a variable, never contains a key; None if the endpoint needs none. `judge` is the model
    id that judges this model's runs, if set; `cassettes` overrides the session's mode. `headers` and `query` are sent
    with each request; the address has no query. `api` is the protocol of requests, and `wires` is the model under
    further protocols, for agents that use them. `dialect` "auto" is determined by the endpoint's host, and
    `dialect_overrides` replace parts of it. `anthropic_version` is that of Anthropic's API; None: the newest that
    accepts the request. `stream` and `stall_seconds` apply unless a run's settings set them; with `batch` single
    requests are sent in batches. With `prompt_cache` the provider is asked to cache prompts, under `prompt_cache_key`
    if it needs one.
    """

    model_id: str
    requested_model: str
    label: str | None = None
    base_url: str | None = None
    api_key_env: str | None = "OPENAI_API_KEY"
    provider: str | None = None
    scripted: bool = False
    judge: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    prices: Later[Prices] | None = None
    limits: Later[Limits] = Field(default_factory=Limits)
    cassettes: CassetteMode | None = None
    stream: Streamed = False
    stall_seconds: float | None = None
    batch: BatchKind | None = None
    prompt_cache: Later[PromptCache] | None = None
    prompt_cache_key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    api: ApiName = "chat"
    wires: dict[ApiName, "Model"] = Field(default_factory=dict)
    dialect: DialectName | Literal["auto"] = "auto"
    dialect_overrides: Later[Dialect] | None = None
    anthropic_version: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def variables(self) -> list[str]:
        """Return the names of the variables for keys of requests, except those of `wires`."""
        return [name for name in (self.api_key_env, *map(header_variable, self.headers.values())) if name is not None]

    def find_wire(self, api: str) -> "Model | None":
        """Return the model as an agent's requests in a protocol reach it; None if they must be translated."""
        # Scripts and plugins answer in Python: no endpoint exists that a request could be passed to
        if self.scripted or self.provider is not None:
            return None
        return self if api == self.api else self.wires.get(api)  # type: ignore[call-overload]


def name_column(model_id: str, variant: str | None) -> str:
    """Return the name of a model, or of a model's variant, in item ids and reports."""
    if variant is None:
        return model_id
    return f"{model_id}:{variant}"


_LONGEST_ID = 200
# `::` and brackets divide node ids, control characters and marks of direction steer terminals, surrogates are no UTF-8.
_ILLEGAL = re.compile("::|[\\[\\]\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def legal_id(identifier: str) -> str:
    """Return the identifier as a node id can contain it. A hash distinguishes identifiers that were changed or cut."""
    if len(identifier) <= _LONGEST_ID and _ILLEGAL.search(identifier) is None:
        return identifier
    digest = sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_ILLEGAL.sub('_', identifier[:_LONGEST_ID])}-{digest[:6]}"
