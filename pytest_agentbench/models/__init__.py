"""Models: where each is asked, the chat client with its retries and limits, prices, and scripted models offline."""

from pytest_agentbench.models.backoff import Backoff
from pytest_agentbench.models.client import ChatClient, Endpoints, Provider
from pytest_agentbench.models.conversation import NoScript
from pytest_agentbench.models.limits import AdaptiveLimit, Rate
from pytest_agentbench.models.reply import ChatReply, ToolCall
from pytest_agentbench.models.routes import DEMO, describe_route, missing_key, resolve_model
from pytest_agentbench.models.script_files import CaseScript, DatasetScript, ScriptedSearchResult, script_schemas
from pytest_agentbench.models.scripted_app import ANSWER_SCHEMA, JUDGE_SCHEMA, ONE_WORD, REPETITION_FIELD, scripted_app
from pytest_agentbench.models.scripts import Scripts

__all__ = [
    "ANSWER_SCHEMA",
    "DEMO",
    "JUDGE_SCHEMA",
    "ONE_WORD",
    "REPETITION_FIELD",
    "AdaptiveLimit",
    "Backoff",
    "CaseScript",
    "ChatClient",
    "ChatReply",
    "DatasetScript",
    "Endpoints",
    "NoScript",
    "Provider",
    "Rate",
    "ScriptedSearchResult",
    "Scripts",
    "ToolCall",
    "describe_route",
    "missing_key",
    "resolve_model",
    "script_schemas",
    "scripted_app",
]
