"""One run as one row: the data for `runs[]` in report.json and for JUnit's properties.

Rows cross process borders by execnet and are written as JSON. They contain plain primitives only: scores, hashes, paths
and the first characters of question, expected and answer, never transcripts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import fsum
from typing import Any

from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, MetricResult
from pytest_agentbench.records.run import EndReason, RoleUse, RunArtifact, RunnerEvent, Usage
from pytest_agentbench.reports.sections import row_sections, sections_in
from pytest_agentbench.reports.table import describe_skipped
from pytest_agentbench.reports.texts import find_reason, run_texts
from pytest_agentbench.statistics.estimates import finite
from pytest_agentbench.terminal_text import sendable

Row = Mapping[str, Any]
"""A row, in memory or on disk: to be read as a dict is, and never changed."""

MESSAGE_LIMIT = 1000
CHECK_MESSAGE_LIMIT = 300
_MOST_EVIDENCE = 3
GRADED = ("apart", "beside", "in process")
"""Place of the solution during a verifier's run: another sandbox, the same sandbox, or the process of the tests."""

_ABSURD = 10**15

KEPT = ("comparison", "human", "variants", "reference_variant", "column_comparisons")
"""Members of a report that do not follow from its runs, and are kept if present."""

ARTIFACT_PROPERTY = "agentbench.artifact"
"""The user property with the path of the stored run."""


