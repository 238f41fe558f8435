"""The variables that the seed's run_benchmark.sh is configured by. An option that is given wins over its variable."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

from pytest_agentbench.errors import ConfigError

_YES, _NO = ("true", "1", "yes", "on"), ("", "false", "0", "no", "off")


def heed_environment(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Sets what no option has set. Raises ConfigError for values that say nothing."""
    args.target_models = args.target_models or _names(environ.get("TARGET_MODELS", ""))
    args.enable_query_selection = args.enable_query_selection or _flag(environ, "ENABLE_QUERY_SELECTION")
    if not args.model_cleaning:
        args.skip_cleaning = args.skip_cleaning or _flag(environ, "SKIP_CLEANING")
    args.max_workers = args.max_workers or _number(environ, "N_TOTAL_PROCESS")
    args.limit = args.limit or _number(environ, "LIMIT")
    if args.only is None:
        wanted = [name for name in ("zh", "en") if _flag(environ, f"ONLY_{name.upper()}")]
        if len(wanted) > 1:
            raise ConfigError("found both ONLY_ZH and ONLY_EN, expected at most one")
        args.only = wanted[0] if wanted else None


def _names(text: str) -> list[str]:
    """As a shell writes them: `a b`, `("a" "b")`, `a,b`."""
    return [name for name in re.split(r"[\s,\"'()]+", text) if name]


def _flag(environ: Mapping[str, str], name: str) -> bool:
    """`true`, or the option itself as the seed writes it: SKIP_CLEANING="--skip_cleaning"."""
    text = environ.get(name, "").strip()
    if text.lower() in _NO:
        return False
    if text.lower() in _YES or text.replace("-", "_").strip("_") == name.lower():
        return True
    raise ConfigError(f"{name}: found {text!r}, expected true or false")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """`2`, or with its option as the seed writes it: LIMIT="--limit 2"."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    number = re.fullmatch(rf"(?:--{name.lower().replace('_', '[-_]')}[ =])?\s*([1-9]\d{{0,8}})", text)
    if number is None:
        raise ConfigError(f"{name}: found {text!r}, expected a number of 1 or more")
    return int(number[1])
