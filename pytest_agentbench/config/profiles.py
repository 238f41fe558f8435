"""Files that a session names in a config root: run and evaluation profiles, suites, and the models of `models.yaml`."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from pytest_agentbench.config.base import (
    ConfigFile,
    LocalFile,
    LocalFolder,
    Problems,
    Scope,
    complain,
    find_duplicates,
    find_unregistered,
    known_of,
    require_unique,
    resolve_file,
    suggest,
    validate_together,
)
from pytest_agentbench.config.case_file import Metrics
from pytest_agentbench.config.documents import Loc, read_bytes
from pytest_agentbench.config.request_fields import spread_extra_body
from pytest_agentbench.config.sections import (
    FileKind,
    PlacedServers,
    SectionedFile,
    ServerName,
    SettingsLayer,
    find_temperature_problems,
)
from pytest_agentbench.config.variant_files import FileWithVariants
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.base import AtLeastOne, Later, Record, Seconds, Slug, Tags, Text
from pytest_agentbench.records.case import Compat, McpServer, SandboxChoice, SandboxSettings, find_settings
from pytest_agentbench.records.check_specs import Fraction

if TYPE_CHECKING:
    import pytest_agentbench.config.model_entries
    import pytest_agentbench.config.variants
    import pytest_agentbench.records.conversations
    from pytest_agentbench.config.agent_parts import AgentParts
    from pytest_agentbench.config.model_entries import ModelEntry
    from pytest_agentbench.records.conversations import ConversationLimits


class ExecutionPolicy(Record):
    """Limits on how many runs are made at once, how often, and when to stop."""

    max_concurrency: AtLeastOne = 1
    """Runs in flight."""
    run_repetitions: AtLeastOne = 1
    """Runs of each case on each model."""
    fail_fast: StrictBool = False
    """Stop after the first case that fails."""
    stop_on_runner_error: StrictBool | Literal["first"] = True
    """Stop a model's remaining runs after three in a row that could not be made, with the same error each. `first`:
    stop the session after the first run that could not be made."""


def _host(text: str) -> str:
    name = text.lower().rstrip(".")
    if not re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+", name):
        raise ValueError(
            f"found {text!r}, expected a host such as example.org, *.example.org or 127.0.0.1, "
            "without scheme, port and path (names in other scripts as xn--...)"
        )
    return name


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise ValueError(
            f"found {text!r}, expected an address or a network such as 127.0.0.1, 10.1.0.0/16 or fd12::/48 ({error})"
        ) from error


class NetworkSettings(Record):
    """Reach of the tools web_fetch and web_search. Commands have the network that `sandbox` gives them."""

    web: Literal["public", "deny"] = "public"
    """public: the web, but no private, loopback, link-local or metadata address; deny: neither of the two tools."""
    hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = ()
    """If there are any, only these: a name, or *.name for all names below it."""
    allow_private: tuple[Annotated[str, AfterValidator(_network)], ...] = ()
    """Addresses and networks that may be reached though they are not public; metadata services never may."""


def is_floating(image: str) -> bool:
    """Return whether the image's content may change: it has no tag or digest, the tag `latest`, or a variable."""
    if "$" in image:
        return True
    if "@" in image:
        return False
    # After the last slash, for a registry's port has a colon too: localhost:5000/image
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or tag in ("", "latest")


def pinning_problem(image: str) -> str | None:
    """Return the message about an image whose content may change under its name."""
    if not is_floating(image):
        return None
    return (
        f"found {image!r}, expected a pinned image (name:tag, not latest, or name@sha256:...); "
        "pin it, or set allow_floating_image: true in the run profile"
    )


_NO_ROLES = ("run", "judge", "batch", "at_least")
"""Names of figures next to those of roles."""


def _require_role(name: str) -> str:
    if name in _NO_ROLES or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"found {name!r}, expected a role such as user: a letter, then letters, digits and _, and none of "
            f"{', '.join(_NO_ROLES)}"
        )
    return name


RoleName = Annotated[str, AfterValidator(_require_role)]


