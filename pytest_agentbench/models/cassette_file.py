"""Cassette files: the requests of one run and its verdict, their answers, and the differences of a new request."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, StrictInt, model_validator

from pytest_agentbench.config.base import ConfigFile, Scope, validate
from pytest_agentbench.config.documents import Document, Problem, parse_yaml, read_bytes
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.json_values import as_list
from pytest_agentbench.models.routes import CASSETTES
from pytest_agentbench.records.base import Record, Text
from pytest_agentbench.records.run import Usage

# A cassette: the file of all requests of one run and its verdict to models, judges and the web, with their answers.
#
# schema_version: 1
# case: hello
# model: gpt4o
# repetition: 1
# duration_seconds: 1.52
# exchanges:
# - asked: gpt4o                     # a model's id, `web_search`, `web_fetch`, or `judge:<type>` of a plugin
#   request:                         # as it was sent, without secrets and tags
#     model: gpt-5.4-mini
#     messages:
#     - role: user
#       content: Say hello.
#   reply:
#     content: Hello!
#     usage: {input_tokens: 12, output_tokens: 3, cost_usd: 0.0001}
#   seconds: 0.8
# - asked: gpt4o
#   continues: 1                     # the request of exchange 1 with further messages
#   messages: [...]
#   reply: {...}
# complete: true                     # the last line: a truncated file lacks it


_MAX_BYTES = 64 * 1024 * 1024
MAX_MESSAGES = 10_000_000
"""Maximum messages of all requests of a file together, including those of requests that they continue."""

_LOOK_BACK = 50
"""Number of earlier exchanges that are searched for the request that a request continues."""

Seconds = Annotated[float, Field(ge=0)]
Number = Annotated[StrictInt, Field(ge=1)]


class Answer(Record):
    """An answer: of a model a `content` or a whole assistant `message`, of the web `results`.

    Results of a search are its hits; results of a page are the requests that led to it, the last with its text.
    """

    content: str | None = None
    message: dict[str, Any] | None = None
    reasoning: dict[str, str] = Field(default_factory=dict)
    """The model's thoughts as text, by the fields of the reply that held them."""
    results: tuple[dict[str, str], ...] | None = None
    finish_reason: str | None = None
    model: str | None = None
    """The model that answered, by its own word."""
    response_id: str | None = None
    usage: Usage = Field(default_factory=Usage)
    attempts: Number = 1
    """Requests that it took; only the reply of the last one is kept."""


class Refusal(Record):
    """The endpoint or the search refused this very request: an answer like any other."""

    code: Text
    message: str
    partial: str | None = None
    """Text that the model had written."""


CutOff = Literal["run", "agent"]
"""No answer came before the run's time limit, or before the agent itself gave up waiting."""


class Exchange(Record):
    """A request, its addressee, and its result: `reply`, `refused` or `cut_off`.

    `seconds` is its duration. `after` numbers the task's previous exchange, if several exchanges have this request.
    """

    asked: Text
    request: dict[str, Any]
    after: Number | None = None
    reply: Answer | None = None
    refused: Refusal | None = None
    cut_off: CutOff | None = None
    seconds: Seconds = 0.0


class _Written(Exchange):
    """An exchange as the file has it: its request is written out, or continues an earlier one's."""

    request: dict[str, Any] = Field(default_factory=dict)
    continues: Number | None = None
    messages: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.continues is None) != bool(self.request):
            raise ValueError("needs either 'request', or 'continues' with the further 'messages'")
        if sum(each is not None for each in (self.reply, self.refused, self.cut_off)) != 1:
            raise ValueError("needs one of 'reply', 'refused' and 'cut_off'")
        return self


class _File(ConfigFile):
    case: Text
    model: Text
    repetition: Number = 1
    session: str | None = None
    duration_seconds: Seconds | None = None
    exchanges: tuple[_Written, ...] = ()
    complete: Literal[True]


@dataclass(frozen=True, slots=True)
class Cassette:
    """The file's content. `session` names the recording session, `duration_seconds` the duration of the recorded
    run.
    """

    case: str
    model: str
    repetition: int
    session: str | None = None
    duration_seconds: float | None = None
    exchanges: tuple[Exchange, ...] = ()


