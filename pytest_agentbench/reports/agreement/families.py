"""Which models come from one maker: judges favour answers of their own family.

Panickssery et al. 2024, "LLM Evaluators Recognize and Favor Their Own Generations", arXiv:2404.13076; for the family
rather than the model Verga et al. 2024, "Replacing Judges with Juries", arXiv:2404.18796.
"""

from __future__ import annotations

import re
from functools import cache

_NAMES = {
    "OpenAI": r"gpt(?!-j|-neo|-sw|-?4all)|chatgpt|o\d(?!\d)|codex|davinci",
    "Anthropic": "claude",
    "Google": r"gemini|(code|med)?gemma|palm-?2|learnlm",
    "Meta": r"llama(?!-index|-cpp)|codellama",
    "Mistral AI": "mi(s|x|nis)tral|magistral|(code|dev|math)stral|(pix|vox)tral",
    "Alibaba": "(code)?qwen|qwq|qvq",
    "DeepSeek": "deepseek",
    "xAI": "grok",
    "Cohere": r"command-(r|a|light|nightly)|c4ai|aya-(expanse|vision|\d)",
    "Microsoft": r"phi-?\d|wizardlm",
    "Amazon": r"nova-(micro|lite|pro|premier|\d)|titan-(text|embed)",
    "Zhipu AI": r"(chat)?glm-?\d|codegeex",
    "Moonshot AI": "kimi|moonshot",
    "MiniMax": r"minimax|abab\d",
    "Baidu": "ernie",
    "Tencent": "hunyuan",
    "ByteDance": r"doubao|seed-(oss|\d)",
    "01.AI": r"yi-?(\d|large|lightning|medium|spark|vision)",
    "NVIDIA": "nemotron",
    "IBM": r"granite-?\d",
    "AI21": "jamba",
    "Perplexity": r"sonar(?=$|-pro|-reasoning|-deep)",
    "Ai2": "olmo|molmo|tulu",
    "LG AI Research": "exaone",
    "Shanghai AI Laboratory": "internlm",
    "Baichuan": "baichuan",
}
"""What the models of a maker are called. Words of other uses, such as nova, count with what follows them only."""
_PATTERNS = {maker: re.compile(rf"(?<![a-z0-9])(?:{names})(?![a-z])") for maker, names in _NAMES.items()}
_TUNED = re.compile(r"\bft:([^:]+)")
"""The base model of OpenAI's tunes, `ft:gpt-4o:organisation:name:id`: what follows it is free text."""


@cache
def families(model_name: str) -> frozenset[str]:
    """The makers of the models that a model's name names, as its endpoint knows it, with or without a vendor's prefix.

    Several for one model made from another, as `deepseek-r1-distill-llama-70b` is; none where the name says nothing.
    """
    name = model_name.lower()
    base = _TUNED.search(name)
    plain = re.sub(r"[^a-z0-9]+", "-", base[1] if base else name)
    return frozenset(maker for maker, names in _PATTERNS.items() if names.search(plain))


def common_family(one: str, other: str) -> str | None:
    """The maker that two models share, or the name of one that is both; None where they share none, as far as known."""
    return min(families(one) & families(other), default=one if one == other else None)
