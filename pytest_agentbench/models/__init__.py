"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline."""

from pytest_agentbench.models.backoff import Backoff, retry_after_seconds
from pytest_agentbench.models.blocks import Block, boundary_of, clipped, rendered
from pytest_agentbench.models.breaker import RUN_LIMIT, Patience
from pytest_agentbench.models.cassette_file import CASSETTES, Answer, Refusal
from pytest_agentbench.models.cassettes import Cassettes
from pytest_agentbench.models.client import ChatClient, Endpoints, Metered, Provider
from pytest_agentbench.models.completions_http import (
    App,
    EventStream,
    Receive,
    RequestRefused,
    Scope,
    Send,
    asks_for_models,
    read_body,
    read_request,
    send_json,
    send_models,
)
from pytest_agentbench.models.conversation import NoScript, message_text
from pytest_agentbench.models.failures import UNREACHABLE
from pytest_agentbench.models.ledger import Ledger, Spent
from pytest_agentbench.models.limits import AdaptiveLimit, Rate
from pytest_agentbench.models.pricing import DEFAULT_BASE_URL, read_usage
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, as_form, invalid, json_object, read_json
from pytest_agentbench.models.reply import ChatReply, ToolCall
from pytest_agentbench.models.routes import (
    DEMO,
    OPENAI_KEY,
    OPENROUTER_KEY,
    OPENROUTER_URL,
    describe_route,
    missing_key,
    resolve_model,
)
from pytest_agentbench.models.script_files import CaseScript, DatasetScript, ScriptedSearchResult, script_schemas
from pytest_agentbench.models.scripted_app import (
    ANSWER_SCHEMA,
    JUDGE_SCHEMA,
    ONE_WORD,
    REPETITION_FIELD,
    RESEARCH_SCHEMAS,
    TOOL_USE_SCHEMA,
    reasoning_key,
    scripted_app,
)
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.models.tape import NOT_RECORDED, Form, Tape
from pytest_agentbench.models.taped_client import TapedClient
from pytest_agentbench.models.throttle import Admission, Outcome, Throttle, Throttling
from pytest_agentbench.models.tls import tls_context
from pytest_agentbench.models.tokens import TokenCounter

__all__ = [
    "ANSWER_SCHEMA",
    "CASSETTES",
    "DEFAULT_BASE_URL",
    "DEMO",
    "JUDGE_SCHEMA",
    "NOT_RECORDED",
    "ONE_WORD",
    "OPENAI_KEY",
    "OPENROUTER_KEY",
    "OPENROUTER_URL",
    "REPETITION_FIELD",
    "RESEARCH_SCHEMAS",
    "RUN_LIMIT",
    "TOOL_USE_SCHEMA",
    "UNREACHABLE",
    "AdaptiveLimit",
    "Admission",
    "Answer",
    "App",
    "Backoff",
    "Block",
    "CaseScript",
    "Cassettes",
    "ChatClient",
    "ChatReply",
    "DatasetScript",
    "Endpoints",
    "EventStream",
    "Form",
    "InvalidReply",
    "Ledger",
    "Metered",
    "NoScript",
    "Outcome",
    "Patience",
    "Provider",
    "Rate",
    "Receive",
    "Refusal",
    "ReplyPart",
    "RequestRefused",
    "Scope",
    "ScriptedSearchResult",
    "Scripts",
    "Send",
    "Spent",
    "Tape",
    "TapedClient",
    "Throttle",
    "Throttling",
    "TokenCounter",
    "ToolCall",
    "as_form",
    "asks_for_models",
    "boundary_of",
    "clipped",
    "describe_route",
    "invalid",
    "json_object",
    "message_text",
    "missing_key",
    "read_body",
    "read_json",
    "read_request",
    "read_usage",
    "reasoning_key",
    "rendered",
    "resolve_model",
    "retry_after_seconds",
    "script_schemas",
    "scripted_app",
    "send_json",
    "send_models",
    "tls_context",
]
