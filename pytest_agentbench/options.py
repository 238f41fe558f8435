"""Command line and ini, as one frozen Settings that every room reads."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_agentbench.errors import find_chart_problem

if TYPE_CHECKING:
    from pytest_agentbench.records.case import CassetteMode

CASSETTE_MODES = ("off", "record", "replay", "auto")


class VariantOption(NamedTuple):
    """A variant that the session names. `overrides` is its YAML mapping, None for a name; paths are below `folder`."""

    name: str
    overrides: str | None
    folder: Path


class Settings(NamedTuple):
    """The settings that the user gave this session. None: not given, so a profile or the default decides.

    `metric` is (name, threshold) for dataset rows; `shard` (2, 8) is the second of eight parts; `fail_under` and
    `min_completion` are fractions of 1; `show_failures` may be infinite. With `predictions` there are no
    models: the file is the subject.
    """

    models: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    variants: tuple[VariantOption, ...] = ()
    suite: str | None = None
    run_profile: str | None = None
    evaluation_profile: str | None = None
    configs: Path | None = None
    names_root: bool = False
    """The command line names the pytest file or the root, so that no other pytest file decides."""
    trust: tuple[Path, ...] = ()
    added_trust: tuple[Path, ...] = ()
    """Trusted folders that `addopts` of a pytest file names."""
    concurrency: int | None = None
    repetitions: int | None = None
    metric: tuple[str, float] | None = None
    predictions: Path | None = None
    shard: tuple[int, int] | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    fail_under: float | None = None
    min_completion: float = 0.95
    strict: bool = False
    no_reuse: bool = False
    rejudge: bool = False
    dry_run: bool = False
    keep_workspaces: bool = False
    cassettes: CassetteMode = "off"
    batch: bool = False
    batch_wait: float = 24 * 3600
    output: Path = Path("outputs")
    store: str | None = None
    store_key: str | None = None
    json: Path | None = None
    json_lines: Path | None = None
    html: Path | None = None
    chart: Path | None = None
    compare: Path | None = None
    max_regressions: int | None = None
    policy: Path | None = None
    show_failures: float | None = None
    grace: float = 10
    otel: bool = False


def parse_positive(text: str) -> int:
    """Return a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 1")
    return int(text)


def parse_count(text: str) -> int:
    """Return a whole number, 0 too."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 0")
    return int(text)


def parse_shown(text: str) -> float:
    """Return a whole number, infinity for `all`."""
    try:
        if text == "all":
            return math.inf
        return parse_count(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number or all") from None


def parse_fraction(text: str) -> float:
    """Return a number from 0 to 1."""
    number = _parse_number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a fraction from 0 to 1")
    return number


def parse_money(text: str) -> float:
    """Return an amount of USD, not negative."""
    number = _parse_number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected an amount in USD, such as 2.50")
    return number


def parse_grace(text: str) -> float:
    """Return a time in seconds, 0 too."""
    number = _parse_number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time in seconds, 0 or more, such as 10")
    return number


def parse_seconds(text: str) -> float:
    """Return a time in seconds, above 0."""
    number = _parse_number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time in seconds above 0, such as 3600")
    return number


SHORTEST_KEY = 16
"""Characters of a key that signs stored records, at least."""


def parse_metric(text: str) -> tuple[str, float]:
    """Return the metric and the threshold (default 1.0) of `NAME` or `NAME>=T`, which a dataset's row must reach."""
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:>=\s*(\S+))?\s*", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME or NAME>=T, such as f1_score>=0.8")
    return match[1], parse_fraction(match[2] or "1")


