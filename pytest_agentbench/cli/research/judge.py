"""The model that judges research reports for a command."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pytest_agentbench.cli.places import root_around
from pytest_agentbench.config import ConfigRoot, EvaluationProfile, JudgeConfig
from pytest_agentbench.engine import CHAT_JUDGE
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models import Endpoints, Ledger, Scripts, missing_key, resolve_model
from pytest_agentbench.records import Case, Model, RowId, RunnerSpec
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.sources import legal_id
from pytest_agentbench.store import JUDGEMENTS, Judgements, Redactor

_DATASET = "research"
"""What commands' rows belong to, for scripts."""
_SCRIPT = ".demo.yaml"


def case_id(row_id: RowId) -> str:
    """The name under which scripts know a row of a file."""
    return f"{_DATASET}.{legal_id(str(row_id))}"


@asynccontextmanager
async def open_judge(
    args: argparse.Namespace, file: Path, ledger: Ledger, request_seconds: float
) -> AsyncIterator[Asking]:
    """The judge that the options name, else OPENAI_MODEL. Models and profiles are those of the folder of `file`, or
    of this one; a request takes at most `request_seconds`.

    Raises ConfigError where none is named, or its key is missing.
    """
    model, options = _judge(args.judge, args.profile, file)
    redactor = Redactor()
    if model.api_key_env is not None:
        redactor.know([model.api_key_env])
    scripts = Scripts()
    if model.scripted:
        scripts.load_beside(_script_case(args.script, file))
    endpoints = Endpoints(scripts=scripts)
    try:
        yield Asking(
            endpoints.client(model),
            Judgements(args.kept / JUDGEMENTS, redactor),
            ledger,
            redactor,
            options=options,
            request_seconds=request_seconds,
        )
    finally:
        await endpoints.close()


def scripted_pages(args: argparse.Namespace, file: Path) -> Mapping[str, str]:
    """The pages by URL that the script has; none where a judge judges that is not scripted. Raises ConfigError.

    A stage without a judge has those of --script.
    """
    if "judge" not in args:
        if args.script is None:
            return {}
    elif not _judge(args.judge, args.profile, file)[0].scripted:
        return {}
    case, scripts = _script_case(args.script, file), Scripts()
    scripts.load_beside(case)
    return scripts.pages(case.case_id)


def _judge(
    judge: str | None, profile: str | None, file: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Model, Mapping[str, Any]]:
    """The judge's model, and what the profile sends with each request to it."""
    roots = [root_around(file), root_around(Path.cwd())]
    name: str | None = judge or environ.get("OPENAI_MODEL")
    options: Mapping[str, Any] = {}
    if profile and not judge:
        first = _judge_of(profile, roots)
        name, options = first.model, first.options
    if not name:
        raise ConfigError(
            "found no judge; name one with --judge MODEL or --profile NAME, or set OPENAI_MODEL (and OPENAI_BASE_URL "
            "for an endpoint that is not OpenAI's); --judge demo answers from a script"
        )
    declared = [root.models() for root in roots]
    model = resolve_model(name, models=next((each for each in declared if each.get(name)), declared[0]))
    if (reason := missing_key(model)) is not None:
        raise ConfigError(reason)
    return model, options


def _judge_of(profile: str, roots: Sequence[ConfigRoot]) -> JudgeConfig:
    """The first judge of an evaluation profile that is a chat model. Raises ConfigError where there is none."""
    judge = _profile(profile, roots).first_judge(CHAT_JUDGE)
    if judge is None:
        raise ConfigError(f"evaluation profile {profile!r}: found no judge of type {CHAT_JUDGE} with a model")
    return judge


def _profile(name: str, roots: Sequence[ConfigRoot]) -> EvaluationProfile:
    """The profile of the first root that has it. Raises ConfigError."""
    missing = []
    for root in roots:
        try:
            root.find("evaluation_profiles", name)
        except ConfigError as error:
            missing.append(error)
        else:
            return root.evaluation_profile(name)
    raise missing[0]


def _script_case(script: Path | None, file: Path) -> Case:
    """A case beside which the script lies: `script`, else `<stem>.demo.yaml` beside the input."""
    if script is not None and not script.name.endswith(_SCRIPT):
        raise ConfigError(f"--script: found {script}, expected a file <name>{_SCRIPT}")
    if script is not None and not script.is_file():
        raise ConfigError(f"--script: {script}: there is no such file")
    path = file if script is None else script.with_name(script.name.removesuffix(_SCRIPT) + ".jsonl")
    return Case(
        case_id=f"{_DATASET}.any", dataset=_DATASET, title=_DATASET, path=path, runner=RunnerSpec(type="predictions")
    )
