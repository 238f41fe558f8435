"""`agentbench doctor --model X --live`: probe one model at its endpoint, and store the settings that work."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.cli.findings import MARKS
from pytest_agentbench.cli.output import printable
from pytest_agentbench.cli.places import require_existing, session_roots
from pytest_agentbench.config.documents import read_document
from pytest_agentbench.config.profiles import merge_runner_settings
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models.probes import (
    MOST_REQUESTS,
    MOST_TOKENS,
    Probed,
    Prober,
    forecast_cost,
    host_of,
    merge_settings,
)
from pytest_agentbench.models.routes import missing_key, resolve_model
from pytest_agentbench.records.case import Model
from pytest_agentbench.secrets.redaction import Redactor


def run(args: argparse.Namespace) -> int:
    """Ask for permission, run the probes and print each one as it ends. Return 1 if the first or second one fails."""
    (path,) = require_existing([args.path])
    root = session_roots([path]).around(path)
    model = _find_model(root, args.model)
    cost = forecast_cost(model)
    about = f"about {cost:.4f} USD" if cost is not None else "at a price that is not known (10 USD a million: 0.01 USD)"
    requests = f"at most {MOST_REQUESTS} requests of {MOST_TOKENS} tokens"
    _ask_leave(f"{model.requested_model} at {host_of(model)}: {requests}, {about}", yes=args.yes)
    redactor = Redactor()
    redactor.know(model.variables)

    def tell(probed: Probed) -> None:
        if not args.json:
            line = f"  {MARKS[probed.works]:<2}  {probed.number:>2} {probed.name}: {probed.said}"
            print(printable(redactor.text(line)), flush=True)

    prober = Prober(model, _read_parameters(root, args.profile, model))
    probes = asyncio.run(prober.run(tell))
    settings = merge_settings(probes)
    if args.write and settings:
        write_settings(_models_file(root), args.model, settings)
    _print_end(args, prober.requests, prober.costs, probes, settings, redactor.value)
    return int(any(probed.works is False for probed in probes[:2]))


def _find_model(root: ConfigRoot, name: str) -> Model:
    model = resolve_model(name, models=root.models())
    if model.scripted or model.provider is not None:
        how = "is scripted" if model.scripted else f"is reached by the provider {model.provider!r} of a plugin"
        raise ConfigError(f"--model {name}: it {how}; probes are for endpoints of chat completions")
    if (missing := missing_key(model)) is not None:
        raise ConfigError(missing)
    return model


def _read_parameters(root: ConfigRoot, profile: str | None, model: Model) -> Mapping[str, Any]:
    if profile is None:
        return model.parameters
    settings = merge_runner_settings(root.run_profile(profile), model.model_id, {}, model.parameters)
    return {**model.parameters, **RunnerSettings.model_validate(settings).request_parameters}


def _ask_leave(plan: str, *, yes: bool) -> None:
    """Raise ConfigError unless the user permits the requests."""
    print(f"--live: {plan}", file=sys.stderr, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("--live: found no terminal to ask on; add --yes to send these requests")
    print("Ask it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("--live: nothing was sent")


def _print_end(
    args: argparse.Namespace,
    requests: int,
    costs: list[float | None],
    probes: list[Probed],
    settings: Mapping[str, Any],
    redact: Any,
) -> None:
    known_costs = [cost for cost in costs if cost is not None]
    cost = sum(known_costs) if len(known_costs) == len(costs) else None
    if args.json:
        document = {
            "model": args.model,
            "requests": requests,
            "cost_usd": cost,
            "probes": [asdict(probed) for probed in probes],
            "settings": dict(settings),
        }
        print(json.dumps(redact(document), indent=2, ensure_ascii=False))
        return
    price = "cost not known" if cost is None else f"{cost:.6f} USD"
    print(f"{requests} requests, {price}")
    if settings:
        if args.write:
            print(f"written into the entry {args.model!r} of models.yaml:")
        else:
            print(f"write into the entry {args.model!r} of models.yaml, or run again with --write:")
        for name, value in settings.items():
            print(f"  {name}: {json.dumps(value)}")


def _models_file(root: ConfigRoot) -> Path:
    return next((path for name in ("models.yaml", "models.yml") if (path := root.path / name).is_file()), root.path)


def write_settings(path: Path, model_id: str, settings: Mapping[str, Any]) -> None:
    """Add settings to an entry of a models.yaml, without other changes. Raises ConfigError if that is impossible."""
    missing = ConfigError(f"{path}: has no entry {model_id!r}; add one, with {json.dumps(dict(settings))}")
    if not path.is_file():
        raise missing
    document = read_document(path)
    entries = (document.data or {}).get("models") or ()
    at = next((n for n, entry in enumerate(entries) if entry.get("model_id") == model_id), None)
    if at is None:
        raise missing
    if repeated := settings.keys() & entries[at].keys():
        names = ", ".join(sorted(repeated))
        raise ConfigError(f"{document.path}: entry {model_id!r} has {names} already; add {json.dumps(dict(settings))}")
    problem = document.problem(("models", at, "model_id"), "", at_key=True)
    lines = document.text.decode("utf-8-sig").splitlines(keepends=True)
    line, column = lines[problem.line - 1], problem.column - 1
    flow = "{" in line[:column]
    pieces = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
    # Insert before `model_id`, which works in any entry: in braces with a comma, else on separate lines.
    new = "".join(f"{piece}, " if flow else f"{piece}\n{' ' * column}" for piece in pieces)
    lines[problem.line - 1] = line[:column] + new + line[column:]
    write_atomically(str(path.parent), path.name, "".join(lines).encode())