def parse_shard(text: str) -> tuple[int, int]:
    """Return part I, from 1, and the number of parts of `I/N`."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected I/N with I from 1 to N, such as 2/8")
    return int(match[1]), int(match[2])


def parse_store(text: str) -> str:
    """Return the URL of a shared store in its normal form. A possible secret in it is refused without being shown."""
    match = re.fullmatch(r"(s3|gs|az|file)://([^?#]+?)/*", text)
    if match is None or "@" in text or (match[1] == "file") != match[2].startswith("/"):
        shown = re.sub(r"^(\w*://)?.*(?=@)|(?<=\?).*", r"\1[redacted]", text, flags=re.DOTALL)
        raise argparse.ArgumentTypeError(
            f"found {shown!r}, expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or "
            "file:///FOLDER; credentials come from the environment, never from the URL"
        )
    if match[1] == "file":
        return f"file://{Path(match[2]).resolve()}"
    return f"{match[1]}://{match[2]}"


def parse_variable(text: str) -> str:
    """Return the name of an environment variable whose name shows that it holds a key.

    Commands of agents do not get such variables. Any other text may be the key itself, and is refused without being
    shown.
    """
    if re.fullmatch(r"(?=[A-Z0-9_]*(KEY|SECRET|TOKEN))[A-Z_][A-Z0-9_]{0,79}", text) is None:
        raise argparse.ArgumentTypeError(
            "expected the name of an environment variable that holds the key, in capitals and with KEY, SECRET or "
            "TOKEN in it, such as AGENTBENCH_STORE_KEY, and never the key itself"
        )
    return text


def parse_cassettes(text: str) -> str:
    """Return the mode in which models' answers are recorded or replayed."""
    if text not in CASSETTE_MODES:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected one of {', '.join(CASSETTE_MODES)}")
    return text


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number") from None


class _Option(NamedTuple):
    """One option: its flag without the prefix, its help (imperative, no full stop), how its text is parsed."""

    name: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    ini: bool = True


OPTIONS = (
    _Option("profile", "use the run profile and the evaluation profile of this name", "NAME"),
    _Option("suite", "run the cases and models of this suite (id or path)", "NAME"),
    _Option("run-profile", "use this run profile (id or path); wins over the profile option", "NAME"),
    _Option("evaluation-profile", "use this evaluation profile (id or path); wins over the profile option", "NAME"),
    _Option("concurrency", "keep up to N runs in flight, all workers together", "N", parse_positive),
    _Option("repetitions", "run each case N times on each model", "N", parse_positive),
    _Option("metric", "score dataset rows with this metric and threshold", "NAME[>=T]", parse_metric),
    _Option("predictions", "score the answers of this file; no model or agent is asked", "FILE", Path, ini=False),
    _Option("shard", "run part I of N of the cases; agentbench merge joins the reports", "I/N", parse_shard, ini=False),
    _Option("max-cost", "start no more runs once runs and judges have cost this much", "USD", parse_money),
    _Option("max-tokens", "start no more runs once runs and judges have used this many tokens", "N", parse_positive),
    _Option("max-seconds", "start no more runs once the session has taken this long", "N", parse_seconds),
    _Option("grace", "let requests in flight end for up to S seconds after a signal (10)", "S", parse_grace),
    _Option("fail-under", "gate the session on this pass rate, not on single failures", "FRACTION", parse_fraction),
    _Option(
        "min-completion",
        "the share of runs that must reach a verdict for the gate to pass (0.95)",
        "FRACTION",
        parse_fraction,
    ),
    _Option(
        "cassettes",
        "record answers next to the cases, replay them, or auto: replay recorded answers, record the others (off)",
        "MODE",
        parse_cassettes,
    ),
    _Option("batch-wait", "wait so long for batches; a later session collects the rest (86400)", "N", parse_seconds),
    _Option("output", "write results below this folder (outputs)", "DIR", Path),
    _Option(
        "store-key",
        "sign stored documents with the key in this environment variable, and reuse only documents with its signature",
        "VARIABLE",
        parse_variable,
    ),
    _Option("store", "share results through this store: s3://, gs://, az://, file://", "URL", parse_store),
    _Option("json", "write report.json here instead", "PATH", Path, ini=False),
    _Option("json-lines", "write JSON records here: the start, each run, the end", "PATH", Path, ini=False),
    _Option("html", "write the report for people here, one page", "PATH", Path),
    _Option("chart", "write an SVG of mean score against cost per model here", "PATH", Path),
    _Option("compare", "compare with this report.json; a significant regression fails the session", "PATH", Path),
    _Option("max-regressions", "fail if more than N cases are worse than in the compared report", "N", parse_count),
    _Option("policy", "let failures of this file's quarantined cases not count, of blocking ones always", "FILE", Path),
    _Option(
        "show-failures",
        "print the first N failures of cases, or all (all up to 200, then the first 50)",
        "N",
        parse_shown,
    ),
)

