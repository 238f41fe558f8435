"""Texts with `{{ field }}` in them: names of fields only, no expressions and no code."""

from __future__ import annotations

import re

_NAME = re.compile(r"[\w$@-]+(?:[. ][\w$@-]+)*")


def parse_template(text: str) -> tuple[str, ...]:
    """Literal texts, at even places, and the dotted names of fields, at odd ones.

    :raises ValueError: something else than a name stands in braces.
    """
    literal, *others = text.split("{{")
    parts = [literal]
    for other in others:
        inside, end, literal = other.partition("}}")
        if not end:
            raise ValueError("found {{ without }}, expected the name of a field between them")
        name = inside.strip()
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"found {{{{{inside[:40]}}}}}, expected the name of a field, such as {{{{ question }}}}; "
                "there are no expressions"
            )
        parts += [name, literal]
    return tuple(parts)


def only_field(value: object) -> str | None:
    """The field that a value names and nothing else: `answer` of "{{ answer }}". None for any other value."""
    if not isinstance(value, str):
        return None
    try:
        before, *name, after = parse_template(value.strip())
    except ValueError:
        return None
    return name[0] if len(name) == 1 and not before and not after else None
