"""What `openclaw agent --json` says of a turn, found among its log lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_agentbench.runners.openclaw.bounds import is_plain
from pytest_agentbench.runners.recorder import clean

_MOST_OBJECTS = 100_000
"""How many are looked at: what an agent writes behind its reply may be made to take long."""

_SHOWN = 2000
_LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Reply:
    """A turn as OpenClaw tells it. `text` are its payloads, joined by blank lines.

    `error` is why the turn failed, None where it did not; `timed_out` that OpenClaw's own time limit ended it.
    `account` is what it counted: usage, tools, ids.
    """

    text: str
    error: str | None = None
    timed_out: bool = False
    account: Mapping[str, Any] = field(default_factory=dict)


def find_reply(output: str) -> Reply | None:
    """The last reply that begins a line of the output; None where there is none.

    A reply is a JSON object with `payloads` and `meta`, or one with `ok: false` and `error`.
    """
    return next((reply for found in json_objects(output) if (reply := _read(clean(found))) is not None), None)


def json_objects(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that begin at a line's first character, the last one first.

    None of their own further lines begins with a brace, as in everything that `JSON.stringify` writes.
    """
    decoder, text = json.JSONDecoder(), f"\n{output}"
    end = len(text)
    for _ in range(_MOST_OBJECTS):
        begin = text.rfind("\n{", 0, end)
        if begin < 0:
            return
        piece, end = text[begin + 1 : end], begin + 1
        if not is_plain(piece.encode("utf-8", "replace")):
            continue
        try:
            found, _ = decoder.raw_decode(piece)
        except (ValueError, RecursionError):
            continue
        yield found


def last_lines(output: str) -> str:
    """The end of a log, as it is shown in an error."""
    lines = [line for line in output.splitlines() if line.strip()]
    return str(clean("\n".join(lines[-_LAST_LINES:])[-_SHOWN:]))


def _read(found: Mapping[str, Any]) -> Reply | None:
    payloads, meta, error = found.get("payloads"), found.get("meta"), found.get("error")
    if isinstance(payloads, list) and isinstance(meta, Mapping):
        return _of_turn([each for each in payloads if isinstance(each, Mapping)], meta)
    if found.get("ok") is False and error is not None:
        return Reply("", error=_message(error) or "OpenClaw gave no reason")
    return None


def _of_turn(payloads: list[Mapping[str, Any]], meta: Mapping[str, Any]) -> Reply:
    """The rules are OpenClaw's own (`agent exec`): what counts as failed and what as timed out."""
    timed_out = meta.get("stopReason") == "timeout" or meta.get("timeoutPhase") is not None
    failed = meta.get("error") is not None or meta.get("stopReason") == "error" or meta.get("aborted") is True
    errors = [each for each in payloads if each.get("isError") is True]
    reason = None
    if timed_out or failed or errors:
        reason = _message(meta.get("error")) or _texts(errors) or _reason(meta)
    return Reply(
        text=_texts([each for each in payloads if each not in errors]),
        error=reason,
        timed_out=timed_out,
        account=_account(meta),
    )


def _account(meta: Mapping[str, Any]) -> dict[str, Any]:
    agent = _mapping(meta.get("agentMeta"))
    counted = {
        "session_id": agent.get("sessionId"),
        "usage": agent.get("usage"),
        "successful_tools": _mapping(agent.get("terminalReceipt")).get("successfulToolNames"),
        "tool_summary": meta.get("toolSummary"),
        "duration_ms": meta.get("durationMs"),
        "stop_reason": meta.get("stopReason"),
        "timeout_phase": meta.get("timeoutPhase"),
        "aborted": meta.get("aborted"),
    }
    return {name: value for name, value in counted.items() if value is not None and _is_small(value)}


def _is_small(value: Any) -> bool:
    return len(json.dumps(value)) <= _SHOWN


def _texts(payloads: list[Mapping[str, Any]]) -> str:
    texts = (each.get("text") for each in payloads)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _reason(meta: Mapping[str, Any]) -> str:
    if meta.get("timeoutPhase") is not None:
        return f"its own time limit ended the turn (phase {meta['timeoutPhase']})"
    return "the turn was aborted" if meta.get("aborted") is True else f"stop reason {meta.get('stopReason')}"


def _message(error: object) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