class RunProfile(FileWithVariants, SectionedFile):
    """A run profile: settings of runners, limits, and permissions of runs."""

    seam: ClassVar[str] = "run_profile"

    run_profile_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    runner_defaults: SettingsLayer = Field(default_factory=dict)
    """Settings of every run; model_overrides and the case's runner fields win over them."""
    model_overrides: dict[str, SettingsLayer] = Field(default_factory=dict)
    """Settings by model_id."""
    execution_policy: Later[ExecutionPolicy] = Field(default_factory=ExecutionPolicy)
    """Concurrency, repetitions, stopping."""
    sandbox: SandboxChoice = "auto"
    """The sandbox of the agent's commands: a type, or its settings; `local` isolates nothing."""
    network: Later[NetworkSettings] = Field(default_factory=NetworkSettings)
    """Hosts that web tools may reach."""
    mcp_servers: PlacedServers = Field(default_factory=dict)
    """MCP servers of every run, by name."""
    skills: tuple[LocalFolder, ...] = ()
    """Folders of skills, or folders of such folders, that cases have in addition to theirs; relative to this file."""
    plugins: tuple[LocalFolder, ...] = ()
    """Folders of plugins, whose skills and MCP servers cases have in addition to theirs; relative to this file."""
    exclude_tools: dict[ServerName, tuple[Text, ...]] = Field(default_factory=dict)
    """Tools that no run is offered: names of tools by server, in addition to the server's own `exclude_tools`."""
    parallel_tools: Literal["always", "never"] | None = None
    """How the calls of one reply run: in parallel, or one by one. Default: in parallel if all their tools only read."""
    roles: dict[RoleName, Text] = Field(default_factory=dict)
    """Further models of a run by the role that they play for its runner, such as `user`: ids of models.yaml. A
    scripted model under test plays all roles itself."""
    run_timeout_seconds: Seconds | None = None
    """Wall-clock limit of a whole run."""
    conversation: Later["pytest_agentbench.records.conversations.ConversationLimits"] | None = None
    """Limits of runs with several turns; a case's own limits take precedence."""
    allow_outside_paths: StrictBool = False
    """Cases may name files outside the config root."""
    allow_floating_image: StrictBool = False
    """Images may have the tag latest, or none."""
    reuse_unsuccessful: StrictBool = False
    """Runs that did not end in success are reused too."""
    _parts: "AgentParts | None" = PrivateAttr(default=None)

    @property
    def parts(self) -> "AgentParts | None":
        """Return the content of `skills` and `plugins` once the file is read, None if both are missing."""
        return self._parts

    def read_named_files(self, scope: Scope) -> Self:
        """Return the profile with its variants' files, skills and plugins. Raises ConfigError for an invalid one."""
        profile = super().read_named_files(scope)
        if not profile.skills and not profile.plugins:
            return profile
        from pytest_agentbench.config.agent_parts import resolve_parts

        parts = resolve_parts(profile.skills, profile.plugins, scope)
        profile = profile.model_copy(update={"mcp_servers": {**parts.servers, **profile.mcp_servers}})
        profile._parts = parts
        return profile

    @model_validator(mode="after")
    def _require_pinned(self) -> Self:
        # Without an image the package's own is used, which is pinned: any pinned name is valid here
        message = pinning_problem(self.sandbox_settings.image or "an:image")
        if message is not None and not self.allow_floating_image:
            raise Problems([(("sandbox", "image"), message)])
        return self

    @property
    def sandbox_settings(self) -> SandboxSettings:
        """Return the settings of the sandbox, also if the file names only a type."""
        if isinstance(self.sandbox, SandboxSettings):
            return self.sandbox
        return find_settings(self.sandbox)(type=self.sandbox)

    @property
    def conversation_limits(self) -> "ConversationLimits":
        """Return the limits of conversations, the defaults without a `conversation`."""
        from pytest_agentbench.records.conversations import merge_limits

        return merge_limits(self.conversation)

    @property
    def place(self) -> str:
        """Return the beginning of errors: the first line of the profile's file, or its id if it has none."""
        if self.origin is not None and self.origin.path is not None:
            return f"{self.origin.path}:1:1"
        return f"run profile {self.run_profile_id!r}"

    def own_servers(self) -> Mapping[str, McpServer]:
        """Return its servers if the profile is the user's own, and {} for a guest's profile."""
        if self.origin is not None and self.origin.is_users:
            return self.mcp_servers
        return {}

    @classmethod
    def default(cls) -> "RunProfile":
        """Return the profile of a session that names none."""
        policy = ExecutionPolicy(max_concurrency=16, stop_on_runner_error=False)
        return cls(schema_version=1, run_profile_id="default", title="Default", execution_policy=policy)


