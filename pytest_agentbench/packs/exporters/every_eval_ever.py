"""Write a column of a report as a pair of files of Every Eval Ever 0.3: an aggregate, and a line for each run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from pytest_agentbench.bounded.writing import encode_row, write_document, write_lines
from pytest_agentbench.packs.exporters.columns import Column, ExportedFile, Sample
from pytest_agentbench.packs.exporters.conversations import Conversation, Message, read_conversation
from pytest_agentbench.reports.gate import has_verdict
from pytest_agentbench.reports.rows import Row
from pytest_agentbench.statistics.estimates import finite, pass_rate_interval

SCHEMA_VERSION = "0.3.0"
_RESULT = "pass_rate"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_RESERVED = re.compile(r"(?i)(?:data|con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
"""Names of folders that the format or Windows reserves."""
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Source:
    """Facts that the format asks for and a report lacks: who evaluated, and who made and runs the models."""

    organisation: str
    relationship: str
    developer: str
    deployment: str
    availability: str


@dataclass(frozen=True)
class _Identity:
    """The names under which the results of a column are published. `folder` is relative to the output folder."""

    evaluation_id: str
    model_id: str
    folder: str
    stem: str
    timestamp: str

    @property
    def samples(self) -> str:
        return f"{self.folder}/{self.stem}_samples.jsonl"


def write_pair(column: Column, source: Source, folder: Path, notes: list[str]) -> ExportedFile | None:
    """Write both files of a column below `folder/data` and return the aggregate.

    A run without a verdict has no line and is counted in the aggregate. Return None if no run has a verdict. Add the
    reasons for which runs could not be read to `notes`. Raises UnwritableError.
    """
    if not any(map(has_verdict, column.rows)):
        notes.append(f"{column.title}: no run has a verdict, so there is no result to export")
        return None
    identity = _identify(column, source)
    digest = hashlib.sha256()
    total = 0

    def list_lines() -> Iterator[bytes]:
        nonlocal total
        for sample in column.load_samples():
            if not has_verdict(sample.row):
                continue
            notes.extend(sample.stored.problems)
            line = encode_row(_build_line(sample, column, identity))
            digest.update(line)
            total += 1
            yield line

    write_lines(folder / identity.samples, list_lines())
    aggregate = _build_aggregate(column, source, identity)
    aggregate["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": identity.samples,
        "hash_algorithm": "sha256",
        "checksum": digest.hexdigest(),
        "total_rows": total,
    }
    path = write_document(folder / identity.folder / f"{identity.stem}.json", aggregate)
    return ExportedFile(path, total)


def _identify(column: Column, source: Source) -> _Identity:
    collection, developer, model = map(_make_portable, (column.suite, source.developer, column.model))
    timestamp = str(int(column.started.timestamp()))
    return _Identity(
        evaluation_id=f"{_make_portable(column.task)}/{developer}_{model}/{timestamp}",
        model_id=f"{developer}/{model}",
        folder=f"data/{collection}/{developer}/{model}",
        stem=str(UUID(bytes=column.digest[:16], version=4)),
        timestamp=timestamp,
    )


def _make_portable(name: str) -> str:
    """Return a name as the name of a folder. Two names may become one: the names of files differ."""
    portable = _UNSAFE.sub("_", name)[:_LONGEST_NAME].strip(".") or "unknown"
    if _RESERVED.fullmatch(portable):
        return f"_{portable}"
    return portable


def _build_aggregate(column: Column, source: Source, identity: _Identity) -> dict[str, Any]:
    left_out = len(column.rows) - sum(map(has_verdict, column.rows))
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "retrieved_timestamp": identity.timestamp,
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": source.organisation,
            "evaluator_relationship": source.relationship,
            "additional_details": {"runs_without_verdict": str(left_out)},
        },
        "eval_library": {
            "name": "pytest-agentbench",
            "version": column.session["versions"].get("pytest-agentbench") or version("pytest-agentbench"),
        },
        "model_info": {
            "name": column.model,
            "id": identity.model_id,
            "developer": source.developer,
            "additional_details": {
                "deployment_type": source.deployment,
                "model_availability": source.availability,
            },
        },
        "evaluation_results": [_build_result(column)],
    }


def _build_result(column: Column) -> dict[str, Any]:
    passed, judged = map(sum, zip(*column.counts, strict=True))
    details: dict[str, Any] = {"score": passed / judged}
    if (interval := pass_rate_interval(column.counts)) is not None:
        details["uncertainty"] = {
            "confidence_interval": {
                "lower": interval[0],
                "upper": interval[1],
                "confidence_level": 0.95,
                "method": "wilson",
            },
            "num_samples": judged,
        }
    result: dict[str, Any] = {
        "evaluation_result_id": _RESULT,
        "evaluation_name": column.task,
        "source_data": {"dataset_name": column.suite, "source_type": "other"},
        "metric_config": {
            "metric_kind": _RESULT,
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": details,
    }
    if column.variant is not None:
        result["generation_config"] = {"additional_details": {"variant": column.variant}}
    return result


def _build_line(sample: Sample, column: Column, identity: _Identity) -> dict[str, Any]:
    row, run = sample.row, sample.stored.run
    conversation = Conversation((), 0) if run is None else read_conversation(run)
    expected = row.get("expected")
    passed = row["outcome"] == "passed"
    line: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": identity.evaluation_id,
        "model_id": identity.model_id,
        "evaluation_name": column.task,
        "evaluation_result_id": _RESULT,
        "sample_id": sample.sample_id,
        "interaction_type": _find_interaction(conversation),
        "input": {"raw": _find_question(row, conversation), "reference": [] if expected is None else [expected]},
        "evaluation": {"score": float(passed), "is_correct": passed},
        "metadata": _build_metadata(sample),
    }
    if (tokens := _read_tokens(row)) is not None:
        line["token_usage"] = tokens
    if (latency := finite((row["duration_seconds"] or 0.0) * 1000)) and latency > 0:
        line["performance"] = {"latency_ms": latency}
    return {**line, **_build_exchange(line["interaction_type"], row, conversation, line["evaluation"])}


def _find_interaction(conversation: Conversation) -> str:
    if any(message.calls or message.call is not None for message in conversation.messages):
        return "agentic"
    if len(conversation.messages) > conversation.prompt_length + 1 or len(_list_users(conversation)) > 1:
        return "multi_turn"
    return "single_turn"


def _list_users(conversation: Conversation) -> list[Message]:
    return [message for message in conversation.messages if message.role == "user"]


def _find_question(row: Row, conversation: Conversation) -> str:
    """Return the whole text of the prompt's last message of a user; the report has its first characters."""
    questions = [message.content for message in conversation.prompt if message.role == "user"]
    if questions:
        return questions[-1]
    return row.get("question") or ""


