"""Where a text gives its answer: behind the thoughts, in a box, behind a mark, in a sentence that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

_THOUGHTS_END = re.compile(r"</think(?:ing)?>")
_THOUGHTS_BEGIN = re.compile(r"\s*<think(?:ing)?>")
_ANSWER = re.compile(
    r"\banswer\b(?!\s(?:choices|options|key))[^.\n:=]{0,40}?(?:\bis\b|[:=])"
    r"|<answer>|(?:答案|正解|答え)[^。\n:]{0,8}?(?:是|为|為|は|:)|정답(?:은|:)",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"[\s*_`:]*+")
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|[。！？]")


def said(text: str) -> str:
    """What follows the thoughts of a reasoning model, `<think>...</think>`; nothing where these do not end."""
    ends = [match.end() for match in _THOUGHTS_END.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _THOUGHTS_BEGIN.match(text) else text


def boxed(text: str) -> str | None:
    r"""What the last `\boxed{...}` holds, None without one."""
    box = text.rfind("\\boxed")
    if box < 0:
        return None
    depth, start = 0, text.find("{", box)
    for brace in re.finditer(r"[{}]", text[box:]):
        depth += 1 if brace.group() == "{" else -1
        if depth <= 0:
            return text[start + 1 : box + brace.start()]
    return text[start + 1 :] if start >= 0 else text[box:]


def answer_sentences(text: str) -> Iterator[str]:
    """What follows "the answer is", "Answer:", "答案是" and the like in its sentence; the last one first."""
    end = len(text)
    for cue in reversed([match.span() for match in _ANSWER.finditer(text)]):
        start = min(end, _EMPHASIS.match(text, cue[1]).end())  # type: ignore[union-attr]  # it matches nothing too
        stop = _SENTENCE_END.search(text, start, end)
        yield text[start : stop.start() if stop else end]
        end = cue[0]