def run_row(
    nodeid: str,
    case: Case,
    model: Model | str,
    repetition: int,
    artifact: RunArtifact | None,
    evaluation: Evaluation | None,
    *,
    duration_seconds: float | None,
    reused: bool,
    evaluation_reused: bool,
    artifact_path: str | None,
    outcome: str,
    message: str | None,
    predictions: str | None = None,
    evaluation_path: str | None = None,
    measure: str | None = None,
    variant: str | None = None,
    parameters: str | None = None,
    line: int | None = None,
    judged: Sequence[Mapping[str, Any]] = (),
    end_reason: EndReason | None = None,
    redact: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Return one entry of report.json's `runs[]`. Unknown is None, never 0; NaN, infinities and 1e100 are unknown.

    `model` is the model that answered, or the name of the user's own agent. `outcome` is pytest's: passed, failed,
    error or skipped. `predictions` is the file with the answer; `model` is then a placeholder. A `reused` run may have
    a new evaluation (judged again). Paths of runs and evaluations are relative to the output folder. `measure` is a
    hash of the checks, metrics and judges that decided the run. `variant` is the name of the run's variant,
    `parameters` the ids of a hand-written test's own parameters. `line`, from 1, is the line of the case in the node
    id's file. `judged` contains verdicts of models, see `engine.judged_by`. `end_reason` replaces the artifact's if
    there is no artifact. `redact` removes secrets from the texts of agents, tools and case files, before these are cut.
    """
    thresholds, roles = case.thresholds, _list_roles(artifact)
    metrics: list[tuple[str, MetricResult]] = []
    checks: Sequence[CheckResult] = ()
    text = None if message is None else sendable(redact(message), MESSAGE_LIMIT)
    if evaluation is not None:
        metrics, checks = [*name_metrics(evaluation.metrics)], evaluation.checks
    return {
        "nodeid": sendable(nodeid),
        "case_id": sendable(case.case_id),
        **run_texts(case, artifact, redact),
        **({} if parameters is None else {"parameters": sendable(parameters)}),
        **_subject(model, predictions),
        **({} if variant is None else {"variant": sendable(variant)}),
        "repetition": repetition,
        "line": line,
        "tags": [sendable(tag) for tag in case.tags],
        "dataset": _sendable_text(case.dataset),
        "fields": _redact_values(groupable_fields(case.metadata), redact) if case.dataset is not None else {},
        "must_pass": case.must_pass,
        "thresholds": thresholds and {"pass_rate": thresholds.pass_rate, "pass_hat_k": thresholds.pass_hat_k},
        "outcome": outcome,
        "status": artifact and artifact.status,
        **_skills(case, artifact),
        **_conversation(case, artifact),
        "end_reason": artifact.end_reason if artifact is not None else end_reason,
        **_row_detail(artifact),
        "checks": [_check_row(result, redact) for result in checks],
        **_metric_scores(metrics),
        "judge": _judge_scores(evaluation),
        **_criteria(evaluation),
        **_votes(case, "" if predictions is not None else model, evaluation, metrics),
        **row_sections(case, evaluation),
        "final_score": evaluation and finite(evaluation.final_score),
        "usage": artifact and _token_counts(artifact.usage),
        **_describe_roles(roles),
        "cost_usd": {
            "run": artifact and _known_cost(artifact.usage),
            "judge": _judge_cost(artifact, evaluation),
            **{role: _known_cost(use.usage) for role, use in roles},
        },
        **_at_least(artifact, evaluation),
        "duration_seconds": finite(duration_seconds),
        **_stream_times(artifact),
        "reused": reused,
        "evaluation_reused": evaluation_reused,
        "cassette": _cassette_state(artifact, evaluation),
        "fingerprint": artifact and _sendable_text(artifact.fingerprint),
        "artifact": _sendable_text(artifact_path),
        "evaluation": _sendable_text(evaluation_path),
        "measure": measure,
        "message": text,
        "reason": find_reason(outcome, None if artifact is None else artifact.status, text),
        **_verdicts_of_models(artifact, judged),
    }


def _subject(model: Model | str, predictions: str | None) -> dict[str, Any]:
    if isinstance(model, Model):
        name, label, scripted = model.model_id, model.label, model.scripted
    else:
        name, label, scripted = model, None, False
    return {
        "model_id": sendable(name),
        "label": _sendable_text(label),
        "scripted": scripted,
        "own_agent": not isinstance(model, Model),
        "predictions": _sendable_text(predictions),
    }


def _skills(case: Case, artifact: RunArtifact | None) -> dict[str, Any]:
    """Return the use of skills; {} for most runs, which have none."""
    if artifact is None or "skills" not in artifact.request:
        return {}
    from pytest_agentbench.reports.skills import skill_row

    return skill_row(case, artifact)


def _conversation(case: Case, artifact: RunArtifact | None) -> dict[str, Any]:
    """Return the figures of a run with several turns; {} for other runs."""
    if artifact is None or not (case.turns or artifact.has_turns):
        return {}
    from pytest_agentbench.reports.conversations import describe_conversation

    return describe_conversation(artifact)


def _list_roles(artifact: RunArtifact | None) -> list[tuple[str, RoleUse]]:
    """Return the further models of a run by role, sorted."""
    if artifact is None or not artifact.roles:
        return []
    return sorted(artifact.roles.items())


def _describe_roles(roles: Sequence[tuple[str, RoleUse]]) -> dict[str, Any]:
    """Return model and tokens of each role of a run; {} for most runs, which have none."""
    if not roles:
        return {}
    described = {
        role: {
            "model_id": sendable(use.model_id),
            "input_tokens": _plausible(use.usage.input_tokens),
            "output_tokens": _plausible(use.usage.output_tokens),
            "total_tokens": _plausible(use.usage.total_tokens),
        }
        for role, use in roles
    }
    return {"roles": described}


def _row_detail(artifact: RunArtifact | None) -> dict[str, Any]:
    """Return details of a run's end and of its requests; {} for most runs."""
    details: dict[str, Any] = {}
    if artifact is None:
        return details
    if artifact.end_detail is not None:
        detail = artifact.end_detail.model_dump(mode="json", exclude_defaults=True)
        details["end_detail"] = {
            name: sendable(value, CHECK_MESSAGE_LIMIT) if isinstance(value, str) else value
            for name, value in detail.items()
        }
        if artifact.end_detail.categories:
            details["end_detail"]["categories"] = [sendable(text, 80) for text in artifact.end_detail.categories]
    if adapted := artifact.request.get("adapted"):
        details["adapted"] = [sendable(str(text), 80) for text in adapted]
    details |= _describe_provider(artifact)
    if (source := artifact.provider.get("usage_source")) in ("gateway", "gateway_partial"):
        details["usage_source"] = source
    if isinstance(reason := artifact.provider.get("asked_nothing"), str):
        details["asked_nothing"] = sendable(reason, CHECK_MESSAGE_LIMIT)
    return details


def _describe_provider(artifact: RunArtifact) -> dict[str, Any]:
    """Return which version of the model answered, if the reply named it, and how many requests were repeated."""
    provider, requested = artifact.provider, artifact.request.get("model")
    served = {
        name: sendable(value, 80)
        for name in ("model", "system_fingerprint")
        if isinstance(value := provider.get(name), str) and value not in ("", requested)
    }
    details: dict[str, Any] = {"served": served} if served else {}
    requests, attempts = provider.get("requests"), provider.get("attempts")
    if isinstance(requests, int) and isinstance(attempts, int) and attempts > requests:
        details["retries"] = attempts - requests
    return details


def _judge_scores(evaluation: Evaluation | None) -> dict[str, float | None] | None:
    """Return the judge's scores, 0-10, its expectations 0-1."""
    if evaluation is None or (judge := evaluation.judge) is None:
        return None
    return {
        "overall": finite(judge.overall),
        **{dimension: finite(score) for dimension, score in judge.dimensions.items()},
        "expectations": finite(judge.expectations),
    }


def _criteria(evaluation: Evaluation | None) -> dict[str, Any]:
    """Return the scores of the rubric's own criteria with the evidence; {} if the judge scored none."""
    if evaluation is None or evaluation.judge is None or not evaluation.judge.criteria:
        return {}
    criteria = [
        {
            "name": sendable(name, CHECK_MESSAGE_LIMIT),
            "score": finite(scored.score),
            "evidence": [sendable(text, CHECK_MESSAGE_LIMIT) for text in scored.evidence[:_MOST_EVIDENCE]],
        }
        for name, scored in evaluation.judge.criteria.items()
    ]
    return {"judge_criteria": criteria}


def user_properties(row: Row) -> list[tuple[str, object]]:
    """Return pytest's user properties of a row, which JUnit's file contains too. An unknown value has no property."""
    properties: list[tuple[str, object]] = [
        ("agentbench.case_id", row["case_id"]),
        ("agentbench.model", row["model_id"]),
        ("agentbench.variant", row.get("variant")),
        ("agentbench.repetition", row["repetition"]),
        ("agentbench.status", row["status"]),
        ("agentbench.end_reason", row["end_reason"]),
        ("agentbench.outcome", row["outcome"]),
        ("agentbench.final_score", row["final_score"]),
    ]
    properties += [(f"agentbench.judge.{name}", score) for name, score in (row["judge"] or {}).items()]
    properties += [(f"agentbench.metric.{name}", score) for name, score in row["metrics"].items()]
    for section, definition in sections_in([row]).items():
        section_properties = definition.row_properties(row[section])
        properties += [(f"agentbench.{section}.{name}", value) for name, value in section_properties.items()]
    properties += [(f"agentbench.check.{check['check_id']}", check["outcome"]) for check in row["checks"]]
    if skipped := describe_skipped(row):
        properties.append(("agentbench.checks", f"{row['outcome']}, {skipped}"))
    properties += [(f"agentbench.graded.{check['check_id']}", check.get("graded")) for check in row["checks"]]
    usage = row["usage"] or {}
    costs, roles = row["cost_usd"], row.get("roles", {})
    properties += [
        ("agentbench.cost_usd", None if None in costs.values() else sum(costs.values())),
        ("agentbench.cost_usd.at_least", _least_cost(row)),
        ("agentbench.tokens.input", usage.get("input_tokens")),
        ("agentbench.tokens.output", usage.get("output_tokens")),
        *((f"agentbench.cost_usd.{role}", costs[role]) for role in roles),
        *((f"agentbench.tokens.{role}.input", tokens["input_tokens"]) for role, tokens in roles.items()),
        *((f"agentbench.tokens.{role}.output", tokens["output_tokens"]) for role, tokens in roles.items()),
        ("agentbench.duration_seconds", row["duration_seconds"]),
        ("agentbench.reused", row["reused"]),
        ("agentbench.cassette", row["cassette"]),
        ("agentbench.evaluation_reused", row["evaluation_reused"]),
        ("agentbench.fingerprint", row["fingerprint"]),
        (ARTIFACT_PROPERTY, row["artifact"]),
    ]
    return [
        (name, value) if name in _OWN_PROPERTIES or not isinstance(value, _SCALARS) else _share(name, value)
        for name, value in properties
        if value is not None
    ]


_OWN_PROPERTIES = frozenset(
    f"agentbench.{name}"
    for name in ("case_id", "tokens.input", "tokens.output", "duration_seconds", "fingerprint", "artifact")
)
"""Properties that hardly two runs have in common."""
_SCALARS = (str, int, float)


@lru_cache(maxsize=4096, typed=True)
def _share(name: str, value: object) -> tuple[str, object]:
    """Return a property: one object for all runs that have it, for pytest keeps every report to the end."""
    return name, value


def _cassette_state(artifact: RunArtifact | None, evaluation: Evaluation | None) -> str | None:
    """Return whether anything of run and verdict was recorded on a cassette, or else replayed from one."""
    states = {record.cassette for record in (artifact, evaluation) if record is not None}
    return next((state for state in ("recorded", "replayed") if state in states), None)


def _check_row(result: CheckResult, redact: Callable[[str], str]) -> dict[str, Any]:
    graded = result.outputs.get("graded") if result.kind == "verify" else None
    return {
        "check_id": sendable(result.check_id),
        "kind": sendable(result.kind),
        "outcome": result.outcome,
        "message": sendable(redact(result.message), CHECK_MESSAGE_LIMIT),
        **({"graded": graded} if graded in GRADED else {}),
    }


STREAM_TIMES = ("ttft_seconds", "first_text_seconds", "output_tokens_per_second")
"""Measurements of a streamed reply."""


def _stream_times(artifact: RunArtifact | None) -> dict[str, Any]:
    """Return each measurement of a run's streamed replies, or {} if no reply was streamed."""
    if artifact is None:
        return {}
    replies = [event.data for event in artifact.trace if isinstance(event, RunnerEvent) and event.name == "reply"]
    streamed = [data for data in replies if "ttft_seconds" in data]
    if not streamed:
        return {}
    return {"streaming": {name: [_measured(data.get(name)) for data in streamed] for name in STREAM_TIMES}}


def _measured(value: object) -> float | None:
    if isinstance(value, int | float) and value >= 0:
        return finite(value)
    return None


def _votes(
    case: Case, model: Model | str, evaluation: Evaluation | None, metrics: Sequence[tuple[str, MetricResult]]
) -> dict[str, Any]:
    """Return `judge_votes`, or {} if nothing in the evaluation can have asked a judge."""
    if evaluation is None or not (
        evaluation.judge or case.parts or evaluation.parts or any(m.details for _, m in metrics)
    ):
        return {}
    from pytest_agentbench.reports.judges import votes_row

    return votes_row(case, model, evaluation, metrics)


def _metric_scores(results: Sequence[tuple[str, MetricResult]]) -> dict[str, Any]:
    """Return scores by name, agreements of votes, and metrics that read a reply only up to a further question."""
    scores: dict[str, float | None] = {}
    agreement: dict[str, float | None] = {}
    for name, result in results:
        scores[name] = finite(result.score)
        agreed = result.details.get("agreement")
        if isinstance(agreed, int | float) and 0 <= agreed <= 1:
            agreement[name] = float(agreed)
    run_on = [name for name, result in results if result.details.get("run_on") is True]
    optional = {"agreement": agreement, "run_on": run_on}
    return {"metrics": scores, **{name: value for name, value in optional.items() if value}}


def _verdicts_of_models(artifact: RunArtifact | None, judged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the verdicts of models and the run's id, to which people's labels refer; {} if no model judged the run."""
    if artifact is None or not judged:
        return {}
    verdicts = [
        {
            "by": sendable(verdict["by"]),
            "judge": verdict["judge"],
            "rubric": verdict["rubric"],
            "models": [sendable(model) for model in verdict["models"]],
            "passed": verdict["passed"],
            "score": finite(verdict["score"]),
        }
        for verdict in judged
    ]
    return {"run_id": sendable(artifact.run_id), "judged": verdicts}


def _token_counts(usage: Usage) -> dict[str, float | None]:
    """Return token counts. Negative and absurdly large counts become None (unknown).

    The tokens written to a provider's cache, and the cost without cache, are included only if the cache was used.
    """
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
    }
    if usage.cache_write_tokens:
        counts["cache_write_tokens"] = usage.cache_write_tokens
        counts["cache_write_1h_tokens"] = usage.cache_write_1h_tokens
    tokens: dict[str, float | None] = {name: _plausible(count) for name, count in counts.items()}
    if usage.cached_tokens or usage.cache_write_tokens:
        tokens["uncached_cost_usd"] = finite(usage.uncached_cost_usd)
    return tokens


def _plausible(count: int | None) -> int | None:
    # An endpoint may answer with any number, and one of 300 digits would take JSON and every sum along
    if count is None or not 0 <= count < _ABSURD:
        return None
    return count


def _judge_cost(artifact: RunArtifact | None, evaluation: Evaluation | None) -> float | None:
    """Return the cost of judges and of metrics that ask models: 0 if none was asked, None if any cost is unknown."""
    if evaluation is None:
        # A run that a provider ended was never judged. For any other run without evaluation the judges' cost
        # is unknown.
        if artifact is None or artifact.status == "provider_error":
            return 0.0
        return None
    costs = [_known_cost(usage) for usage in _judge_usages(evaluation)]
    numbers = [cost for cost in costs if cost is not None]
    if len(numbers) == len(costs):
        return fsum(numbers)
    return None


def _judge_usages(evaluation: Evaluation) -> list[Usage]:
    judge = evaluation.judge.usage if evaluation.judge is not None else evaluation.judge_usage
    return [usage for usage in (judge, *(metric.usage for metric in evaluation.metrics)) if usage is not None]


def _at_least(artifact: RunArtifact | None, evaluation: Evaluation | None) -> dict[str, Any]:
    """Return the known parts of cost and tokens, nothing if every request returned its usage."""
    run = [artifact.usage] if artifact is not None else []
    judge = _judge_usages(evaluation) if evaluation is not None else []
    roles = {role: use.usage for role, use in _list_roles(artifact)}
    if all(usage.unsettled is None for usage in (*run, *judge, *roles.values())):
        return {}
    cost = {
        "run": _certain_cost(run),
        "judge": _certain_cost(judge),
        **{role: _certain_cost([usage]) for role, usage in roles.items()},
    }
    tokens = _certain_tokens(run[0] if run else Usage())
    by_role = {"roles": {role: _certain_tokens(usage) for role, usage in roles.items()}} if roles else {}
    return {"at_least": {"cost_usd": cost, "tokens": tokens, **by_role}}


def _certain_tokens(usage: Usage) -> dict[str, int | None]:
    _, *counts = usage.known
    tokens_in, tokens_out = map(_plausible, counts)
    total = None if tokens_in is None and tokens_out is None else (tokens_in or 0) + (tokens_out or 0)
    return {"input": tokens_in, "output": tokens_out, "total": total}


def _least_cost(row: Row) -> float | None:
    """Return the known cost of a run and its judges, None if all of it is known or nothing."""
    numbers = [cost for cost in row.get("at_least", {}).get("cost_usd", {}).values() if cost is not None]
    if numbers:
        return fsum(numbers)
    return None


def _certain_cost(usages: Sequence[Usage]) -> float | None:
    numbers = [cost for usage in usages if (cost := finite(usage.known[0])) is not None and cost >= 0]
    if numbers:
        return fsum(numbers)
    return None


def _known_cost(usage: Usage) -> float | None:
    """Return USD; less than nothing is unknown."""
    if usage.cost_usd is not None and usage.cost_usd >= 0:
        return finite(usage.cost_usd)
    return None


def _sendable_text(text: str | None) -> str | None:
    if text is None:
        return None
    return sendable(text)


_MOST_FIELDS, _LONGEST_VALUE = 8, 40
"""How many values of metadata rows can be grouped by, and characters of each and of its key."""
_LARGEST_NUMBER = 10**15


def groupable_fields(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the first 8 values of a row's metadata that are useful to group by: short texts, numbers and booleans.

    Texts have up to 40 characters. Equal keys and values of many rows share one object.
    """
    fields: dict[str, str] = {}
    for key, value in metadata.items():
        text = _groupable_text(value)
        if text is not None and len(key) <= _LONGEST_VALUE:
            # 10,000 rows share few keys and values
            fields[sys.intern(sendable(key))] = sys.intern(text)
            if len(fields) == _MOST_FIELDS:
                break
    return fields


def _redact_values(fields: dict[str, str], redact: Callable[[str], str]) -> dict[str, str]:
    return {key: redact(value) for key, value in fields.items()}


def _groupable_text(value: object) -> str | None:
    match value:
        case bool():
            return str(value).lower()
        case str() if len(value) <= _LONGEST_VALUE:
            return sendable(value.strip()) or None
        case int() if abs(value) < _LARGEST_NUMBER:
            return str(value)
        case float():
            return repr(value)
    return None


def name_metrics(results: Iterable[MetricResult]) -> Iterator[tuple[str, MetricResult]]:
    """Yield metrics by the names of their scores: one that is used twice, with other arguments, is also `name-2`."""
    taken: set[str] = set()
    for result in results:
        name, used = sendable(result.name), 1
        while name in taken:
            used += 1
            name = f"{sendable(result.name)}-{used}"
        taken.add(name)
        yield name, result


Report = dict[str, Any]


HUMAN_FILE = "human.jsonl"
"""File of human labels, in the folder that sessions start in (pytest's rootdir)."""