def _build_exchange(
    interaction: str, row: Row, conversation: Conversation, evaluation: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the answer of a run with one turn, else the messages; with the place of the answer in it."""
    answer = conversation.answer
    if interaction == "single_turn":
        text = row.get("answer") if answer is None else answer.content
        if text is None:
            return {"output": {"raw": []}, "answer_attribution": []}
        return {"output": {"raw": [text]}, "answer_attribution": [_attribute(0, "output.raw", text)]}
    messages = conversation.messages
    attribution = []
    if answer is not None and answer.content:
        turn = next(at for at, message in enumerate(messages) if message is answer)
        attribution.append(_attribute(turn, f"messages[{turn}].content", answer.content))
    calls = sum(len(message.calls) for message in messages)
    return {
        "messages": [_format_message(turn, message) for turn, message in enumerate(messages)],
        "answer_attribution": attribution,
        "evaluation": {**evaluation, "num_turns": len(messages), "tool_calls_count": calls},
    }


def _attribute(turn: int, source: str, text: str) -> dict[str, Any]:
    return {
        "turn_idx": turn,
        "source": source,
        "extracted_value": text,
        "extraction_method": "whole_text",
        "is_terminal": True,
    }


def _format_message(turn: int, message: Message) -> dict[str, Any]:
    formatted: dict[str, Any] = {"turn_idx": turn, "role": message.role, "content": message.content or None}
    if message.calls:
        formatted["tool_calls"] = [
            {"id": call.call_id, "name": call.name, "arguments": _as_texts(call.arguments)} for call in message.calls
        ]
    if message.call is not None:
        formatted["tool_call_id"] = [message.call.call_id]
    return formatted


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return all values as texts, which the format demands: others than texts as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
    }


def _build_metadata(sample: Sample) -> dict[str, str]:
    row = sample.row
    values: dict[str, Any] = {
        "repetition": sample.epoch,
        "nodeid": row["nodeid"],
        "variant": row.get("variant"),
        "fingerprint": row["fingerprint"],
        "end_reason": row["end_reason"],
        "cost_usd": row["cost_usd"]["run"],
        **{f"metric.{name}": score for name, score in row["metrics"].items()},
    }
    return _as_texts({name: value for name, value in values.items() if value is not None})


def _read_tokens(row: Row) -> dict[str, Any] | None:
    """Return the tokens of a run, None if they are unknown."""
    usage = row["usage"] or {}
    counts: Sequence[Any] = (usage.get("input_tokens"), usage.get("output_tokens"))
    if None in counts:
        return None
    optional = {
        "input_tokens_cache_read": usage.get("cached_tokens"),
        "input_tokens_cache_write": usage.get("cache_write_tokens"),
        "reasoning_tokens": usage.get("reasoning_tokens"),
    }
    return {
        "input_tokens": counts[0],
        "output_tokens": counts[1],
        "total_tokens": usage.get("total_tokens") or sum(counts),
        **{name: count for name, count in optional.items() if count is not None},
    }
