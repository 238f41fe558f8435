"""What judges are asked about one run, and what their replies come to: the seam between kinds of judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.judging.aggregation import aggregate
from pytest_agentbench.judging.contract import parse_verdict, response_format
from pytest_agentbench.judging.key_outputs import NO_TEXTS, Texts
from pytest_agentbench.judging.prompt import judge_messages
from pytest_agentbench.records import Case, CheckResult, JudgeIteration, JudgeResult, JudgeVerdict, RunArtifact

if TYPE_CHECKING:
    from pytest_agentbench.config import EvaluationProfile, JudgeRunConfig

Redact = Callable[[Any], Any]
"""Removes secrets from a JSON-like value."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """One kind of judging, of one run.

    `messages` are those that an iteration begins with, by its number from 1; secrets are removed from them already.
    `parse` reads a reply, or raises InvalidReply. `aggregate` takes all iterations of all judge runs, and raises
    ValueError where none succeeded. `repetitions` is how often a judge run asks. `shuffled` says that the rubric comes
    in another order each time.
    """

    messages: Callable[[int], list[dict[str, str]]]
    response_format: Mapping[str, Any]
    parse: Callable[[str], JudgeVerdict]
    aggregate: Callable[[Sequence[JudgeIteration]], JudgeResult]
    repetitions: Callable[[JudgeRunConfig], int]
    shuffled: bool = False


def assessment(
    case: Case,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    profile: EvaluationProfile,
    redact: Redact,
    texts: Texts = NO_TEXTS,
) -> Assessment:
    """Judging by the case's rubric and expectations, six dimensions from 0 to 10. `texts` are as in judge_messages."""
    messages = redact(judge_messages(case, artifact, checks, profile, texts))
    return Assessment(
        messages=lambda iteration: messages,
        response_format=response_format(case.expectations),
        parse=partial(parse_verdict, expectations=case.expectations),
        aggregate=partial(
            aggregate,
            method=profile.aggregation.method,
            pass_threshold=profile.aggregation.pass_threshold,
            sample_sizes=sample_sizes(profile),
            seed=sampling_seed(artifact),
            expectations=case.expectations,
        ),
        repetitions=lambda run: run.repetitions,
    )


def sample_sizes(profile: EvaluationProfile) -> dict[str, int]:
    """How many iterations count, of the judge runs that sample."""
    return {run.judge_run_id: run.sample_size for run in profile.judge_runs if run.sample_size is not None}


def sampling_seed(artifact: RunArtifact) -> str:
    """What the choice of iterations depends on."""
    return artifact.fingerprint or f"{artifact.case_id}:{artifact.repetition}"