def merge_runner_settings(
    profile: RunProfile, model_id: str, case_overrides: Mapping[str, Any], parameters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Merge `runner_defaults` < `model_overrides[model_id]` < the case's own fields. A null in a later layer removes a
    key.

    A null that removes one of the model's request `parameters`, which are below these layers, stays. `type` is left
    out, because it is no setting: the case names its runner.
    """
    layers = (profile.runner_defaults, profile.model_overrides.get(model_id, {}), case_overrides)
    merged = {name: value for layer in layers for name, value in spread_extra_body(layer).items()}
    kept = {name for name, value in merged.items() if value is not None or name in (parameters or {})}
    return {name: value for name, value in merged.items() if name in kept and name != "type"}


class JudgeConfig(Record):
    """A judge. Other fields are request options as they are."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    judge_id: Slug
    """The name that judge_runs refer to."""
    type: Text
    """The kind of judge, such as llm_probe."""
    model: Text | None = None
    """A model_id of models.yaml, or a model's name."""
    # Left out of dumps and so of fingerprints, because they cannot change a verdict
    timeout_seconds: Seconds = Field(default=120, exclude=True)
    """Wall-clock limit of one request."""
    retries: Annotated[StrictInt, Field(ge=0, exclude=True)] = 5
    """Retries of a request after a transient failure."""
    request_options: dict[str, Any] = Field(default_factory=dict)
    """Request options; they win over those given as fields of the judge."""

    @model_validator(mode="after")
    def _check_temperature(self) -> Self:
        found = [
            (("request_options", *loc), message) for loc, message in find_temperature_problems(self.request_options)
        ]
        found += [
            (
                ("request_options", name),
                "found below request_options, which are sent to the endpoint; write it next to request_options",
            )
            for name in ("timeout_seconds", "retries")
            if name in self.request_options
        ]
        complain(found + find_temperature_problems(self.model_extra or {}))
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Return the fields of each request other than model and messages."""
        return {**spread_extra_body(self.model_extra or {}), **spread_extra_body(self.request_options)}


class JudgeRunConfig(Record):
    """Repetitions of a judge."""

    judge_run_id: Slug
    """Unique in the profile."""
    judge_id: Slug
    """A judge of the profile."""
    repetitions: AtLeastOne = 1
    """Iterations for each run. A system with its own judge may have another default."""
    sample_size: AtLeastOne | None = None
    """Number of iterations to aggregate; default: all."""

    @model_validator(mode="after")
    def _check_sample_size(self) -> Self:
        if self.sample_size is not None and self.sample_size > self.repetitions:
            message = f"sample_size ({self.sample_size}) must not exceed repetitions ({self.repetitions})"
            raise Problems([(("sample_size",), message)])
        return self


class JudgeAggregation(Record):
    """The way in which the iterations' scores become one."""

    method: Literal["median", "mean", "majority_vote", "all_pass"] = "median"
    """Over the successful iterations. A system with its own judge may have another default."""
    pass_threshold: Fraction | None = None
    """Fraction of the scale: a score below it fails."""


class Anchor(Record):
    """An example for the judge of a score's meaning."""

    anchor_id: Slug
    """Unique in the profile."""
    label: Text
    """Its name in the prompt."""
    text: Text
    """The example."""


class Anchors(Record):
    """Calibration examples in the judge's prompt."""

    enabled: StrictBool = False
    """Whether the prompt shows them."""
    references: Annotated[tuple[Later[Anchor], ...], require_unique("anchor_id")] = ()
    """The examples."""


class SecurityPolicy(Record):
    """Limits of evaluation: code to execute, hosts to reach, files to write."""

    allow_local_python_hooks: StrictBool = False
    """Python hooks of cases may run."""
    network_access: Literal["deny", "allow"] = "deny"
    """Network for hooks."""
    redact_secrets: StrictBool = True
    """Secrets are removed before anything is written or sent."""


def _judge_problems(judges: tuple[JudgeConfig, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    types: list[tuple[Loc, str]] = [((index, "type"), judge.type) for index, judge in enumerate(judges)]
    return find_duplicates(judges, "judge_id") + find_unregistered(types, known_of(info).judges, "judge type")


def _judge_ids(elements: object) -> list[tuple[int, str]]:
    """Return the `judge_id`s in the elements of a list as written, with their places."""
    if not isinstance(elements, list | tuple):
        return []
    ids = ((at, element.get("judge_id")) for at, element in enumerate(elements) if isinstance(element, dict))
    return [(at, judge_id) for at, judge_id in ids if isinstance(judge_id, str)]


class EvaluationProfile(SectionedFile):
    """An evaluation profile: judges, aggregation, and permissions of evaluation."""

    seam: ClassVar[str] = "evaluation_profile"

    evaluation_profile_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    judges: Annotated[tuple[Later[JudgeConfig], ...], validate_together(_judge_problems)] = ()
    """The judges by their ids."""
    judge_runs: Annotated[tuple[Later[JudgeRunConfig], ...], require_unique("judge_run_id")] = ()
    """The judges that are asked, and their numbers of iterations."""
    aggregation: Later[JudgeAggregation] = Field(default_factory=JudgeAggregation)
    """How iterations combine."""
    anchors: Later[Anchors] = Field(default_factory=Anchors)
    """Calibration examples."""
    security_policy: Later[SecurityPolicy] = Field(default_factory=SecurityPolicy)
    """Permissions of evaluation."""
    judge_system_prompt_path: LocalFile | None = None
    """A file with the judge's system prompt; relative to this file."""
    judge_system_prompt: Text | None = None
    """The judge's system prompt."""
    metrics: Metrics = ()
    """Metrics of every case that has a reference."""
    compat: Compat | None = None
    """Compute metrics as the original benchmark did (`v1`), or its rewrite for rollouts (`v2`)."""
    on_filtered: Literal["fail", "skip", "error"] = "fail"
    """The outcome of a run whose prompt or answer a provider's filter withheld."""
    judge_sees_reasoning: StrictBool = False
    """Judges see the reasoning that the model returned."""

    @classmethod
    def find_contradictions(cls, given: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
        """Yield a second system prompt, and judge runs of judges that there are not."""
        if given.get("judge_system_prompt_path") is not None and given.get("judge_system_prompt") is not None:
            message = "Specify only one of 'judge_system_prompt_path' and 'judge_system_prompt'"
            yield ("judge_system_prompt",), message
        declared = {name for _, name in _judge_ids(given.get("judges"))}
        for index, name in _judge_ids(given.get("judge_runs")):
            if name not in declared:
                yield ("judge_runs", index, "judge_id"), f"unknown judge_id {name!r}{suggest(name, declared)}"

    @property
    def system_prompt(self) -> str | None:
        """Return the judge's system prompt, None without one in the profile. `load` has read it from its file."""
        return self.judge_system_prompt

    def read_named_files(self, scope: Scope) -> Self:
        """Return the profile with its judge's prompt. Raises ConfigError where that cannot be read."""
        if self.judge_system_prompt_path is None:
            return self
        path = resolve_file(self.judge_system_prompt_path, scope)
        try:
            text = read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}:1:1: not UTF-8: {error.reason} at byte {error.start}; save as UTF-8") from error
        if not text.strip():
            raise ConfigError(f"{path}:1:1: found an empty file, expected the judge's system prompt")
        return self.model_copy(update={"judge_system_prompt": text, "judge_system_prompt_path": None})

    def first_judge(self, kind: str) -> JudgeConfig | None:
        """Return the first judge of the type `kind` that names a model."""
        return next((judge for judge in self.judges if judge.type == kind and judge.model), None)

    @classmethod
    def default(cls) -> "EvaluationProfile":
        """Return the profile of a session that names none: no judge."""
        return cls(schema_version=1, evaluation_profile_id="default", title="Default")


class ModelsFile(ConfigFile):
    """The models of a config root."""

    models: Annotated[
        tuple[Later["pytest_agentbench.config.model_entries.ModelEntry"], ...], require_unique("model_id")
    ] = ()
    """One entry for each model."""

    def get(self, model_id: str) -> "ModelEntry | None":
        """Return the entry of that id, or None."""
        return next((model for model in self.models if model.model_id == model_id), None)


CaseId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class CaseSelection(Record):
    """Choice of cases: include_case_ids > tag filters > exclude_case_ids."""

    include_case_ids: tuple[CaseId, ...] = ()
    """These always; others then enter only through include_tags."""
    exclude_case_ids: tuple[CaseId, ...] = ()
    """Not these."""
    include_tags: Tags = ()
    """Cases with at least one of these tags."""
    exclude_tags: Tags = ()
    """No case with one of these tags."""


class SuiteFile(FileWithVariants, SectionedFile):
    """A suite: models and the cases that they run."""

    seam: ClassVar[str] = "suite"

    suite_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    models: Annotated[
        tuple[Later["pytest_agentbench.config.model_entries.SuiteModel"], ...], require_unique("model_id")
    ] = ()
    """The models of a session without --model."""
    case_selection: Later[CaseSelection] = Field(default_factory=CaseSelection)
    """The selected cases; default: all."""

    @classmethod
    def default(cls) -> "SuiteFile":
        """Return the suite of a session that names none: all cases."""
        return cls(schema_version=1, suite_id="default", title="Default")


OWN_KINDS: Mapping[str, FileKind] = {
    kind.folder: kind
    for kind in (
        FileKind("suite", "suites", "suite_id", SuiteFile),
        FileKind("run_profile", "run_profiles", "run_profile_id", RunProfile),
        FileKind("evaluation_profile", "evaluation_profiles", "evaluation_profile_id", EvaluationProfile),
    )
}
"""The kinds of files in a config root that need no pack, by their folders. A guest may tighten these files."""