FLAGS = (
    _Option("batch", "put independent requests into batches, at half the price, if the endpoint has them"),
    _Option("strict", "make cases that cannot run here errors, not skips, and passed runs with skipped checks too"),
    _Option("no-reuse", "run and judge everything again, without stored results", ini=False),
    _Option("rejudge", "check, measure and judge stored runs again, without running them", ini=False),
    _Option("keep-workspaces", "leave the folders of runs that did not pass in the temporary folder", ini=False),
    _Option("otel", "send runs, model calls and tool calls as spans to the collector that OTEL_* variables name"),
    _Option("dry-run", "print the planned runs and their expected cost; run and pay nothing", ini=False),
)


def add_options(parser: pytest.Parser) -> None:
    """Register everything but `--model`, which waits until it is known to be free (`add_short_model`)."""
    group = parser.getgroup("agentbench", "agent benchmarks")
    group.addoption(
        "--agentbench-model",
        action="append",
        metavar="ID",
        help="run the cases on this model (repeatable; short: --model)",
    )
    parser.addini("agentbench_model", "models to run the cases on", type="args", default=[])
    group.addoption(
        "--agentbench-agent",
        action="append",
        metavar="NAME",
        help="run cases of the runner agent with this agent in place of theirs (repeatable; each with each model)",
    )
    parser.addini("agentbench_agent", "agents to run the cases of the runner agent with", type="args", default=[])
    group.addoption(
        "--agentbench-variant",
        action="append",
        metavar="NAME[={...}]",
        help="run this variant of the cases; with a YAML mapping, add it or replace the declared one (repeatable)",
    )
    parser.addini("agentbench_variant", "variants to run, one a line", type="linelist", default=[])
    for option in OPTIONS:  # pytest looks for an option with the same `dest` among all others unless it is given
        group.addoption(
            f"--agentbench-{option.name}",
            dest=_name_dest(option),
            metavar=option.metavar,
            type=option.parse,
            default=None,
            help=option.help,
        )
        if option.ini:
            parser.addini(_name_dest(option), option.help, default=None)
    for flag in FLAGS:
        group.addoption(
            f"--agentbench-{flag.name}", dest=_name_dest(flag), action="store_true", default=None, help=flag.help
        )
        if flag.ini:
            parser.addini(_name_dest(flag), flag.help, type="bool", default=False)
    group.addoption(
        "--agentbench-trust",
        action="append",
        type=Path,
        metavar="PATH",
        help="trust this folder of another author in this session (repeatable)",
    )
    parser.addini("agentbench_trust", "trusted folders of other authors", type="paths", default=[])
    parser.addini("agentbench_configs", "the folder that holds profiles, suites and models.yaml", default=None)


def add_short_model(parser: pytest.Parser, args: list[str]) -> None:
    """Register `--model` last and only when used, so that a plugin or conftest that owns the name keeps it."""
    if any(arg == "--model" or arg.startswith("--model=") for arg in args):
        try:
            parser.getgroup("agentbench").addoption("--model", action="append", dest="agentbench_model", metavar="ID")
        except (ValueError, argparse.ArgumentError):  # the first from the same group, the second from another one
            return


