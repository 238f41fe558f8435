from __future__ import annotations

import pytest

from pytest_agentbench.reports.judges import common_family, families


@pytest.mark.parametrize(
    ("name", "makers"),
    [
        ("gpt-4o-mini-2024-07-18", {"OpenAI"}),
        ("gpt4o", {"OpenAI"}),
        ("openai/o3-mini", {"OpenAI"}),
        ("ft:gpt-4o:acme::8x", {"OpenAI"}),
        ("anthropic.claude-sonnet-4-5-v1:0", {"Anthropic"}),
        ("models/gemini-2.5-pro", {"Google"}),
        ("google/gemma3", {"Google"}),
        ("meta-llama/Llama-3.3-70B-Instruct", {"Meta"}),
        ("accounts/fireworks/models/llama-v3p1-8b", {"Meta"}),
        ("codellama:13b", {"Meta"}),
        ("deepseek-r1-distill-llama-70b", {"DeepSeek", "Meta"}),
        ("nvidia/llama-3.1-nemotron-70b", {"NVIDIA", "Meta"}),
        ("Qwen3-235B", {"Alibaba"}),
        ("command-r-plus", {"Cohere"}),
        ("phi4", {"Microsoft"}),
        ("openrouter/openai/gpt-oss-120b:free", {"OpenAI"}),
        ("azure/o5-mini", {"OpenAI"}),
        ("openai/ft:gpt-4.1:claude-lovers:llama:Bx", {"OpenAI"}),
        ("EleutherAI/gpt-neox-20b", set()),
        ("gpt4all", set()),
        ("TheBloke/Llama-2-7B-GPTQ", {"Meta"}),
        ("us.meta.llama4-maverick-17b-instruct-v1:0", {"Meta"}),
        ("us.amazon.nova-pro-v1:0", {"Amazon"}),
        ("vertex_ai/claude-sonnet-4@20250514", {"Anthropic"}),
        ("x-ai/grok-4-fast", {"xAI"}),
        ("mistralai/Ministral-8B", {"Mistral AI"}),
        ("mistralai/devstral-medium", {"Mistral AI"}),
        ("Qwen/QwQ-32B", {"Alibaba"}),
        ("deepseek.r1-v1:0", {"DeepSeek"}),
        ("z-ai/glm-4.6", {"Zhipu AI"}),
        ("bytedance-seed/seed-oss-36b", {"ByteDance"}),
        ("01-ai/Yi-34B", {"01.AI"}),
        ("llama-index-agent", set()),
        ("titan-agent", set()),
        ("seed-bot", set()),
        ("nova", set()),
        ("command-line-agent", set()),
        ("demo", set()),
        ("philosophy-model", set()),
        ("glmnet", set()),
        ("my-judge", set()),
        ("", set()),
    ],
)
def test_a_models_name_tells_its_makers(name, makers):
    assert families(name) == makers


@pytest.mark.parametrize(
    ("judge", "judged", "family"),
    [
        ("gpt-4o", "openai/o3", "OpenAI"),
        ("llama-3.1-70b", "deepseek-r1-distill-llama-70b", "Meta"),
        ("gpt-4o", "claude-opus-4", None),
        ("our-tune", "our-tune", "our-tune"),
        ("our-tune", "their-tune", None),
    ],
)
def test_two_models_share_a_family_where_both_name_it(judge, judged, family):
    assert common_family(judge, judged) == family