def refuse_links(path: Path) -> None:
    """Raise ConfigError if the folder of a cassette is a link: the author of the case may have put it there."""
    above = path.parent.parent
    for folder in (above, path.parent):
        if folder.is_symlink() and (folder is not above or above.name == CASSETTES):
            raise ConfigError(
                f"{folder}: is a link to another folder, expected a folder: cassettes are neither read nor written "
                "through links. Put the folder itself there"
            )


def read_cassette(path: Path, label: Cassette | None = None) -> Cassette | None:
    """Return the cassette at `path`, or None if it does not exist.

    :raises ConfigError: it is broken, cut off, something else, behind a link, or recorded for another case, model or
        repetition than `label` has, with file, line and column.
    """
    refuse_links(path)
    if not path.exists():
        return None
    try:
        return _read(path, label)
    except ConfigError as error:
        raise ConfigError(
            f"{error}\nrestore the cassette, or delete it and record again with --agentbench-cassettes record"
        ) from error


def _read(path: Path, label: Cassette | None) -> Cassette:
    document = parse_yaml(read_bytes(path, _MAX_BYTES), path)
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}:1:1: found no cassette, expected a top-level mapping")
    if "complete" not in document.data:
        last = document.text.count(b"\n") + 1
        raise ConfigError(f"{path}:{last}:1: found no 'complete: true' at the end: the file is cut off")
    file = validate(document, _File, Scope(folder=str(path.parent)))
    if label is not None and (problems := [*_list_differences(file, label, document)]):
        raise document.error(problems)
    exchanges = tuple(_write_out(file.exchanges, document))
    return Cassette(file.case, file.model, file.repetition, file.session, file.duration_seconds, exchanges)


def _list_differences(file: _File, label: Cassette, document: Document) -> Iterator[Problem]:
    for name in ("case", "model", "repetition"):
        found, expected = getattr(file, name), getattr(label, name)
        if found != expected:
            problem = (
                f"found {found!r}, expected {expected!r}: the cassette was recorded for another {name}; correct this "
                f"line if the {name} was renamed"
            )
            yield document.problem((name,), problem)


def _write_out(written: Sequence[_Written], document: Document) -> Iterator[Exchange]:
    """Yield the exchanges with their requests written out."""
    requests: list[dict[str, Any]] = []
    messages = 0
    for index, exchange in enumerate(written):
        request = exchange.request
        if exchange.continues is not None:
            if exchange.continues > index:
                problem = f"found {exchange.continues}, expected the number of an earlier exchange, from 1"
                raise document.error([document.problem(("exchanges", index, "continues"), problem)])
            base = requests[exchange.continues - 1]
            begun = base.get("messages", [])
            if not isinstance(begun, list):
                problem = f"found {exchange.continues}, expected the number of an exchange whose messages are a list"
                raise document.error([document.problem(("exchanges", index, "continues"), problem)])
            request = {**base, "messages": [*begun, *exchange.messages]}
            messages += len(request["messages"])
            # Each exchange may continue the one before: a file of kilobytes could otherwise write out gigabytes.
            if messages > MAX_MESSAGES:
                problem = f"the requests up to here have more than {MAX_MESSAGES:,} messages together"
                raise document.error([document.problem(("exchanges", index), problem)])
        requests.append(request)
        fields = {name: getattr(exchange, name) for name in Exchange.model_fields}
        yield Exchange.model_construct(**(fields | {"request": request}))


def dump_cassette(cassette: Cassette) -> bytes:
    """Return the text of a cassette's file. `read_cassette` of it is equal to the cassette."""
    head = {name: getattr(cassette, name) for name in ("case", "model", "repetition", "session", "duration_seconds")}
    document = {
        "schema_version": 1,
        **{name: value for name, value in head.items() if value is not None},
        "exchanges": list(_abbreviate(cassette.exchanges)),
        "complete": True,
    }
    return _dump_readable_yaml(document).encode()