def read_settings(config: pytest.Config) -> Settings:
    """Return the settings: command line over ini over default.

    Raises `pytest.UsageError` for an ini value that its option would refuse.
    """
    values: dict[str, Any] = {option.name.replace("-", "_"): _read_value(config, option) for option in OPTIONS}
    profile = values.pop("profile")
    values["run_profile"] = values["run_profile"] or profile
    values["evaluation_profile"] = values["evaluation_profile"] or profile
    if not values["predictions"]:  # which no model answers
        values.update(models=_read_models(config), agents=_read_agents(config), variants=_read_variants(config))
    values.update({flag.name.replace("-", "_"): _read_flag(config, flag) for flag in FLAGS})
    here = config.invocation_params.dir
    values.update(_read_roots(config))
    # Workers get the controller's decision on trust: only the controller looks at the folders.
    is_worker = hasattr(config, "workerinput")
    for path in (*values["trust"], *values["added_trust"]):
        if not is_worker and not path.is_dir():
            raise pytest.UsageError(f"--agentbench-trust: found {path}, expected a folder that exists")
    values["output"] = values["output"] or config.rootpath / "outputs"
    # Relative to the directory of the command, as a shell completes paths, and not to rootdir.
    for name in ("output", "json", "json_lines", "html", "chart", "compare", "policy"):
        values[name] = (here / values[name]).resolve() if values[name] else None
    values["predictions"] = _read_predictions(config)
    _refuse_picture(values["chart"])
    _refuse_short_key(values["store_key"])
    _refuse_shared_paths(values)
    _refuse_uneven_deal(config, values["shard"])
    _refuse_lone_comparison(config, values["compare"], values["shard"])
    for name in ("min_completion", "cassettes", "batch_wait", "grace"):
        if values[name] is None:
            del values[name]
    return Settings(**values)


def _refuse_picture(chart: Path | None) -> None:
    """Raise UsageError for a chart with the suffix of another format, before anything runs."""
    if chart is not None and (problem := find_chart_problem(chart.name)) is not None:
        raise pytest.UsageError(f"--agentbench-chart: {problem}")


def _refuse_short_key(variable: str | None) -> None:
    """Raise UsageError for a key that anybody could guess: it signs nothing."""
    if variable is not None and len(os.environ.get(variable, "")) < SHORTEST_KEY:
        raise pytest.UsageError(
            f"--agentbench-store-key: found the variable {variable}, which is not set, or holds fewer than "
            f"{SHORTEST_KEY} characters"
        )


def _refuse_shared_paths(values: Mapping[str, Any]) -> None:
    """Raise UsageError for an output that would replace another output, or the baseline of another path.

    A report may replace its baseline.
    """
    taken = {values["json"] or values["output"] / "report.json": "the report"}
    if values["compare"] is not None:
        taken.setdefault(values["compare"], "--agentbench-compare")
    for name in ("html", "chart", "json_lines"):
        path, option = values[name], f"--agentbench-{name.replace('_', '-')}"
        if path is not None and (other := taken.setdefault(path, option)) != option:
            raise pytest.UsageError(f"{option}: found {path}, which is {other} too")


def _refuse_uneven_deal(config: pytest.Config, shard: tuple[int, int] | None) -> None:
    """Raise UsageError where earlier sessions' results choose the tests: that is done before cases are dealt."""
    for option, names in {"--lf": ("lf",), "--sw": ("stepwise", "stepwise_skip", "stepwise_reset")}.items():
        if shard is not None and any(config.getoption(name, False) for name in names):
            part, parts = shard
            raise pytest.UsageError(
                f"--agentbench-shard: found {part}/{parts} together with {option}, with which each part would select "
                "other cases; run the part without it: stored runs cost nothing"
            )


def _refuse_lone_comparison(config: pytest.Config, compared: Path | None, shard: tuple[int, int] | None) -> None:
    """Raise UsageError for regressions without a baseline, and for a baseline of a part of a session."""
    if compared is None and (allowed := config.getoption("agentbench_max_regressions")) is not None:
        raise pytest.UsageError(
            f"--agentbench-max-regressions: found {allowed} without a report to compare with: name it with "
            "--agentbench-compare REPORT.json"
        )
    if compared is not None and shard is not None:
        raise pytest.UsageError(
            f"--agentbench-compare: found {compared.name} together with --agentbench-shard {shard[0]}/{shard[1]}, but "
            "a part is too small to compare: join the parts with agentbench merge, then agentbench compare both reports"
        )


