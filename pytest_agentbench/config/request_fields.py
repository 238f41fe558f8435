"""Names in settings: which are request fields that some endpoint takes, which are ours, and which are neither."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pytest_agentbench.config.documents import Loc

_CHAT_COMPLETIONS = """
audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata modalities
n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort
response_format safety_identifier seed service_tier stop store stream_options temperature tool_choice top_logprobs top_p
user verbosity web_search_options
"""
_HOSTED = """
chat_template_kwargs citation_options compound_custom context_length_exceeded_behavior data_sources deferred
disable_tool_validation documents echo enable_thinking exclude_domains fallbacks guardrails include_domains
include_reasoning models output_config plugins preset prompt_mode prompt_truncate_len provider random_seed reasoning
reasoning_format reasoning_split route safe_prompt safety_model search_parameters search_settings structured_outputs
tags thinking thinking_budget transforms usage
"""
_SELF_HOSTED = """
add_generation_prompt add_special_tokens bad_words best_of cache_prompt cache_salt chat_template continue_final_message
draft_model dry_allowed_length dry_base dry_multiplier dynatemp_range format grammar guided_choice guided_grammar
guided_json guided_regex id_slot ignore_eos include_stop_str_in_output json_schema keep_alive kv_transfer_params
length_penalty min_p min_tokens mirostat mirostat_eta mirostat_tau mm_processor_kwargs n_predict options priority
prompt_logprobs repeat_penalty repetition_penalty request_id return_tokens_as_token_ids samplers skip_special_tokens
spaces_between_special_tokens stop_token_ids top_a top_k truncate_prompt_tokens ttl typical_p use_beam_search
vllm_xargs xtc_probability xtc_threshold
"""
_NATIVE = """
cache_control container context_management include inference_geo instructions max_output_tokens max_tool_calls
stop_sequences text truncation
"""
REQUEST_FIELDS = frozenset(f"{_CHAT_COMPLETIONS} {_HOSTED} {_SELF_HOSTED} {_NATIVE}".split())
"""Fields that the endpoint of some dialect takes, other than those that every request has."""

EXTRA_BODY = "extra_body"
"""The mapping whose names are sent as request fields without a check."""
TOOLS_PLACE = "tools belong below `context: {llm_probe: {tools: [...]}}`"
"""Where a case names its tools: for messages about the field in another place."""
_SET_BY_RUNS = {
    "model": "is set by each run itself; leave it out, and name the model with --model",
    "messages": "is set by each run itself; leave it out",
    "tools": f"is set by each run itself; {TOOLS_PLACE} in the input of a case",
}
_OF_MODELS = """
anthropic_version api api_key_env base_url batch cassettes dialect dialect_overrides headers judge label limits model_id
model_name openrouter_model parameters prices primary_params prompt_cache query requested_model scripted wires
"""
MODEL_FIELDS = frozenset(_OF_MODELS.split())
"""Fields of models.yaml and of a suite's models that no request has. `provider` is one of both."""


def spread_extra_body(layer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a layer of settings with the fields of its `extra_body` moved to the top."""
    if EXTRA_BODY not in layer:
        return layer
    return {**{name: value for name, value in layer.items() if name != EXTRA_BODY}, **(layer[EXTRA_BODY] or {})}


def find_misplaced(fields: Mapping[str, Any], settings: Collection[str] = ()) -> Iterator[tuple[Loc, str]]:
    """Yield fields that would never reach a request, or break it; `settings` are read elsewhere, and not here."""
    for name, value in fields.items():
        if name == EXTRA_BODY and value is not None:
            if isinstance(value, Mapping):
                yield from (((EXTRA_BODY, each), text) for each in value if (text := _misplaced(each, "", settings)))
            else:
                yield (name,), f"found {value!r}, expected a mapping of request fields"
        elif text := _misplaced(name, value, settings):
            yield (name,), text


def _misplaced(name: str, value: object, settings: Collection[str]) -> str | None:
    if name in _SET_BY_RUNS:
        return _SET_BY_RUNS[name]
    if name in settings:
        return "is a setting of runs, which no endpoint takes; write it in a run profile, or in a case's runner"
    if name in MODEL_FIELDS or (name == "provider" and isinstance(value, str) and value):
        return "is a field of a model, which no endpoint takes; write it in the model's entry of models.yaml"
    return None


def find_unknown_fields(
    fields: Mapping[str, Any], ours: Collection[str] = (), *, only_misspelt: bool = False
) -> Iterator[tuple[Loc, str]]:
    """Yield doubts about names that no endpoint is known to take, which are sent all the same. `ours` are read here."""
    known = {*REQUEST_FIELDS, *ours, EXTRA_BODY}
    for name in fields:
        if name not in known:
            close = get_close_matches(name, {*known, *MODEL_FIELDS}, n=1, cutoff=0.8)
            if only_misspelt and not close:
                continue
            meant = f"did you mean {close[0]!r}? " if close else ""
            yield (
                (name,),
                f"{meant}no known endpoint takes this request field; it is sent unchanged; write it below "
                f"`{EXTRA_BODY}:` if that is meant",
            )
