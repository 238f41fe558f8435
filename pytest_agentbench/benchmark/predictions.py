"""Predictions as users hand them over, one for each item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Aligned:
    """The prediction of each item in order, None where there is none; `unmatched` are the ids that no item has."""

    given: list[Any]
    unmatched: list[str]


def align(
    predictions: Mapping[Any, Any] | Sequence[Any], ids: Sequence[str], dataset: str, places: Sequence[int], rows: int
) -> Aligned:
    """The predictions of the items with these `ids`, also by case id (`<dataset>.<id>`), else in order.

    A list answers the items, or all `rows` of the data, of which the items have the 0-based `places`. Raises
    ConfigError for anything else, and for a list of another length: it would compare the wrong texts.
    """
    if isinstance(predictions, Mapping):
        return _by_id(_with_text_ids(predictions), ids, dataset)
    if not isinstance(predictions, Sequence) or isinstance(predictions, (str, bytes, bytearray)):
        raise ConfigError(
            f"predictions: found {type(predictions).__name__}, expected a mapping {{id: prediction}}, or a list with "
            "one prediction for each item, in order"
        )
    if len(predictions) == len(ids):
        return Aligned(list(predictions), [])
    if len(predictions) == rows and len(places) == len(ids):
        return Aligned([predictions[place] for place in places], [])
    bad = f" ({rows - len(ids):,} more rows could not be loaded)" if rows > len(ids) else ""
    raise ConfigError(
        f"predictions: found a list of {len(predictions):,}, expected {len(ids):,}, one for each item in order{bad}; "
        "a mapping {id: prediction} may leave items out"
    )


def _by_id(predictions: Mapping[str, Any], ids: Sequence[str], dataset: str) -> Aligned:
    known = set(ids)
    others = [key for key in predictions if key not in known]
    if not others:
        return Aligned([predictions.get(each) for each in ids], [])
    # A case id is the full name, so it wins over the item's own.
    by_case = {name: key for key in others if (name := key.removeprefix(f"{dataset}.")) in known}
    keys = [by_case.get(each, each) for each in ids]
    used = set(keys)
    return Aligned([predictions.get(key) for key in keys], [key for key in predictions if key not in used])


def _with_text_ids(predictions: Mapping[Any, Any]) -> Mapping[str, Any]:
    """With whole numbers as texts, which is what ids are."""
    if all(type(key) is str for key in predictions):
        return predictions
    given: dict[str, Any] = {}
    for key, value in predictions.items():
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise ConfigError(f"predictions: found the id {key!r}, expected a text or a whole number")
        if (text := str(key)) in given:
            raise ConfigError(f"predictions: found the id {text!r} twice, as a text and as a number")
        given[text] = value
    return given
