"""Separate the thoughts that reasoning models write into their text, `<think>...</think>`, from the answer.

A separate module without imports: metrics need it in processes that know no models.
"""

from __future__ import annotations

import json
import re

_BLOCK = re.compile(r"\A\s*<(think|thinking|reasoning)>(.*?)(</(?:\1|think(?:ing)?)>|\Z)", re.DOTALL)
_TAG = re.compile(r"<(/?)think(?:ing)?>")
_QUOTES = frozenset("\"'`\u201c\u201d\u2018\u2019")
_UNCLOSED = re.compile(r"\s*<think(?:ing)?>")


def split_thoughts(text: str, *, cut_off: bool = False) -> tuple[str, str | None]:
    """Return the answer in a reply, and the thoughts that come before it; None if there are none.

    Thoughts are the block that a reply begins with, or all that ends in `</think>` without a tag that begins it: many
    chat templates put that tag into the prompt. A block without an end is one only if the reply was `cut_off`.
    """
    if "<" not in text:
        return text, None
    block = _BLOCK.match(text)
    if block is not None:
        if block[3] or cut_off:
            return (text[block.end() :].lstrip(), block[2].strip())
        return (text, None)
    end = _find_end(text)
    if end is None:
        return text, None
    return text[end[1] :].lstrip(), text[: end[0]].strip()


def drop_thoughts(text: str) -> str:
    """Return the text after the last thoughts in a prediction; "" if they do not end."""
    ends = [tag.end() for tag in _TAG.finditer(text) if tag[1]]
    if ends:
        return text[ends[-1] :]
    if _UNCLOSED.match(text):
        return ""
    return text


def _find_end(text: str) -> tuple[int, int] | None:
    """Return the span of the last `</think>` before any `<think>`, or None.

    A tag in quotes or in a block of code belongs to the answer, and so does any in an answer that is JSON: a judge
    quotes the judged text.
    """
    found = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            break
        before, after = text[max(0, tag.start() - 1) : tag.start()], text[tag.end() : tag.end() + 1]
        if before not in _QUOTES or after not in _QUOTES:
            found = tag.span()
    if found is None or text.count("```", 0, found[0]) % 2 or _is_json(text):
        return None
    return found


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
