"""Text of others as a terminal, a CI's log or a judge may have it: nothing in it steers them or hides from a reader."""

from __future__ import annotations

import os
import re
from functools import cache

TYPE_CHECKING = False  # not from typing, which `agentbench --help` needs nowhere
if TYPE_CHECKING:
    from typing import TextIO

# Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt), less what spells words and emoji: joiners
# and the variation selectors of the basic plane.
_IGNORED = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SPELLING = "\u200c\u200d\ufe00-\ufe0f"
# Besides: category Cf (signs that change how others are read), the blank of braille.
_FORMAT = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\u2800"
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"

_STEERING = f"[{_CONTROL}{_IGNORED}\ufff9-\ufffb]"
_UNSEEN = f"[{_CONTROL}{_IGNORED}{_SPELLING}{_FORMAT}]"

_COMMAND = (
    r"(?m)^(\s*):(?=:.*::)"  # GitHub's `::name::`
    r"|(?<=#)#(?=\w*\[)"  # `##[name]` of GitHub and Azure, Azure's `##vso[`, TeamCity's `##teamcity[`
    r"|(?<=section)_(?=(?:start|end):[0-9])"  # GitLab's, which end in a control character
)
_FOLDED = r"(?m)^(\s*)[-+~^](?=[-+~^]{2}(?:\s|$))"
"""Where Buildkite's log is folded. Diffs and Markdown have such lines too, so that they are left alone elsewhere."""

_WORD = r"(?s)\A[^\s\"'`,;()\[\]{}<>|]*.?"
"""The beginning of a text to the first blank, quote or bracket: a secret has none of them."""

_compiled = cache(re.compile)  # when a pattern is first used: all of them take 1 ms


def visible(text: str) -> str:
    """Return the text with escapes for characters that steer or deceive a terminal, and for commands of a CI.

    Line breaks and tabs stay.
    """
    return defuse_ci_commands(legible(text))


def legible(text: str) -> str:
    """Return the text like `visible`, but with the commands of a CI."""
    if text.isascii() and text.isprintable():
        return text
    return _compiled(_STEERING).sub(_escape, text)


def visible_line(text: str) -> str:
    """Return the text like `visible`, on one line."""
    return defuse_ci_commands(legible(text.expandtabs(4)).replace("\n", "\\n"))


def wholly_visible(text: str) -> str:
    """Return the text with escapes for all that a reader would not see, joiners and variation selectors too.

    Lines and tabs stay.
    """
    return _compiled(_UNSEEN).sub(_escape, text)


def shorten_text(text: str, width: int, dots: str = "…") -> str:
    """Return at most `width` characters of a text; a longer text ends in `dots`."""
    if len(text) <= width:
        return text
    return text[: width - len(dots)].rstrip() + dots


def last_lines(output: str, lines: int = 12, characters: int = 2000) -> str:
    """Return the end of a program's output, for an error: its last lines that are not blank.

    The limit of characters leaves out the word in which it falls, because redaction does not know a half of a secret,
    unless nothing else is left.
    """
    kept = "\n".join([line for line in output.splitlines() if line.strip()][-lines:])
    if len(kept) <= characters:
        return kept
    return _compiled(_WORD).sub("", kept[-characters - 1 :]) or kept[-characters:]


def sendable(text: str, limit: int | None = None) -> str:
    """Return a plain `str` of at most `limit` characters that UTF-8 can carry: lone surrogates become U+FFFD."""
    if limit is not None:
        text = shorten_text(text, limit)
    if text.isascii():
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def defuse_ci_commands(text: str) -> str:
    """Return the text with escapes in lines that a CI would execute as its commands.

    In JSON the escapes are JSON's, so that the document keeps its meaning.
    """
    shown = text
    if "::" in text or "##" in text or "section_" in text:  # nearly all that is printed has none of them
        shown = _compiled(_COMMAND).sub(_defuse, text)
    if "BUILDKITE" in os.environ:
        return _compiled(_FOLDED).sub(_defuse, shown)
    return shown


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or the plural: "1 case", "1,200 cases"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def on_github() -> bool:
    """Return whether this process is a job of GitHub Actions, whose runner reads its output."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


class DefusingStream:
    """A stream of text, no line of which a CI takes for a command. All else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.heeded = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self.heeded, name)

    def write(self, text: str) -> int:
        """Write the text with escapes in place of CI commands."""
        return self.heeded.write(defuse_ci_commands(text))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def _defuse(match: re.Match[str]) -> str:
    return f"{match[1] or ''}\\u{ord(match[0][-1]):04x}"
