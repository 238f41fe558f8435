"""Texts of articles: cleaned for judges, by rules or by a model, and compared by their words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from pytest_agentbench.judging.verdicts import structured
from pytest_agentbench.models.replies import InvalidReply, ReplyPart, read_json
from pytest_agentbench.packs.research.asking import (
    PROMPT_VERSION,
    TEXT,
    Asking,
    ask_by_halves,
)
from pytest_agentbench.packs.research.records import Language

_URL = r"(?:https?://|www\.)[^\s<>\"'）)\]】，。；]*[^\s<>\"'）)\]】，。；.,;:!?]"
"""An address without the punctuation of its sentence."""
# All repetitions here are bounded: an article is a stranger's text, and brackets that nest without a bound would be
# tried in every division.
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
# Lines of a reference list: _ENTRY below a heading for it, _LISTED anywhere. Elsewhere a number alone begins
# a step of a list, so an address has to follow.
_ENTRY = re.compile(rf"^\s*(?:[-*•]\s.*{_URL}|(?:[-*•]\s*)?(?:\[\^?\d+\]|【\d+】|\d+[.、)]\s|{_URL}[.,;]?\s*$))")
_LISTED = re.compile(rf"^\s*(?:[-*•]\s*)?(?:\[\^?\d+\]|【\d+】|{_URL}[.,;]?\s*$|\d+[.、)]\s.*{_URL})")
_SUBHEADING = re.compile(r"#{1,6}\s")
_RULE = re.compile(r"^\s*[-_*=—]{3,}\s*$")


def clean_by_rules(article: str) -> str:
    """Return the article's text, cleaned by rules (`clean_by_model`: by a model)."""
    text = _drop_references(article)
    # Images first: `[![alt](image)](link)` is a link around an image, and leaves nothing.
    text = _LINK.sub(_link_text, _IMAGE.sub("", text))
    # Last the remains of the others: `([1])` becomes `()`.
    text = _EMPTY.sub("", _MARKER.sub("", _BARE.sub("", text)))
    lines = (line.rstrip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def required_text(article: str) -> str:
    """Return the text that every cleaning must keep: the cleaned text without lines that may list references, anywhere.

    A numbered line without an address is such a line only below a heading for references: elsewhere it is a step of a
    list.
    """
    lines, listing = [], False
    for line in article.split("\n"):
        if REFERENCES_HEADING.match(line):
            listing = True
            continue
        if _SUBHEADING.match(line):
            listing = False
        if not (_ENTRY if listing else _LISTED).match(line):
            lines.append(line)
    return clean_by_rules("\n".join(lines))


def _link_text(link: re.Match[str]) -> str:
    """Return the text of a link; "" if that is only a number or the address again."""
    text = link[1]
    if re.fullmatch(rf"\^?\d+|{_URL}|\[\d+\]", text):
        return ""
    return text


def _drop_references(article: str) -> str:
    """Return the article without the trailing lines that list references: below a heading, or by themselves."""
    lines = article.rstrip().split("\n")
    entries = others = 0
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if REFERENCES_HEADING.match(line) and entries:
            # A heading `Sources` in the middle of an article has prose below it: that is a section, not the list.
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
    if any(_LISTED.match(line) for line in lines[end:]):
        return "\n".join(lines[:end])
    return article


_CJK = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"(?P<number>\d+(?:[.,]\d+)*)|[{_CJK}]|[^\W\d_{_CJK}]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_SENTENCES = 3
"""Maximum sentences of a passage: a unit of knowledge has one or two."""
_LONGEST = 100
"""Words of a sentence: a text without any end, such as a list of words, is no passage that states everything."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a text: the words themselves (Chinese by character), pairs of neighbours, and its numbers."""

    words: frozenset[str]
    pairs: frozenset[tuple[str, ...]]
    numbers: frozenset[str]

    def likeness(self, other: Words) -> float:
        """Return the share of their pairs that both have (Jaccard), 0-1; 0 where their numbers differ."""
        # `grew by 3 %` and `grew by 30 %` share all other words and have different meanings.
        if self.numbers != other.numbers:
            return 0.0
        either = len(self.pairs | other.pairs)
        if either:
            return len(self.pairs & other.pairs) / either
        return 0.0

    def share_in(self, passage: Words) -> float:
        """Return the share of its words that the passage has, 0-1; 0 where that lacks one of its numbers."""
        if not self.words or not self.numbers <= passage.numbers:
            return 0.0
        return len(self.words & passage.words) / len(self.words)


def split_words(text: str) -> Words:
    """Return the words of a text: case and width do not count, nor do the commas of thousands."""
    words, numbers = [], set()
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match[0]
        if match["number"]:
            word = word.replace(",", "")
            numbers.add(word)
        words.append(word)
    # One word has no pair, so it counts alone.
    pairs: set[tuple[str, ...]] = set(pairwise(words)) or {(word,) for word in words}
    return Words(frozenset(words), frozenset(pairs), frozenset(numbers))


class Passages:
    """An article, in which short texts are looked for in any three sentences that follow each other."""

    def __init__(self, article: str) -> None:
        sentences = [part for sentence in _SENTENCE_END.split(article) for part in _split_sentence(sentence)]
        starts = range(max(1, len(sentences) - _SENTENCES + 1))
        self._whole = split_words(article)
        self._passages = [split_words(" ".join(sentences[at : at + _SENTENCES])) for at in starts]

    def share_of(self, text: Words) -> float:
        """Return the largest share of the text's words that one passage has, 0-1."""
        return max(text.share_in(passage) for passage in self._passages)

    def contain(self, text: Words, share: float) -> bool:
        """Return whether a passage has that share of the text's words, and all of its numbers."""
        # The whole first: most units are not in the article at all, and one look spares a look at each passage.
        return text.share_in(self._whole) >= share and self.share_of(text) >= share


def _split_sentence(sentence: str) -> list[str]:
    """Return the sentence, in parts of at most _LONGEST words; [] without words."""
    starts = [match.start() for match in _WORD.finditer(sentence)][::_LONGEST]
    return [sentence[start:end] for start, end in pairwise([*starts, None])]


STAGE = "clean"
MOST_LOST, MOST_ADDED = 0.1, 0.02
"""Shares of the words that a reply may leave out, and bring in, before it is refused."""
_SMALLEST_PIECE = 400

_FORMAT = structured(f"research_{STAGE}", {"article": TEXT})
# Chinese has no blanks between words, so that each character counts as one.
_CHARACTER_OR_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


class _Reply(ReplyPart):
    article: str


async def clean_by_model(asking: Asking, case_id: str, language: Language, article: str, *, number: int = 1) -> str:
    """Return the article without its apparatus; if a reply is cut off, the article is sent in pieces.

    `number` distinguishes the texts of one row, for scripts. Raises Unscored if replies keep lacking words of the
    article, or have others.
    """

    async def answer(piece: str) -> str:
        if not _CHARACTER_OR_WORD.search(piece):
            return ""
        messages = asking.messages(language, "clean", {"article": piece})
        return await asking(
            STAGE,
            case_id,
            messages,
            _FORMAT,
            lambda text: _parse(text, piece),
            version=PROMPT_VERSION,
            request=number,
            divisible=len(piece) >= 2 * _SMALLEST_PIECE,
        )

    answers = await ask_by_halves(article, _SMALLEST_PIECE, answer)
    return "".join(reply.strip() + _space_after(piece) for piece, reply in answers if reply.strip()).strip()


def _parse(text: str, piece: str) -> str:
    cleaned = read_json(text, _Reply).article
    words, whole, required = (
        Counter(_CHARACTER_OR_WORD.findall(part.casefold())) for part in (cleaned, piece, required_text(piece))
    )
    # Counts of words and not their order: a judge that repairs line breaks does no harm. Lost words are
    # measured against the prose alone, added ones against the whole article.
    lost_share = (required - words).total() / max(required.total(), 1)
    added_share = (words - whole).total() / max(whole.total(), 1)
    if lost_share > MOST_LOST:
        raise InvalidReply(f"- article: {lost_share:.0%} of its text is missing; give all of it back, word for word")
    if added_share > MOST_ADDED:
        raise InvalidReply(f"- article: {added_share:.0%} of it is text that the article does not have; add nothing")
    return cleaned


def _space_after(piece: str) -> str:
    # Replies are stripped; without the piece's own end its last paragraph would run into the next.
    return piece[len(piece.rstrip()) :]
