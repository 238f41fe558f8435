"""Reference pages of the public names: signatures and docstrings, a page for each kind of seam."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc

import griffe
from public_api import Public, public_names, show

TOPICS = {
    "pack": "Packs",
    "seams": "Declarations in packs",
    "records": "Records: cases, runs and verdicts",
    "sources": "Case sources",
    "config": "Configuration files and sections",
    "runners": "Runners",
    "models": "Models",
    "tools": "Tools",
    "checks": "Checks",
    "metrics": "Metrics",
    "judging": "Judges",
    "engine": "Graders",
    "workspaces": "Workspaces and sandboxes",
    "reports": "Reports",
    "cli": "Commands",
    "benchmark": "Datasets in Python",
    "public": "Runs in tests",
    "errors": "Errors",
    "testing": "Kits",
}
"""The titles of the pages, by the room that defines the names."""
_LONGEST_LINE = 100


def api_pages(documented: Mapping[str, str]) -> dict[str, str]:
    """Every page of the public names by its file name, and `api.md`, which lists them.

    `documented` maps models to the pages that explain their fields.
    """
    names = public_names()
    pages = {"api.md": "\n".join(_index(names))}
    for room, title in TOPICS.items():
        lines = [f"# {title}", "", "Names of `pytest_agentbench`. [All names](api.md).", ""]
        for public in names:
            if public.room == room:
                lines += _entry(public, documented)
        pages[_page(room)] = "\n".join(lines)
    return pages


def _page(room: str) -> str:
    return f"api-{room}.md"


def _index(names: tuple[Public, ...]) -> Iterator[str]:
    examples = "Examples: [extending](../extending.md), [a plugin of your own](../plugin.md)."
    yield from ("# Public names", "", f"Import each from `pytest_agentbench`. {examples}", "")
    for room, title in TOPICS.items():
        yield from (f"## {title}", "", "| name | |", "|---|---|")
        for public in names:
            if public.room == room:
                summary = _doc(public.definition).partition("\n\n")[0]
                yield f"| [{public.name}]({_page(room)}#{public.name.lower()}) | {_cell(summary)} |"
        yield ""


def _entry(public: Public, documented: Mapping[str, str]) -> Iterator[str]:
    definition = public.definition
    yield from (f"## {public.name}", "", "```python", _declaration(public), "```", "", *_prose(_doc(definition)), "")
    if page := documented.get(public.name):
        yield from (f"Its fields: [{page.partition('#')[0]}]({page}).", "")
        return
    members = list(public.members())
    yield from _attributes([each for each in members if isinstance(each, griffe.Attribute)])
    for member in members:
        if isinstance(member, griffe.Function):
            yield from ("```python", f"{_labels(member)}{_signature(member)}", "```", "", *_prose(_doc(member)), "")


def _declaration(public: Public) -> str:
    definition = public.definition
    if isinstance(definition, griffe.Function):
        return _labels(definition) + _signature(definition)
    if isinstance(definition, griffe.Class):
        bases = ", ".join(show(base).text for base in definition.bases)
        decorator = "@dataclass\n" if "dataclass" in definition.labels else ""
        return f"{decorator}class {definition.name}({bases})" if bases else f"{decorator}class {definition.name}"
    assert isinstance(definition, griffe.Attribute)
    value = re.sub(r"'([A-Z]\w+)'", r"\1", show(definition.value).text)  # names that only type checkers know
    return f"{definition.name} = {value}"


def _labels(function: griffe.Function) -> str:
    shown = ("classmethod", "staticmethod", "contextmanager", "asynccontextmanager")
    names = [str(each.value).rpartition(".")[2] for each in function.decorators]
    decorators = "".join(f"@{name}\n" for name in names if name in shown)
    return f"{decorators}async " if "async" in function.labels else decorators


def _signature(function: griffe.Function) -> str:
    parameters = list(_parameters(function))
    result = show(function.returns).text
    end = f") -> {result}" if result else ")"
    line = f"def {function.name}({', '.join(parameters)}{end}"
    if len(line) <= _LONGEST_LINE:
        return line
    return "\n".join((f"def {function.name}(", *(f"    {each}," for each in parameters), end))


def _parameters(function: griffe.Function) -> Iterator[str]:
    kinds = griffe.ParameterKind
    parameters = [each for each in function.parameters if not each.name.startswith("_")]
    keyword_only = positional_only = False
    for parameter in parameters:
        if positional_only and parameter.kind is not kinds.positional_only:
            yield "/"
        positional_only = parameter.kind is kinds.positional_only
        if parameter.kind is kinds.keyword_only and not keyword_only:
            keyword_only = True
            yield "*"
        star = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(parameter.kind, "")
        keyword_only = keyword_only or star == "*"
        annotation = show(parameter.annotation).text
        text = f"{star}{parameter.name}" + (f": {annotation}" if annotation else "")
        if parameter.default is not None and not star:
            text += f" = {parameter.default}" if annotation else f"={parameter.default}"
        yield text


def _attributes(attributes: list[griffe.Attribute]) -> Iterator[str]:
    rows = [each for each in attributes if each.annotation is not None]
    if rows:
        yield from ("| attribute | type | default | |", "|---|---|---|---|")
        for each in rows:
            default = "" if each.value is None or "property" in each.labels else _code(_default(str(each.value)))
            yield f"| `{each.name}` | {_code(show(each.annotation).text)} | {default} | {_cell(_doc(each))} |"
        yield ""


def _default(value: str) -> str:
    """The value of a field without the function around it; empty if a function makes it, or if it is private."""
    if found := re.fullmatch(r"(?:Field|field)\((?:default=)?(?P<value>[^=]*?)(?:, .*)?\)", value, re.DOTALL):
        return found["value"]
    return "" if re.match(r"(?:Field|field)\(|lambda|_", value) else value


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text else ""


def _doc(definition: griffe.Object) -> str:
    return "" if definition.docstring is None else cleandoc(definition.docstring.value)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _prose(text: str) -> Iterator[str]:
    yield _escape(text)


def _escape(text: str) -> str:
    """The text with `<` and `{{` outside of code, where Markdown and templates would read them."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [part.replace("<", "&lt;").replace("{{", "{&#123;") for part in parts[::2]]
    return "".join(parts)
