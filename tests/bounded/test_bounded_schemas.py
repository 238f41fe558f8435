from __future__ import annotations

import socket
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator, SchemaError
from support.cpu_seconds import at_most

from pytest_agentbench.bounded.schemas import UncheckableError, bounded_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
VALIDATORS = (Draft7Validator, Draft201909Validator, Draft202012Validator)


def takes(schema, arguments):
    return bounded_schema(schema).accepts(arguments)


def refusal(schema, arguments=None):
    with pytest.raises(UncheckableError) as caught:
        takes(schema, arguments or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "arguments", "accepted"),
    [
        ({}, {"anything": [None]}, True),
        ({"type": "object", "required": ["city"]}, {}, False),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1.0}, True),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1.5}, False),
        ({"properties": {"n": {"type": "number"}}}, {"n": True}, False),
        ({"properties": {"n": {"type": "integer"}}}, {"n": False}, False),
        ({"properties": {"n": {"enum": [1]}}}, {"n": True}, False),
        ({"properties": {"n": {"enum": [1]}}}, {"n": 1.0}, True),
        ({"properties": {"mail": {"format": "email"}}}, {"mail": "no address"}, True),
        ({"properties": {"n": {"pattern": r"^\p{L}+$"}}}, {"n": "é"}, True),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 2}, False),
        ({"additionalProperties": False, "patternProperties": {"^x-": {}}}, {"x-a": 1}, True),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, False),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"x-a": 1}, False),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": {}}}]}, {"a": 1, "b": 1}, False),
        ({"properties": {"l": {"uniqueItems": True}}}, {"l": [1, True, "1", {"a": True}, {"a": 1}]}, True),
        ({"properties": {"l": {"uniqueItems": True}}}, {"l": [{"a": [1]}, {"a": [1.0]}]}, False),
        ({"$schema": DRAFT_4, "properties": {"n": {"minimum": 1, "exclusiveMinimum": True}}}, {"n": 1}, False),
        ({"$schema": DRAFT_7, "properties": {"l": {"items": [{"type": "string"}]}}}, {"l": [1]}, False),
        ({"$schema": DRAFT_2020, "properties": {"l": {"prefixItems": [{"type": "string"}]}}}, {"l": [1]}, False),
        ({"$schema": DRAFT_2019, "dependentRequired": {"a": ["b"]}}, {"a": 1}, False),
        ({"$schema": "https://example.com/of-our-own", "required": ["a"]}, {}, False),
        ({"properties": {"$schema": {"type": "integer"}}}, {"$schema": "text"}, False),
        ({"$defs": {"a": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a"}}}, {"a": 1}, False),
    ],
)
def test_arguments_are_judged_by_the_schemas_own_draft(schema, arguments, accepted):
    assert takes(schema, arguments) is accepted


@pytest.mark.parametrize("draft", [DRAFT_4, DRAFT_7, DRAFT_2020])
def test_multiples_are_decimal_below_a_reference_to_the_whole_schema_too(draft):
    schema = {"$schema": draft, "properties": {"price": {"multipleOf": 0.01}, "next": {"$ref": "#"}}}
    assert takes(schema, {"next": {"next": {"price": 0.29}}}) is True
    assert takes(schema, {"next": {"next": {"price": 0.295}}}) is False


@given(st.integers(-(10**12), 10**12), st.integers(0, 6), st.integers(1, 999))
def test_a_number_is_a_multiple_where_its_decimal_digits_are(count, places, step):
    factor = float(Decimal(step).scaleb(-places))
    multiple = float(Decimal(count * step).scaleb(-places))
    if Decimal(repr(multiple)) == Decimal(count * step).scaleb(-places):  # what a float can hold
        assert takes({"multipleOf": factor}, multiple)
        half = float(Decimal(2 * count * step + step).scaleb(-places) / 2)
        exact = Decimal(repr(half)) % Decimal(repr(factor)) == 0 if abs(half / factor) < 10**20 else True
        assert takes({"multipleOf": factor}, half) is exact


@pytest.mark.parametrize("number", [1e308, -1e308, 10**400], ids=["large", "negative", "no-float"])
def test_the_largest_numbers_are_multiples_of_small_ones(number):
    assert takes({"multipleOf": 0.01}, number)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_value_that_is_not_a_number_is_not_a_multiple(number):
    assert takes({"multipleOf": 0.01}, number) is False


# -- broken schemas


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strin"}, "is not valid"),
        ({"properties": {"a": {"minimum": "1"}}}, "is not of type 'number'"),
        ({"properties": {"a": {"items": [{"type": "string"}]}}}, "$.properties.a.items"),
        ({"$schema": DRAFT_2019, "anyOf": [{"required": "a"}]}, "$.anyOf[0].required: 'a' is not of type 'array'"),
        ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": 1}, "$.exclusiveMinimum"),
        ({"dependencies": {"a": [1]}}, "$.dependencies.a"),
        ([], "is not of type"),
        (None, "NoneType"),
        ({"$schema": [1]}, "unhashable"),
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, "$ref #/$defs/nowhere is not in it"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"pattern": "("}, None),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "is not supported"),
    ],
)
def test_a_broken_schema_is_an_error_and_no_failure_of_the_agent(schema, reason):
    if reason is None:
        assert "missing )" in refusal({"properties": {"a": schema}}, {"a": "text"})
    else:
        assert reason in refusal(schema)


def test_nothing_is_fetched_even_where_no_argument_needs_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        assert refusal({"properties": {"a": {"$ref": url}}}, {}) == f"$ref {url} is not in it, and nothing is fetched"
        with pytest.raises(BlockingIOError):
            server.accept()


