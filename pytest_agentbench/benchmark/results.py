"""Results of an evaluation, one for each item, and their file (seed 001)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pytest_agentbench.bounded.files import MAX_DOCUMENT, read_file
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import ConfigError, InfrastructureError
from pytest_agentbench.statistics.estimates import mean, mean_of

Prediction = str | tuple[str, ...] | None
"""A text, several (one per repetition), or None."""


@dataclass
class EvaluationResult:
    """The result of one prediction, compared with its item's answer (seed 001).

    `score` is 0-1, or None if the item could not be scored: then `details["error"]` is the reason, or
    `details["missing"]` is true. A missing prediction that counts as 0 has both a score and `details["missing"]`.
    """

    item_id: str
    question: str
    ground_truth: str
    prediction: Prediction
    score: float | None
    metric_name: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def missing(self) -> bool:
        """Return whether there was no prediction."""
        return bool(self.details.get("missing"))

    @property
    def failed(self) -> bool:
        """Return whether the item has a prediction that could not be scored."""
        return self.score is None and not self.missing

    @property
    def error(self) -> str | None:
        """Return why the item could not be scored."""
        if self.failed:
            return self.details.get("error")
        return None


def summarize(
    name: str, description: str, total_items: int, metric: str | None, results: Sequence[EvaluationResult]
) -> dict[str, Any]:
    """Return the summary of an evaluation. Without any score, averages and extremes are None and counts are left out.

    `evaluated_items` + `missing_predictions` + `failed_items` is the number of results. `agreement`, the mean of judged
    metrics, exists only if one reports it, and `run_on` only if one counts replies that continue with another question.
    """
    scores = [result.score for result in results if result.score is not None]
    missing = sum(result.missing for result in results)
    failed = sum(result.failed for result in results)
    summary: dict[str, Any] = {
        "name": name,
        "description": description,
        "total_items": total_items,
        "evaluated_items": len(results) - missing - failed,
        "metric": metric,
        "average_score": mean(scores),
        "max_score": max(scores, default=None),
        "min_score": min(scores, default=None),
        "perfect_matches": sum(score == 1.0 for score in scores),
        "missing_predictions": missing,
        "failed_items": failed,
    }
    agreements = [result.details.get("agreement") for result in results]
    if agreements := [agreement for agreement in agreements if isinstance(agreement, (int, float))]:
        summary["agreement"] = mean_of(agreements)
    if run_on := sum(result.details.get("run_on") is True for result in results):
        summary["run_on"] = run_on
    return summary


_SECTIONS: Mapping[str, type] = {"benchmark_info": dict, "evaluation_results": list, "summary": dict}
_FIELDS = ("item_id", "question", "ground_truth", "prediction", "score", "metric_name")
_TEXTS = ("item_id", "question", "ground_truth", "metric_name")


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a results file.

    `info` has name, description, data_path and total_items, as far as they are known.
    """

    info: dict[str, Any]
    results: list[EvaluationResult]
    summary: dict[str, Any]


def write_results(
    path: Path, info: Mapping[str, Any], results: Sequence[EvaluationResult], summary: Mapping[str, Any]
) -> None:
    """Write the results atomically, and create the folders above. Raises InfrastructureError if that fails."""
    document = {
        "benchmark_info": dict(info),
        "evaluation_results": [asdict(result) for result in results],
        "summary": dict(summary),
    }
    text = json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Half a surrogate pair, which UTF-8 cannot represent, becomes its JSON escape.
        write_atomically(str(path.parent), path.name, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InfrastructureError(f"{path}: the results could not be written ({error.strerror or error})") from error


def read_results(path: Path) -> Saved:
    """Return results that `write_results` wrote. Raises ConfigError, with the missing key, for other files."""
    try:
        document = json.loads(read_file(path, MAX_DOCUMENT), parse_constant=_refuse_constant)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:1:1: not readable as JSON: {error}") from error
    problems = list(_find_problems(document))
    if problems:
        raise ConfigError(f"{path}:1:1: these are no saved results: {'; '.join(problems[:5])}")
    results = [_restore_result(entry) for entry in document["evaluation_results"]]
    return Saved(document["benchmark_info"], results, {**document["summary"], **_scores_of(document["summary"])})


def _find_problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"found {type(document).__name__}, expected an object with {', '.join(_SECTIONS)}"
        return
    for section, kind in _SECTIONS.items():
        if section not in document:
            yield f"{section} is missing"
        elif not isinstance(document[section], kind):
            yield f"{section}: found {type(document[section]).__name__}, expected {kind.__name__}"
    results = document.get("evaluation_results")
    for index, entry in enumerate(results if isinstance(results, list) else ()):
        yield from (f"evaluation_results[{index}]{problem}" for problem in _find_entry_problems(entry))


def _find_entry_problems(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f": found {type(entry).__name__}, expected an object"
        return
    yield from (f".{name} is missing" for name in _FIELDS if name not in entry)
    for name in _TEXTS:
        if not isinstance(entry.get(name, ""), str):
            yield f".{name}: found {type(entry[name]).__name__}, expected a text"
    score = entry.get("score")
    if score is not None and (not isinstance(score, (int, float)) or not 0 <= score <= 1):
        yield f".score: found {score!r}, expected a number from 0 to 1, true, false, or null"
    if not isinstance(entry.get("details", {}), dict):
        yield f".details: found {type(entry['details']).__name__}, expected an object"


def _scores_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores with true and false as numbers: the original stored the metrics' return values."""
    return {name: float(value) for name, value in entry.items() if "score" in name and isinstance(value, bool)}


def _restore_result(entry: Mapping[str, Any]) -> EvaluationResult:
    values = {name: entry[name] for name in _FIELDS} | _scores_of({"score": entry["score"]})
    if isinstance(values["prediction"], list):
        values["prediction"] = tuple(values["prediction"])
    return EvaluationResult(**values, details=entry.get("details", {}))


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")
