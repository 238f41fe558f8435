"""The page's own modules as one script: static/*.js import each other, a page cannot import files beside it."""

from __future__ import annotations

import re
from functools import cache

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


@cache
def joined(entry: str = "main") -> str:
    """The module and all that it imports, each in a scope of its own, after what it imports itself.

    Modules import names only, as they are, on one line each. Raises ValueError where modules import in a circle.
    """
    texts: dict[str, str] = {}
    _add(entry, texts, ())
    return "".join(texts.values())


@cache
def static(name: str) -> str:
    """A file of the page."""
    from importlib.resources import files

    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _add(name: str, texts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join((*above, name))}")
    if name in texts:
        return
    source = static(f"{name}.js")
    for _, imported in _IMPORT.findall(source):
        _add(imported, texts, (*above, name))
    exports = ", ".join(name for _, name in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = module_\2;", source))
    texts[name] = f"const module_{name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"
