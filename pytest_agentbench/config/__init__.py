"""Configuration: YAML files to frozen models, with errors that name file, line and column; roots; JSON Schemas."""

from pytest_agentbench.config.agent import AgentFile, ModelDefaults, OpenClawFragments, ways_to_models
from pytest_agentbench.config.base import (
    UNVERIFIED,
    ConfigFile,
    Guest,
    Known,
    Scope,
    resolve_file,
    resolve_folder,
    resolve_path,
    suggest,
)
from pytest_agentbench.config.case_file import (
    CaseInput,
    CaseSandbox,
    MessageSource,
    MessageSpec,
    TestCaseFile,
    Turn,
)
from pytest_agentbench.config.commands_file import COMMANDS_FILE, read_commands
from pytest_agentbench.config.compose_file import ComposeBuild, ComposeFile, ComposeService, load_compose
from pytest_agentbench.config.dataset_file import DatasetDescriptor, Example, FewShot, RowFields, is_descriptor_name
from pytest_agentbench.config.dockerfile import additions, base_images, downloads
from pytest_agentbench.config.documents import Document, Loc, Problem, parse_json, parse_yaml, read, read_bytes
from pytest_agentbench.config.evaluation_profile import (
    Anchor,
    Anchors,
    EvaluationProfile,
    JudgeAggregation,
    JudgeConfig,
    JudgeRunConfig,
    McpJudging,
    SecurityPolicy,
)
from pytest_agentbench.config.guests import GuestModels
from pytest_agentbench.config.keys import (
    KEYS_FILE,
    PROVIDERS,
    KeyGrants,
    KeysFile,
    key_problem,
    plain_problem,
    server_problem,
)
from pytest_agentbench.config.kinds import KINDS, find_commands, find_config_files, kind_of
from pytest_agentbench.config.loader import load, load_in, located, validate
from pytest_agentbench.config.models_file import ModelEntry, ModelsFile
from pytest_agentbench.config.patterns import DATA_SUFFIXES, match_files
from pytest_agentbench.config.planner import PlannerSettings
from pytest_agentbench.config.programs import engine_environment, program_problem
from pytest_agentbench.config.reports_file import ReportsFile, is_reports_name
from pytest_agentbench.config.roots import MARKERS, ConfigRoot
from pytest_agentbench.config.run_profile import (
    ExecutionPolicy,
    NetworkSettings,
    OpenClawRunProfile,
    RunProfile,
    merge_runner_settings,
    pinning_problem,
)
from pytest_agentbench.config.schemas import described_schema, json_schemas
from pytest_agentbench.config.servers_file import ServerName, ServersFile, named_servers
from pytest_agentbench.config.session_roots import SessionRoots, decide_roots, find_root
from pytest_agentbench.config.settings import RunnerSettings
from pytest_agentbench.config.suite import AgentAssignment, CaseSelection, SuiteFile, SuiteModel, SuiteOpenClaw
from pytest_agentbench.config.templates import only_field, parse_template
from pytest_agentbench.config.trust import (
    NO_TRUST,
    Grant,
    Trust,
    read_grants,
    remove_grant,
    save_grant,
    trust_of,
)
from pytest_agentbench.config.verify import CaseVerifier, named_verifiers

__all__ = [
    "COMMANDS_FILE",
    "DATA_SUFFIXES",
    "KEYS_FILE",
    "KINDS",
    "MARKERS",
    "NO_TRUST",
    "PROVIDERS",
    "UNVERIFIED",
    "AgentAssignment",
    "AgentFile",
    "Anchor",
    "Anchors",
    "CaseInput",
    "CaseSandbox",
    "CaseSelection",
    "CaseVerifier",
    "ComposeBuild",
    "ComposeFile",
    "ComposeService",
    "ConfigFile",
    "ConfigRoot",
    "DatasetDescriptor",
    "Document",
    "EvaluationProfile",
    "Example",
    "ExecutionPolicy",
    "FewShot",
    "Grant",
    "Guest",
    "GuestModels",
    "JudgeAggregation",
    "JudgeConfig",
    "JudgeRunConfig",
    "KeyGrants",
    "KeysFile",
    "Known",
    "Loc",
    "McpJudging",
    "MessageSource",
    "MessageSpec",
    "ModelDefaults",
    "ModelEntry",
    "ModelsFile",
    "NetworkSettings",
    "OpenClawFragments",
    "OpenClawRunProfile",
    "PlannerSettings",
    "Problem",
    "ReportsFile",
    "RowFields",
    "RunProfile",
    "RunnerSettings",
    "Scope",
    "SecurityPolicy",
    "ServerName",
    "ServersFile",
    "SessionRoots",
    "SuiteFile",
    "SuiteModel",
    "SuiteOpenClaw",
    "TestCaseFile",
    "Trust",
    "Turn",
    "additions",
    "base_images",
    "decide_roots",
    "described_schema",
    "downloads",
    "engine_environment",
    "find_commands",
    "find_config_files",
    "find_root",
    "is_descriptor_name",
    "is_reports_name",
    "json_schemas",
    "key_problem",
    "kind_of",
    "load",
    "load_compose",
    "load_in",
    "located",
    "match_files",
    "merge_runner_settings",
    "named_servers",
    "named_verifiers",
    "only_field",
    "parse_json",
    "parse_template",
    "parse_yaml",
    "pinning_problem",
    "plain_problem",
    "program_problem",
    "read",
    "read_bytes",
    "read_commands",
    "read_grants",
    "remove_grant",
    "resolve_file",
    "resolve_folder",
    "resolve_path",
    "save_grant",
    "server_problem",
    "suggest",
    "trust_of",
    "validate",
    "ways_to_models",
]
