"""One run as a sample of an Inspect log: messages, events, scores and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_agentbench.packs.exporters.columns import Sample
from pytest_agentbench.packs.exporters.conversations import Conversation, Message, read_conversation
from pytest_agentbench.records.evaluation import Evaluation
from pytest_agentbench.reports.gate import has_verdict
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.reports.table import describe_skipped
from pytest_agentbench.statistics.estimates import finite

SCORER = "agentbench"
"""Name of the scorer with the verdict. Each metric and judged dimension is a further scorer."""
_STOP_REASONS = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}


@dataclass(frozen=True)
class _Clock:
    """Makes the times of events from seconds since the run began."""

    start: datetime

    def stamp(self, at: float) -> dict[str, Any]:
        seconds = max(finite(at) or 0.0, 0.0)
        try:
            moment = self.start + timedelta(seconds=seconds)
        except OverflowError:
            moment = self.start
        return {"timestamp": moment.isoformat(), "working_start": seconds}


def build_sample(sample: Sample, started: datetime) -> dict[str, Any]:
    """Return the JSON of a sample. `started` is the session's start, for a run that is not stored."""
    row, run = sample.row, sample.stored.run
    conversation = Conversation((), 0)
    clock = _Clock(started)
    if run is not None:
        conversation = read_conversation(run)
        clock = _Clock(run.started_at.replace(tzinfo=run.started_at.tzinfo or UTC))
    model, question, target = row["model_id"], _find_input(row, conversation), row.get("expected") or ""
    usage = read_usage(row)
    built: dict[str, Any] = {
        "id": sample.sample_id,
        "epoch": sample.epoch,
        "input": question,
        "target": target,
        "messages": [_format_message(message) for message in conversation.messages],
        "output": _format_output(model, conversation.answer or _read_answer(row), usage),
        "scores": _build_scores(row, sample.stored.evaluation),
        "metadata": _build_metadata(row),
        "model_usage": {model: usage} if usage else {},
        "started_at": clock.start.isoformat(),
        "total_time": row["duration_seconds"],
    }
    if not has_verdict(row):
        message = row["message"] or "the run has no verdict; no reason is stored"
        built["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
    built["events"] = list(_list_events(built, conversation, model, clock))
    return built


def summarise_sample(sample: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return the sample's row of the viewer's list. The question is the short one of the report."""
    summary = {name: sample[name] for name in ("id", "epoch", "target", "scores", "model_usage", "total_time")}
    summary["input"] = row.get("question") or ""
    summary["message_count"] = len(sample["messages"])
    summary["completed"] = True
    if "error" in sample:
        summary["error"] = sample["error"]["message"]
    return summary


def read_usage(row: Row) -> dict[str, Any] | None:
    """Return the tokens and cost of a run; None if its tokens are unknown.

    Inspect's `input_tokens` exclude tokens that were read from the provider's cache or written to it.
    """
    usage = row["usage"] or {}
    total_input, output = usage.get("input_tokens"), usage.get("output_tokens")
    if total_input is None or output is None:
        return None
    cached, written = usage.get("cached_tokens"), usage.get("cache_write_tokens")
    return {
        "input_tokens": max(total_input - (cached or 0) - (written or 0), 0),
        "output_tokens": output,
        "total_tokens": usage.get("total_tokens") or total_input + output,
        "input_tokens_cache_read": cached,
        "input_tokens_cache_write": written,
        "reasoning_tokens": usage.get("reasoning_tokens"),
        "total_cost": row["cost_usd"]["run"],
    }


def read_numbers(row: Row) -> dict[str, float]:
    """Return the known scores of a run by the name of their scorer: metrics, and the judge's dimensions."""
    scores = {**row["metrics"], **{f"judge.{name}": score for name, score in (row["judge"] or {}).items()}}
    return {name: score for name, score in scores.items() if score is not None and name != SCORER}


def _find_input(row: Row, conversation: Conversation) -> str | list[dict[str, Any]]:
    """Return the prompt as a text if it is one message of a user, else as messages."""
    prompt = conversation.prompt
    if not prompt:
        return row.get("question") or ""
    if len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].content
    return [_format_message(message) for message in prompt]


def _read_answer(row: Row) -> Message | None:
    """Return the answer of a run without a stored conversation: the first characters, which the report has."""
    if row.get("answer") is None:
        return None
    return Message("agent", "assistant", row["answer"], 0.0)


def _format_message(message: Message) -> dict[str, Any]:
    formatted: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        formatted["tool_calls"] = [
            {"id": call.call_id, "function": call.name, "arguments": call.arguments, "type": "function"}
            for call in message.calls
        ]
    if message.call is not None:
        formatted["tool_call_id"] = message.call.call_id
        formatted["function"] = message.call.name
        if message.is_error:
            formatted["error"] = {"type": "unknown", "message": message.content}
    return formatted


def _format_output(model: str, message: Message | None, usage: Mapping[str, Any] | None = None) -> dict[str, Any]:
    output: dict[str, Any] = {"model": model, "choices": []}
    if message is not None:
        reason = _STOP_REASONS.get(str(message.finish_reason), "unknown")
        if message.finish_reason is None:
            reason = "tool_calls" if message.calls else "stop"
        output["choices"] = [{"message": _format_message(message), "stop_reason": reason}]
        output["completion"] = message.content
    if usage:
        output["usage"] = usage
    return output


def _build_scores(row: Row, evaluation: Evaluation | None) -> dict[str, Any]:
    """Return the verdict as C, I, or P for a pass with skipped checks, and the numbers of metrics and judges."""
    if not has_verdict(row):
        return {}
    skipped = describe_skipped(row)
    value = "I"
    if row["outcome"] == "passed":
        value = "P" if skipped else "C"
    reasons = list(evaluation.reasons) if evaluation is not None else []
    if not reasons and row["message"]:
        reasons = [row["message"]]
    if skipped:
        reasons.append(skipped)
    verdict = {"value": value, "answer": row.get("answer"), "explanation": "\n".join(reasons) or None}
    return {SCORER: verdict, **{name: {"value": score} for name, score in read_numbers(row).items()}}


def _build_metadata(row: Row) -> dict[str, Any]:
    names = ("nodeid", "case_id", "variant", "repetition", "outcome", "end_reason", "fingerprint", "tags", "cost_usd")
    return {name: row[name] for name in names if row.get(name) is not None}


def _list_events(
    sample: Mapping[str, Any], conversation: Conversation, model: str, clock: _Clock
) -> Iterator[dict[str, Any]]:
    """Yield the events of the transcript.

    The input of a reply has the messages since the reply before it: with all of them the log of a long run would grow
    with the square of its turns. The sample's `messages` are the whole conversation.
    """
    facts = {name: sample[name] for name in ("id", "input", "target")}
    yield {"event": "sample_init", "sample": facts, "state": {}, **clock.stamp(0.0)}
    pending: list[Message] = []
    last = 0.0
    for message in conversation.messages:
        last = message.at
        if message.author == "agent":
            yield {
                "event": "model",
                "model": model,
                "input": [_format_message(before) for before in pending],
                "tools": [],
                "tool_choice": "auto",
                "config": {},
                "output": _format_output(model, message),
                **clock.stamp(message.at),
            }
            pending = []
            continue
        pending.append(message)
        if message.call is not None:
            yield _build_tool_event(message, clock)
    yield from _list_score_events(sample, clock, last)


def _build_tool_event(message: Message, clock: _Clock) -> dict[str, Any]:
    assert message.call is not None
    event: dict[str, Any] = {
        "event": "tool",
        "type": "function",
        "id": message.call.call_id,
        "function": message.call.name,
        "arguments": message.call.arguments,
        "result": message.content,
        "events": [],
        **clock.stamp(message.at),
    }
    if message.is_error:
        event["error"] = {"type": "unknown", "message": message.content}
    return event


def _list_score_events(sample: Mapping[str, Any], clock: _Clock, at: float) -> Iterator[dict[str, Any]]:
    for name, score in sample["scores"].items():
        yield {"event": "score", "scorer": name, "score": score, "target": sample["target"], **clock.stamp(at)}
    if "error" in sample:
        yield {"event": "error", "error": sample["error"], **clock.stamp(at)}


def names_of_scorers(rows: Sequence[Row]) -> list[str]:
    """Return the names of all scorers of the rows, the verdict's first."""
    return [SCORER, *dict.fromkeys(name for row in rows if has_verdict(row) for name in read_numbers(row))]
