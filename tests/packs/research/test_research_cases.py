from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.research_project import PROMPTS, ResearchProject, criteria, query, report

from pytest_agentbench.bounded.json_files import Item, read_items
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import find_root
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.cases import (
    REPORTS,
    open_reports,
    read_all_reports,
    read_reports,
    report_case,
)
from pytest_agentbench.packs.research.rows import read_material
from pytest_agentbench.sources.case_source import BadRow
from pytest_agentbench.sources.discovery import find_cases, find_source, index_cases
from pytest_agentbench.sources.rows import DATASETS


@pytest.fixture
def project(tmp_path):
    return ResearchProject(tmp_path)


def opened(project, **fields):
    return open_reports(project.reports(**fields), ConfigRoot(project.folder))


def test_a_report_is_joined_with_its_query_criteria_and_reference(project):
    reports = opened(project)
    item, _ = read_reports(reports, reports.stored[0])
    assert (item.case_id, item.language, item.topic) == ("drb.1", "en", "Business")
    assert (item.domain, item.complexity_level) == ("finance", 3)
    assert item.tags == ("Business", "en", "finance", "level-3")
    case = report_case(reports, item)
    assert case.messages[0].content == PROMPTS[1]
    material = read_material(case.research)
    assert material.article.startswith("Chips cost more")
    assert material.criteria.dimension_weight["comprehensiveness"] == 0.4
    assert material.reference == "Prices are higher."
    assert material.metrics.automation_level == 0.5


def test_fields_of_a_report_take_precedence_over_its_query(project):
    project.rows("raw/gpt.jsonl", report(1, language="zh", domain="finance", complexity_level=5), report(2))
    item, _ = read_reports(opened(project), project.folder / "raw/gpt.jsonl")
    assert (item.language, item.domain, item.complexity_level) == ("zh", "finance", 5)


def test_without_stored_reports_each_query_is_a_case(project):
    project.rows("query.jsonl", query(2), query(1))
    reports = opened(project, reports=None)
    assert reports.stored == ()
    items = list(read_reports(reports, None))
    assert [item.row_id for item in items] == [2, 1]
    case = report_case(reports, items[0])
    assert (case.research.article, case.runner.type) == (None, "llm_probe")
    assert read_material(case.research).article is None


def test_the_name_is_the_folder_or_the_name_of_the_file(project, tmp_path):
    assert opened(project, name=None).name == tmp_path.name
    named = project.write("deep.reports.yaml", (tmp_path / "reports.yaml").read_text(encoding="utf-8"))
    assert open_reports(named, ConfigRoot(tmp_path)).name == "deep"


def test_a_list_of_rows_in_json_is_read_like_lines(project):
    (project.folder / "raw" / "gpt.jsonl").unlink()
    project.write("raw/gpt.json", json.dumps([report(1), report(2)], ensure_ascii=False, indent=1))
    reports = opened(project, reports=["raw/*.json"])
    items = list(read_reports(reports, reports.stored[0]))
    assert [read_material(report_case(reports, item).research).article[:5] for item in items] == ["Chips"] * 2


def test_a_case_is_listed_once_for_any_number_of_models(project):
    project.rows("raw/claude.jsonl", report(1), report(2), '{"id": 3}')
    found = list(read_all_reports(opened(project)))
    assert [each.case_id for each in found if not isinstance(each, BadRow)] == ["drb.1", "drb.2"]
    assert [(each.path.name, each.line) for each in found if isinstance(each, BadRow)] == [("claude.jsonl", 3)]


def test_files_that_a_reports_file_names_are_no_datasets(project, tmp_path):
    path = project.rows("raw/gpt.jsonl", report(1, question="A question?"), report(2))
    assert find_source(path, tmp_path) is None
    other = project.rows("other.jsonl", {"question": "A question?"})
    assert find_source(other, tmp_path) is DATASETS
    assert find_source(tmp_path / "reports.yaml") is REPORTS
    assert list(find_cases(tmp_path)) == [other, tmp_path / "reports.yaml"]


def test_suites_find_reports_by_id_and_tag(project, tmp_path):
    root = find_root(tmp_path / "reports.yaml", tmp_path, None)
    assert {(case.case_id, "zh" in case.tags) for case in index_cases(root)} == {("drb.1", False), ("drb.2", True)}


@pytest.mark.parametrize("change", ["Chips cost LESS", "{"])
def test_a_row_that_has_changed_is_not_scored(project, change):
    reports = opened(project)
    item, _ = read_reports(reports, reports.stored[0])
    path = reports.stored[0]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("Chips cost more", change, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"gpt\.jsonl:1:1: .*run again"):
        read_material(report_case(reports, item).research)


def test_invalid_configuration_is_an_error_when_the_file_is_opened(project):
    project.json("config.json", {"poet_weights": {"efficiency_value": 2}})
    with pytest.raises(ConfigError, match=r"config\.json:.*expected 1"):
        opened(project, config="config.json")
    (project.folder / "annotation" / "domain_expert_data.json").unlink()
    with pytest.raises(ConfigError, match=r"domain_expert_data\.json: is missing"):
        opened(project, config=None)


def test_the_knowledge_base_may_not_leave_the_root(project):
    project.json("config.json", {"knowledge_base_path": "../../elsewhere.jsonl"})
    with pytest.raises(ConfigError, match=r"config\.json:1:1: knowledge_base_path: .*which leaves"):
        opened(project, config="config.json")


def test_an_empty_file_is_a_bad_row(project):
    project.rows("raw/gpt.jsonl")
    reports = opened(project, queries=None)
    [bad] = read_reports(reports, reports.stored[0])
    assert "gpt.jsonl:1:1: found no report" in bad.message


def test_criteria_of_others_are_no_error(project):
    project.rows("criteria.jsonl", criteria(1), criteria(2), criteria(1, id=9, prompt="Another question?"))
    assert not any(isinstance(each, BadRow) for each in read_all_reports(opened(project)))


@pytest.mark.slow
@given(
    values=st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3), min_size=1, max_size=5),
    blank=st.sampled_from(["", "  ", "\t"]),
    bom=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_the_offset_of_an_item_points_at_its_bytes(tmp_path_factory, values, blank, bom, indent):
    lines = "".join(f"{blank}{json.dumps(value, ensure_ascii=False)}\r\n\n" for value in values)
    for text in (lines, json.dumps(values, ensure_ascii=False, indent=indent)):
        path = tmp_path_factory.mktemp("values") / "rows.jsonl"
        path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode("utf-8", "surrogatepass"))
        content = path.read_bytes()
        for item in read_items(path):
            if isinstance(item, Item):
                assert content[item.offset : item.offset + len(item.raw)] == item.raw
