"""An article as RACE judges it: its text without links, citation markers and the list of references at its end."""

from __future__ import annotations

import re

_URL = r"(?:https?://|www\.)[^\s<>\"'）)\]】，。；]*[^\s<>\"'）)\]】，。；.,;:!?]"
"""Without the punctuation of the sentence that it stands in."""
_TARGET = r"\((?:[^()\s]|\([^()\s]{0,200}\)){0,2000}(?:\s+\"[^\"\n]{0,300}\")?\)"
_IMAGE = re.compile(rf"!\[[^\]\n]{{0,300}}\]{_TARGET}")
_LINK = re.compile(rf"\[((?:[^\[\]\n]|\[[^\[\]\n]{{0,100}}\]){{0,300}})\]{_TARGET}")
_BARE = re.compile(rf"<?{_URL}>?")
_ONE_MARKER = r"(?:\[\^?\d+(?:\s*[,，、–-]\s*\d+)*\]|【\d+[^】\n]{0,80}】)"
_MARKER = re.compile(rf"\s?{_ONE_MARKER}(?: ?[,，、;；]? ?{_ONE_MARKER})*(?!\()")
_EMPTY = re.compile(r"[（(]\s*[)）]")

REFERENCES_HEADING = re.compile(
    r"^[\s#*_>]*(?:\d+[.、]\s*)?(?:(?:list of )?references?|sources?(?: cited)?|citations?|works cited|bibliography"
    r"|reference list|(?:主要)?参考(?:文献|资料|来源|链接)(?:列表|清单)?|引用(?:文献|来源)?|资料来源|信息来源|来源)"
    r"[\s:：*_#]*$",
    re.IGNORECASE,
)
_ENTRY = re.compile(rf"^\s*(?:[-*•]\s.*{_URL}|(?:[-*•]\s*)?(?:\[\^?\d+\]|【\d+】|\d+[.、)]\s|{_URL}[.,;]?\s*$))")
_LISTED = re.compile(rf"^\s*(?:[-*•]\s*)?(?:\[\^?\d+\]|【\d+】|{_URL}[.,;]?\s*$|\d+[.、)]\s.*{_URL})")
_SUBHEADING = re.compile(r"#{1,6}\s")
_RULE = re.compile(r"^\s*[-_*=—]{3,}\s*$")


def cleaned(article: str) -> str:
    """The article's text. What is deterministic here a model may do in its place, where it is asked to."""
    text = _without_references(article)
    text = _LINK.sub(_label, _IMAGE.sub("", text))
    text = _EMPTY.sub("", _MARKER.sub("", _BARE.sub("", text)))
    lines = (line.rstrip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def prose(article: str) -> str:
    """What no cleaning may leave out: the cleaned text without lines that may list references, wherever they stand.

    A numbered line without an address is one only below a heading that says so: elsewhere it is a step of a list.
    """
    kept, listing = [], False
    for line in article.split("\n"):
        if REFERENCES_HEADING.match(line):
            listing = True
            continue
        if _SUBHEADING.match(line):
            listing = False
        if not (_ENTRY if listing else _LISTED).match(line):
            kept.append(line)
    return cleaned("\n".join(kept))


def _label(link: re.Match[str]) -> str:
    """What a link says; nothing where that is only a number or the address again."""
    said = link[1]
    return "" if re.fullmatch(rf"\^?\d+|{_URL}|\[\d+\]", said) else said


def _without_references(article: str) -> str:
    """Without the trailing lines that list references: below a heading, or by themselves."""
    lines = article.rstrip().split("\n")
    entries = others = 0
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if REFERENCES_HEADING.match(line) and entries:
            if entries >= others:
                return "\n".join(lines[:number])
            break
        if _ENTRY.match(line):
            entries += 1
        elif line.strip() and not _SUBHEADING.match(line):
            others += 1
    end = len(lines)
    while end and (not lines[end - 1].strip() or _LISTED.match(lines[end - 1]) or _RULE.match(lines[end - 1])):
        end -= 1
    return "\n".join(lines[:end]) if any(_LISTED.match(line) for line in lines[end:]) else article
