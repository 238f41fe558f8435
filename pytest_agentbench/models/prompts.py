"""Material in prompts: delimited so that it cannot pose as instructions, clipped, and counted in tokens."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pytest_agentbench.config.prompt_files import split_prompt
from pytest_agentbench.records.case import Model
from pytest_agentbench.terminal_text import wholly_visible

JUDGE_SCHEMA = "judge_verdict"
"""The name of the response schema by which a judge's request is known."""
ANSWER_SCHEMA = "answer_verdict"
"""Name of the schema for a judge of correctness."""
ONE_WORD = "Reply with exactly one word: Correct or Incorrect."
"""End of such a request's system message if one word is requested."""
REPETITION_FIELD = "agentbench_repetition"
"""In a request's `metadata`: which of several votes on the same answer, or verdicts on a run, it asks for, from 1."""

_MARKS = re.compile(r"<<<(?=\s*(?:DATA|END)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """Text that is data. `label` is ours, never the agent's."""

    label: str
    text: str


def compute_boundary(parts: Sequence[str | Block]) -> str:
    """Return a code that no block can hold, as it is the hash of all of them; equal parts have equal codes."""
    blocks = [[part.label, part.text] for part in parts if isinstance(part, Block)]
    # Not random: equal requests are to be equal bytes, for cassettes and for stored verdicts.
    return hashlib.sha256(json.dumps(blocks).encode()).hexdigest()[:32]


def render_parts(parts: Iterable[str | Block], boundary: str) -> str:
    """Return the parts as one text, each on separate lines."""
    return "\n".join(_render_part(part, boundary) for part in parts)


def _render_part(part: str | Block, boundary: str) -> str:
    if isinstance(part, str):
        return _escape_text(part)  # rubrics and names of checks: whoever wrote them may hide words too
    return f"<<<DATA {boundary} {part.label}>>>\n{_escape_text(part.text)}\n<<<END {boundary}>>>"


def fill_prompt(
    text: str, values: Mapping[str, object], material: Mapping[str, Sequence[str | Block]], boundary: str
) -> str:
    """Return the prompt of a file with its placeholders filled: `values` in their line, `material` on separate lines.

    Raises KeyError for an unknown placeholder; files are checked when they are read (config/prompt_files.py).
    """
    filled, after_material = "", False
    for at, piece in enumerate(split_prompt(text)):
        if at % 2 == 0:
            own = piece
        elif piece in material:
            own = ""
        else:
            own = str(values[piece])
        if own:
            filled += ("\n" if after_material and not own.startswith("\n") else "") + _escape_text(own)
            after_material = False
        elif at % 2 and (parts := material[piece]):
            line_begins = not filled or (filled.endswith("\n") and not after_material)
            filled += ("" if line_begins else "\n") + render_parts(parts, boundary)
            after_material = True
    return filled


def _escape_text(text: str) -> str:
    """Return `text` with nothing in it that looks like a delimiter, and nothing that a reader would not see."""
    return _MARKS.sub(r"\\<<<", wholly_visible(text.replace("\r\n", "\n")))


def clip_middle(text: str, limit: int) -> str:
    """Return `text`, or its beginning and end with a note of how much is left out between."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


def message_text(message: Mapping[str, Any]) -> str:
    """Return a message's text; of content parts, the text parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


# The first that fits; the names may have a vendor before them, and a date or a size after them.
_ENCODINGS = (
    (re.compile(r"(?:.*/)?(?:ft:)?(?:chatgpt-4o|gpt-(?:4o|4\.1|4\.5|5|oss)|o[134])(?![0-9a-z])"), "o200k_base"),
    (re.compile(r"(?:.*/)?(?:ft:)?gpt-(?:4|3\.5|35)(?![0-9a-z])"), "cl100k_base"),
)

_WORDS = re.compile(r"[A-Za-z ]+")
_LATIN = re.compile(r"[\x00-\u024f]+")
_IDEOGRAPHS = re.compile(r"[\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]+")

# Initial tokens per character: averages of recent tokenizers on prose, JSON and numbers.
_PER_LETTER = 1 / 4.5
_PER_SIGN = 1 / 1.6
_PER_IDEOGRAPH = 1.0
_PER_OTHER = 1 / 3

_CALIBRATION = (0.25, 4.0)
"""The least and the most that a provider's count is believed to differ from an estimate, as a factor."""
_PIECE = 50_000


class TokenCounter:
    """A counter of the tokens of texts for one model.

    OpenAI's models are counted by their own tokenizer if the package `bpe-openai` is installed
    (`pytest-agentbench[tokens]`); it contains their vocabularies, so nothing is fetched. For all others a text is
    estimated by its scripts, and `learn` corrects that by the provider's counts of earlier requests. With
    `everywhere_alike` OpenAI's are estimated too, so that a count does not depend on installed packages. `tokenizer` is
    the name of the vocabulary, None if texts are estimated.
    """

    def __init__(self, model: Model, *, everywhere_alike: bool = False) -> None:
        name = None if model.scripted or everywhere_alike else _find_encoding_name(model.requested_model)
        self._load_encoding = _load_encoding(name) if name is not None else None
        self.tokenizer = name if self._load_encoding is not None else None
        self._estimated = self._reported = 0.0

    def count(self, text: str) -> int:
        """Return the tokens of `text`, rounded up if they are estimated."""
        if self._load_encoding is not None:
            return sum(len(self._load_encoding.encode_ordinary(piece)) for piece in _split_pieces(text))
        return -int(-self._find_factor() * _estimate_tokens(text) // 1)

    def learn(self, text: str, tokens: int | None) -> None:
        """Record that the provider counted `tokens` for a request of `text`; None: unknown."""
        if self._load_encoding is None and tokens is not None and tokens > 0 and text:
            self._estimated += _estimate_tokens(text)
            self._reported += tokens

    def cut(self, text: str, tokens: int) -> str:
        """Return the longest beginning of `text` with at most `tokens`, or `text` itself if it fits."""
        if self.count(text) <= tokens:
            return text
        fits, too_long = 0, len(text)
        # Counted and not computed: the number of tokens is no linear function of the characters.
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if self.count(text[:middle]) <= tokens:
                fits = middle
            else:
                too_long = middle
        return text[:fits]

    def _find_factor(self) -> float:
        """Return how many tokens the provider counts for each one that is estimated."""
        if not self._estimated:
            return 1.0
        # A provider may count its own system prompt, or report nonsense: one such reply must not ruin all estimates.
        least, most = _CALIBRATION
        return min(max(self._reported / self._estimated, least), most)


def _find_encoding_name(requested_model: str) -> str | None:
    """Return the name of an OpenAI model's vocabulary; None for models of others."""
    return next((name for pattern, name in _ENCODINGS if pattern.match(requested_model.lower())), None)


@lru_cache(maxsize=4)
def _load_encoding(name: str) -> Any:
    """Return the tokenizer of that vocabulary, or None if the package is not installed."""
    try:
        import bpe_openai
    except ImportError:
        return None
    return bpe_openai.get_encoding(name)


def _split_pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that the tokenizer takes; a token more where two of them meet."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _estimate_tokens(text: str) -> float:
    """Return the tokens of `text` estimated by its scripts alone."""
    letters = _count_matching(_WORDS, text)
    if text.isascii():
        return letters * _PER_LETTER + (len(text) - letters) * _PER_SIGN
    latin, ideographs = _count_matching(_LATIN, text), _count_matching(_IDEOGRAPHS, text)
    others = len(text) - latin - ideographs
    known = letters * _PER_LETTER + (latin - letters) * _PER_SIGN
    return known + ideographs * _PER_IDEOGRAPH + others * _PER_OTHER


def _count_matching(script: re.Pattern[str], text: str) -> int:
    return sum(map(len, script.findall(text)))