PIECES = st.recursive(
    st.sampled_from([True, False, {}, {"type": "string"}, {"type": 1}, {"required": ["a"]}, {"required": "a"}, 1, None])
    | st.fixed_dictionaries({}, optional={"minimum": st.sampled_from([1, "1"]), "enum": st.sampled_from([[1], 1])}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "dependencies": st.dictionaries(st.sampled_from("ab"), inner | st.just(["a"]), max_size=1),
            "prefixItems": st.lists(inner, max_size=2),
            "items": inner,
            "not": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$defs": st.dictionaries(st.just("x"), inner, max_size=1),
            "unevaluatedItems": inner,
        },
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(PIECES, st.sampled_from(VALIDATORS))
def test_a_schema_is_invalid_exactly_if_the_library_rejects_it(schema, draft):
    try:
        draft.check_schema(schema)
        sound = True
    except SchemaError:
        sound = False
    declared = {"$schema": draft.META_SCHEMA["$id"], **schema} if isinstance(schema, dict) else schema
    if isinstance(schema, dict) or not sound:
        assert (bounded_schema(declared).problem is None) is sound


# -- bounds


RECURSIVE = {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, "additionalProperties": False}


def nested(depth, innermost):
    for _ in range(depth):
        innermost = {"next": innermost}
    return innermost


def test_a_recursive_schema_follows_arguments_as_deep_as_traces_keep_them():
    assert takes(RECURSIVE, nested(60, {"n": 1})) is True
    assert takes(RECURSIVE, nested(60, {"n": "1"})) is False


LAUGHS = {
    "$defs": {f"l{at}": {"allOf": [{"$ref": f"#/$defs/l{at + 1}"}] * 2} for at in range(30)} | {"l30": {}},
    "$ref": "#/$defs/l0",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (RECURSIVE, nested(5000, {})),
        ({"$ref": "#"}, {}),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
        ({"$schema": DRAFT_2019, "$recursiveAnchor": True, "$recursiveRef": "#"}, {}),
        (LAUGHS, {}),
        ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, {"a": "a" * 80 + "b"}),
        ({"patternProperties": {"^(a|aa)+$": {}}}, {"a" * 80 + "b": 1}),
        ({"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}, {"a" * 80 + "b": 1}),
        ({"additionalProperties": {"pattern": "^(a|aa)+$|b"}}, {str(at): "a" * 26 + "b" for at in range(10_000)}),
        ({"additionalProperties": {"type": "string"}}, {str(at): "" for at in range(200_000)}),
        ({"properties": {"a": {"items": {}}}}, {"a": [1] * 1_000_000}),
        ({"properties": {"a": {"items": {"allOf": [{}] * 3_000}}}}, {"a": [1] * 3_000}),
        ({"properties": {"a": {"unevaluatedItems": False, "items": {"type": "integer"}}}}, {"a": [1] * 40_000}),
        ({"patternProperties": {f"^{at}(x*)*$": {} for at in range(10_000)}}, {f"a{at}": 1 for at in range(1_000)}),
    ],
    ids=str.split(
        "deep-arguments itself itself-twice recursive-ref laughs pattern pattern-properties additional many long "
        "anything nothing-often unevaluated patterns"
    ),
)
def test_an_endless_validation_is_refused_soon_and_not_the_agents_fault(schema, arguments):
    with at_most(10):
        assert refusal(schema, arguments) == "checking this value takes too long, or nests too deep"


HUGE = ["((((a?){99}){99}){99}){99}", "(?:a?){9999999}b", "[]](?#[)(a?){ 99999999 ,}]", "(?<n>a){999}(?i:b{99999})"]


@pytest.mark.parametrize("pattern", HUGE)
def test_a_pattern_that_would_take_all_memory_is_not_compiled(pattern):
    assert "more than 20,000 parts" in refusal({"properties": {"a": {"pattern": pattern}}}, {"a": "aaa"})


@pytest.mark.parametrize("pattern", ["(?x)(a?)#[\n{99999999}]", "(?iV1)[]a]", "a" * 10_001])
def test_a_pattern_of_unknown_size_is_not_compiled(pattern):
    assert "a pattern has" in refusal({"properties": {"a": {"pattern": pattern}}}, {"a": "aaa"})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "123e4567-e89b-12d3-a456-426614174000"),
        (r"^(p\.|c\.|g\.|m\.|n\.)?[A-Z]?[0-9]+[A-Z*]?$", "p.V600E"),
        ("^.{1,50000}$", "a"),
        (r"^[\])({99}]+$", "({)]"),
        (r"^\p{Lu}{2}\d{2}(?:[ ]?[0-9A-Z]{4}){4}$", "DE44 5001 0517 5407 3249"),
    ],
)
def test_patterns_that_people_write_are_checked(pattern, text):
    schema = {"properties": {"a": {"pattern": pattern}}}
    assert (takes(schema, {"a": text}), takes(schema, {"a": f"\n{text}!"})) == (True, False)


@pytest.mark.slow
def test_a_schema_with_ten_thousand_properties_is_checked_and_a_longer_one_is_not():
    properties = {f"p{at}": {"type": "string", "maxLength": 9} for at in range(10_000)}
    assert takes({"properties": properties}, dict.fromkeys(properties, "x")) is True
    assert takes({"properties": properties}, {"p9999": 1}) is False
    assert "characters, more than 1,000,000" in refusal({"description": "x" * 1_000_000})


def test_hostile_arguments_of_one_agent_do_not_spoil_the_schema_for_others():
    refusal(RECURSIVE, nested(5000, {}))
    assert takes(RECURSIVE, {"n": 1}) is True


def test_a_schema_that_nests_too_deep_is_broken():
    schema = {}
    for _ in range(5000):
        schema = {"not": schema}
    assert refusal(schema) == "it nests too deep"
