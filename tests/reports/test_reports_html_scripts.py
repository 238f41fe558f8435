from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64decode, b64encode
from html import unescape
from importlib.resources import files

import pytest

from pytest_agentbench.extensions import load_extensions
from pytest_agentbench.reports.html.page import join_modules, live_page, page_data, page_text
from pytest_agentbench.reports.report import build_report

MODULES = {
    file.name.removesuffix(".js"): file.read_text(encoding="utf-8")
    for file in (files("pytest_agentbench.reports.html") / "static").iterdir()
    if file.name.endswith(".js")
}
SECTIONS = {
    f"section_{name}": script
    for name, section in load_extensions("report_section").items()
    if (script := section.page_script()) is not None
}


def test_every_module_is_in_the_page_once_and_after_what_it_imports():
    places = {
        name: [match.start() for match in re.finditer(rf"^const module_{name} =", join_modules(), re.MULTILINE)]
        for name in MODULES
    }
    assert {name: len(found) for name, found in places.items()} == dict.fromkeys(MODULES, 1)
    for name, text in MODULES.items():
        for imported in re.findall(r'from "\./(\w+)\.js"', text):
            assert places[imported] < places[name], f"{name} imports {imported}"
    assert not re.search(r"^(import|export) ", join_modules(), re.MULTILINE)


def test_modules_of_packs_come_before_the_page_is_shown():
    assert join_modules().index("const module_section_research =") < join_modules().index("const module_main =")


@pytest.mark.parametrize("name", [*MODULES, *SECTIONS])
def test_no_module_reads_text_as_markup_or_code(name):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.srcdoc",
        (MODULES | SECTIONS)[name],
    )


@pytest.mark.slow
def test_the_policy_lets_in_the_pages_own_style_and_scripts_only():
    text = page_text(page_data(build_report([], {})))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = {rule.split()[0]: rule.split()[1:] for rule in unescape(policy).split("; ")}
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (starter,) = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    (packed,) = re.findall(r'<script type="text/plain" id="script">(.*?)</script>', text)
    script = gzip.decompress(b64decode(packed)).decode()
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["style-src"] == [digest(style)]
    assert rules["script-src"] == [digest(starter), digest(script)]
    assert "connect-src" not in rules
    assert "connect-src 'self'" in unescape(live_page())


def digest(text):
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_no_module_has_a_text_of_several_lines_whose_indentation_the_page_would_lose():
    for name, text in MODULES.items():
        lines = [line.replace("(```|", "") for line in text.splitlines()]  # a regular expression of longtext.js
        assert [line for line in lines if line.count("`") % 2] == [], name


def test_the_shell_of_the_page_stays_small():
    assert len(page_text(page_data(build_report([], {})))) < 150_000