def _dump_readable_yaml(value: Any, *, sort_keys: bool = False) -> str:
    """Return JSON-like data as readable YAML: texts of several lines as blocks, no folded lines."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, width=2**20)
    return text


def _abbreviate(exchanges: Iterable[Exchange]) -> Iterator[dict[str, Any]]:
    """Yield each exchange. A request that continues an earlier one has only its further messages."""
    earlier: list[Mapping[str, Any]] = []
    for exchange in exchanges:
        rest = exchange.model_dump(mode="json", exclude_defaults=True, exclude={"asked", "request"})
        yield {"asked": exchange.asked, **_abbreviate_request(exchange.request, earlier), **rest}
        earlier.append(exchange.request)


def _abbreviate_request(request: dict[str, Any], earlier: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return {"request": request}
    # Newest first: a conversation continues its own last request, and parallel ones are few.
    for at in range(len(earlier) - 1, max(-1, len(earlier) - 1 - _LOOK_BACK), -1):
        base = earlier[at]
        begun = base.get("messages")
        if (
            isinstance(begun, list)
            and begun
            and messages[: len(begun)] == begun
            and list(base) == list(request)
            and all(base[name] == value for name, value in request.items() if name != "messages")
        ):
            if len(messages) == len(begun):
                return {"continues": at + 1}
            return {"continues": at + 1, "messages": messages[len(begun) :]}
    return {"request": request}


class _Dumper(yaml.CSafeDumper):
    """Dump without anchors: equal values are written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


SHOWN_LINES = 40
SHOWN_WIDTH = 160
_COMPARED = 1_000_000
"""Maximum characters of recorded requests that are compared. Those with about as many messages come first."""
_LINES = 1_000
"""Maximum lines that are aligned, from the first difference on."""
_AROUND = 2
"""Number of equal lines around a difference."""
_BEFORE = 40
"""Characters that a long line shows before its first difference."""


def find_nearest(request: dict[str, Any], recorded: Sequence[tuple[int, dict[str, Any]]]) -> tuple[int, str] | None:
    """Return the number of the nearest of the recorded (number, request) pairs, and a unified diff of it.

    None if nothing is recorded. The diff is bounded in lines and in width.
    """
    new_lines = _write_yaml_lines(request)
    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(new_lines)
    nearest: tuple[float, int, list[str]] | None = None
    compared, messages = 0, _count_messages(request)
    for number, recorded_request in sorted(recorded, key=lambda pair: abs(_count_messages(pair[1]) - messages)):
        if compared > _COMPARED:
            break
        lines = _write_yaml_lines(recorded_request)
        compared += sum(map(len, lines))
        matcher.set_seq1(lines)
        # `ratio()` is quadratic in the lines; this upper bound is linear and ranks requests as well.
        likeness = matcher.quick_ratio()
        if nearest is None or likeness > nearest[0]:
            nearest = likeness, number, lines
    if nearest is None:
        return None
    _, number, lines = nearest
    diff = list(_diff_lines(lines, new_lines))
    if len(diff) > SHOWN_LINES:
        diff[SHOWN_LINES:] = [f"[... {len(diff) - SHOWN_LINES} more lines differ ...]"]
    return number, "\n".join([f"--- recorded (exchange {number})", "+++ asked now", *diff])


def _count_messages(request: dict[str, Any]) -> int:
    return len(as_list(request.get("messages")))


def _write_yaml_lines(request: dict[str, Any]) -> list[str]:
    return _dump_readable_yaml(request, sort_keys=True).splitlines()


def _diff_lines(recorded: list[str], asked: list[str]) -> Iterator[str]:
    """Yield the differing lines with some around each group; a long pair is shown from its first difference."""
    first = max(0, _count_common(recorded, asked) - _AROUND)
    recorded, asked = recorded[first : first + _LINES], asked[first : first + _LINES]
    matcher = difflib.SequenceMatcher(None, recorded, asked, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            yield "  ..."
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from (f"  {_cut_line(line, 0)}" for line in recorded[a:b])
                continue
            starts = [
                max(0, _count_common(old, new) - _BEFORE) for old, new in zip(recorded[a:b], asked[c:d], strict=False)
            ]
            starts += [0] * max(b - a, d - c)
            yield from (f"- {_cut_line(line, start)}" for line, start in zip(recorded[a:b], starts, strict=False))
            yield from (f"+ {_cut_line(line, start)}" for line, start in zip(asked[c:d], starts, strict=False))


def _count_common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of equal lines, or characters of a line, at the beginning."""
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _cut_line(line: str, start: int) -> str:
    if len(line) <= SHOWN_WIDTH:
        return line
    end = start + SHOWN_WIDTH
    return "…" * (start > 0) + line[start:end] + "…" * (end < len(line))