def _read_predictions(config: pytest.Config) -> Path | None:
    path: Path | None = config.getoption("agentbench_predictions")
    if path is None:
        return None
    if named := config.getoption("agentbench_model"):
        raise pytest.UsageError(
            f"--agentbench-predictions: found {path} together with the model {named[0]!r}; predictions are scored as "
            "they are and no model is asked: give one of the two"
        )
    if named := config.getoption("agentbench_variant"):
        raise pytest.UsageError(
            f"--agentbench-predictions: found {path} together with --agentbench-variant {named[0]}; predictions are "
            "scored as they are, and no variant of a case is run: give one of the two"
        )
    resolved = (config.invocation_params.dir / path).resolve()
    if not resolved.exists():
        raise pytest.UsageError(f"--agentbench-predictions: found {path}, expected an existing file of predictions")
    return resolved


def _read_models(config: pytest.Config) -> tuple[str, ...]:
    named = config.getoption("agentbench_model") or config.getini("agentbench_model")
    for model in named:
        if named.count(model) > 1:
            raise pytest.UsageError(f"--agentbench-model: found {model!r} twice, expected each model once")
        if not model.strip() or re.search(r"[\[\]\x00-\x1f]|::", model):
            raise pytest.UsageError(f"--agentbench-model: found {model!r}, expected a name without brackets or '::'")
        if "," in model:
            raise pytest.UsageError(
                f"--agentbench-model: found {model!r}, expected one model; repeat the option for each"
            )
    return tuple(named)


def _read_roots(config: pytest.Config) -> dict[str, Any]:
    """Return the command line's options of configuration roots.

    `search_root` reads pytest files again, because pytest's own ini-file may be a guest's.
    """
    typed = (*map(str, config.invocation_params.args), *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")))
    is_named = any(text.startswith(("-c", "--config-file")) or "agentbench_configs=" in text for text in typed)
    configs = config.getini("agentbench_configs") if is_named else None
    here = config.invocation_params.dir
    options = tuple((here / path).resolve() for path in config.getoption("agentbench_trust") or ())
    is_typed = any(text.startswith("--agentbench-trust") for text in typed)
    trusts = any(text.startswith(("-c", "--config-file")) or "agentbench_trust=" in text for text in typed)
    by_file = tuple(path.resolve() for path in config.getini("agentbench_trust")) if trusts else ()
    return {
        "configs": (config.rootpath / configs).resolve() if configs else None,
        "names_root": is_named,
        "trust": (*(options if is_typed else ()), *by_file),
        "added_trust": () if is_typed else options,
    }


def _read_agents(config: pytest.Config) -> tuple[str, ...]:
    named = config.getoption("agentbench_agent") or config.getini("agentbench_agent")
    for agent in named:
        if named.count(agent) > 1:
            raise pytest.UsageError(f"--agentbench-agent: found {agent!r} twice, expected each agent once")
    return tuple(named)


def _read_variants(config: pytest.Config) -> tuple[VariantOption, ...]:
    typed, folder = config.getoption("agentbench_variant"), config.invocation_params.dir
    if not typed:
        typed, folder = config.getini("agentbench_variant"), config.rootpath
    options: list[VariantOption] = []
    for text in typed:
        name, equals, overrides = text.partition("=")
        options.append(VariantOption(name.strip(), overrides if equals else None, folder))
    names = [option.name for option in options]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise pytest.UsageError(f"--agentbench-variant: found {repeated[0]!r} twice, expected each variant once")
    return tuple(options)


def _read_value(config: pytest.Config, option: _Option) -> Any:
    given = config.getoption(_name_dest(option))
    text = config.getini(_name_dest(option)) if option.ini else None
    if given is not None or not text:
        return given
    try:
        if option.parse is Path:
            return config.rootpath / text
        return option.parse(text)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"ini option {_name_dest(option)}: {error}") from None


def _read_flag(config: pytest.Config, flag: _Option) -> bool:
    given = config.getoption(_name_dest(flag))
    if given is None and flag.ini:
        given = config.getini(_name_dest(flag))
    return bool(given)


def _name_dest(option: _Option) -> str:
    return "agentbench_" + option.name.replace("-", "_")
