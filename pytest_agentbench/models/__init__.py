"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline."""

from pytest_agentbench.models.backoff import Backoff
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.cassettes import CASSETTES, Cassettes
from pytest_agentbench.models.client import ChatClient, Endpoints, Metered, Provider
from pytest_agentbench.models.conversation import NoScript
from pytest_agentbench.models.limits import AdaptiveLimit, Rate
from pytest_agentbench.models.pricing import DEFAULT_BASE_URL
from pytest_agentbench.models.reply import ChatReply, ToolCall
from pytest_agentbench.models.routes import DEMO, describe_route, missing_key, resolve_model
from pytest_agentbench.models.script_files import CaseScript, DatasetScript, ScriptedSearchResult, script_schemas
from pytest_agentbench.models.scripted_app import ANSWER_SCHEMA, JUDGE_SCHEMA, ONE_WORD, REPETITION_FIELD, scripted_app
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.models.tape import NOT_RECORDED, Form, Tape
from pytest_agentbench.models.taped_client import TapedClient
from pytest_agentbench.models.throttle import Admission, Outcome, Throttle, Throttling
from pytest_agentbench.models.tls import tls_context

__all__ = [
    "ANSWER_SCHEMA",
    "CASSETTES",
    "DEFAULT_BASE_URL",
    "DEMO",
    "JUDGE_SCHEMA",
    "NOT_RECORDED",
    "ONE_WORD",
    "REPETITION_FIELD",
    "AdaptiveLimit",
    "Admission",
    "Answer",
    "Backoff",
    "CaseScript",
    "Cassettes",
    "ChatClient",
    "ChatReply",
    "DatasetScript",
    "Endpoints",
    "Form",
    "Metered",
    "NoScript",
    "Outcome",
    "Provider",
    "Rate",
    "Refusal",
    "ScriptedSearchResult",
    "Scripts",
    "Tape",
    "TapedClient",
    "Throttle",
    "Throttling",
    "ToolCall",
    "describe_route",
    "missing_key",
    "resolve_model",
    "script_schemas",
    "scripted_app",
    "tls_context",
]
