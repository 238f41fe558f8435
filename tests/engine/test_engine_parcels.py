"""Reports between xdist's processes: what goes in comes out, by way of execnet's own bytes."""

from __future__ import annotations

import execnet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_agentbench.distributed.shares import ReportPacker

PLAIN = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.floats(allow_nan=False) | st.text()
ODD = st.binary() | st.tuples(PLAIN, PLAIN) | st.lists(PLAIN, max_size=2)
PROPERTIES = st.lists(st.tuples(st.text(), PLAIN | ODD), max_size=4)
ROWS = st.none() | st.dictionaries(st.text(), PLAIN | st.lists(PLAIN, max_size=3), max_size=4)


def hooks(config, *plugins):
    manager = pytest.PytestPluginManager()
    for plugin in (config.pluginmanager.get_plugin("reports"), *plugins):
        manager.register(plugin)
    return manager.hook


def report(properties, row):
    made = pytest.TestReport("a.py::b", ("a.py", 1, "b"), {"b": 1}, "passed", None, "call", user_properties=properties)
    if row is not None:
        made.agentbench_row = row
    return made


def written(config, made):
    return hooks(config, ReportPacker()).pytest_report_to_serializable(config=None, report=made)


@pytest.mark.slow
@given(PROPERTIES, ROWS)
def test_a_report_arrives_as_it_was_sent(pytestconfig, properties, row):
    data = execnet.loads(execnet.dumps(written(pytestconfig, report(properties, row))))
    got = hooks(pytestconfig, ReportPacker()).pytest_report_from_serializable(config=None, data=data)
    assert got.user_properties == properties
    assert [type(value) for _, value in got.user_properties] == [type(value) for _, value in properties]
    assert getattr(got, "agentbench_row", None) == row
    assert vars(got).keys() - {"$report_type"} == vars(report(properties, row)).keys()  # pytest leaves that one in


def test_many_values_are_sent_as_one_parcel(pytestconfig):
    data = written(
        pytestconfig,
        report([("agentbench.case_id", "a"), ("mine", 1)], {"case_id": "a", "checks": [{"message": None}]}),
    )
    assert isinstance(data["agentbench_parcel"], str)
    assert not {"agentbench_row", "user_properties"} & data.keys()


def test_reports_that_hold_neither_are_left_alone(pytestconfig):
    made = report([], None)
    assert "agentbench_parcel" not in written(pytestconfig, made)
    assert written(pytestconfig, made) == hooks(pytestconfig).pytest_report_to_serializable(config=None, report=made)
