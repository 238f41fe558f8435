"""Texts of promptfoo with `{{ name }}` in them. Nunjucks itself is not run: only values of variables are put in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_VALUE = re.compile(r"\{\{\s*([A-Za-z_]\w*(?:\.\w+|\[\d+\])*)\s*\}\}")
_PART = re.compile(r"\w+")
_CODE = re.compile(r"\{\{.{0,60}?\}\}|\{%.{0,60}?%\}|\{#|\{\{|\{%", re.DOTALL)


class TemplateError(Exception):
    """Why a text cannot be made."""


def filled_in(text: str, variables: Mapping[str, Any]) -> str:
    """The text with the values of its variables; objects and lists as JSON.

    :raises TemplateError: a variable is missing, or the text needs filters or statements.
    """
    pieces = _VALUE.split(text)
    code = next((found[0] for piece in pieces[::2] if (found := _CODE.search(piece))), None)
    if code is not None:
        raise TemplateError(f"found {code!r}; only {{{{ name }}}} is put in, filters and statements are not run")
    pieces[1::2] = [_text(name, variables) for name in pieces[1::2]]
    return "".join(pieces)


def resolved(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables, those put in whose texts name others. Raises TemplateError where that is not enough."""
    return {name: filled_in(value, variables) if isinstance(value, str) else value for name, value in variables.items()}


def _text(name: str, variables: Mapping[str, Any]) -> str:
    value: Any = variables
    for part in _PART.findall(name):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise TemplateError(f"found {{{{ {name} }}}}, but no variable of that name")
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _CODE.search(text):
        raise TemplateError(f"the value of {name!r} is a template itself; write it out")
    return text
