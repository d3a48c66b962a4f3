"""Arguments that mean one JSON value have one canonical form."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.gateway.arguments import read_object, to_canonical

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.booleans(), st.text(" \t\n\r", max_size=2))
def test_a_value_written_in_any_way_is_the_same(value, is_ascii, indent, sorts, space) -> None:
    written = space + json.dumps(value, ensure_ascii=is_ascii, indent=indent, sort_keys=sorts) + space
    assert to_canonical(written) == to_canonical(json.dumps(value, separators=(",", ":")))


def mark(value):
    """The value so that two are equal in Python exactly if they are in JSON: True is not 1 there."""
    if isinstance(value, bool) or (isinstance(value, float) and abs(value) >= 2**53):
        return type(value).__name__, value
    if isinstance(value, list):
        return [mark(item) for item in value]
    return {key: mark(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(VALUES, VALUES)
def test_other_values_have_other_forms(one, other) -> None:
    assert (to_canonical(json.dumps(one)) == to_canonical(json.dumps(other))) == (mark(one) == mark(other))


@given(st.text())
def test_any_text_has_a_form(text) -> None:
    assert to_canonical(text).isascii()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{ "a" :   17,"b" : 17}', '{"b":17,"a":17}'),
        ('{"note": "caf\\u00e9"}', '{"note":"café"}'),
        ('{"x": 1e3}', '{"x": 1000.0}'),
        ('{"x": 25.0}', '{"x":25}'),
        ('{"x": -0.0}', '{"x":0}'),
        ('{"x": 1, "x": 2}', '{"x":2}'),
        ("", "{}"),
        ("  ", "{}"),
        ('{"s": "\\/"}', '{"s":"/"}'),
        ('{"s": "\\ud83d\\ude00"}', '{"s":"😀"}'),
    ],
)
def test_what_clients_do_to_arguments_is_no_change(one: str, other: str) -> None:
    assert to_canonical(one) == to_canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"x": 9007199254740993}', '{"x":9007199254740992}'),  # rounded by a client with 64-bit floats
        ('{"x": 1}', '{"x": "1"}'),
        ('{"x": 1}', '{"x": true}'),
        ('{"s": "\u00e9"}', '{"s": "e\u0301"}'),  # composed and decomposed
        ('{"s": "a "}', '{"s": "a"}'),
        ("[1, 2]", "[2, 1]"),
        ("{", '"{"'),
        ('{"x": NaN}', '{"x": null}'),
    ],
)
def test_another_value_is_a_change(one: str, other: str) -> None:
    assert to_canonical(one) != to_canonical(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ("[" * 100_000, None),
        ('{"a": ' + "1" * 5000 + "}", None),
    ],
)
def test_only_an_object_is_handed_out(text: str, expected: object) -> None:
    assert read_object(text) == expected
