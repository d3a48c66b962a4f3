"""Calls against allowed values: each rule of BFCL's published checker by a call that follows it and one that does not.

The right values are worked out from the rules in the module's docstring, one rule a line.
"""

from typing import Any

import pytest

from turnwise.rewards.allowed_calls import AllowedCall, count_fulfilled

PROPERTIES: dict[str, Any] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "ratio": {"type": "float"},
    "wet": {"type": "boolean"},
    "codes": {"type": "array", "items": {"type": "string"}},
    "sizes": {"type": "array", "items": {"type": "float"}},
    "rows": {"type": "array", "items": {"type": "dict"}},
    "where": {"type": "dict"},
    "note": {"type": "any"},
    "free": {"type": "array"},
}


def is_allowed(parameter: str, allowed: list[Any], value: Any) -> bool:
    """Whether a call with this one argument is right."""
    parameters = {"properties": PROPERTIES, "required": []}
    return AllowedCall(name="f", allowed={parameter: allowed}, parameters=parameters).is_fulfilled(
        "f", {parameter: value}
    )


@pytest.mark.parametrize(
    ("parameter", "allowed", "right", "wrong"),
    [
        # Text: case, blanks and , . / - _ * ^ do not count, ' is "; other marks do.
        ("city", ["New York, N.Y."], ["new york ny", "NEW-YORK/NY"], ["New York", "New York: NY", 3, None]),
        ("city", ["it's"], ['it"s'], ["its"]),
        ("city", ["Bern", ""], ["bern", ""], ["b"]),
        # An allowed value of another type than the parameter's is compared as it stands.
        ("city", [7], [7], ["7", 8]),
        ("city", [None, "Bern"], [None, "Bern"], ["bern"]),
        ("city", ["Bern", None], ["bern"], [None]),
        # 5.0 is no integer, true is no number, 5 is a float.
        ("days", [5, 6], [5, 6], [7, 5.0, True, "5"]),
        ("days", [1], [1], [True]),
        ("ratio", [2.0], [2, 2.0], [2.5, "2.0", 10**400]),
        ("ratio", [2], [2, 2.0], [3]),
        ("wet", [True], [True], [1, "true", False]),
        # Lists: order and number count, items are texts as above; "" also allows [].
        ("codes", [["A-1", "b"]], [["a1", "B"]], [["b", "a1"], ["a1"], ["a1", "b", "b"], "a1", [1, "b"]]),
        ("codes", [["a"], ["b", "c"], ""], [["a"], ["b", "c"], []], [["b"]]),
        ("sizes", [[1.0, 2.5]], [[1.0, 2.5]], [[1, 2.5], [2.5, 1.0], [True, 2.5]]),
        ("sizes", [[1, 2]], [[1, 2], [1.0, 2.0]], [[1, 3]]),
        ("free", [[1, "A b"]], [[1, "ab"], [1.0, "ab"]], [[1]]),
        # Objects: one allowed object, its keys, each with one of its values; keys with "" may be left out.
        ("where", [{"at": ["Bern"], "up": [1, ""]}], [{"at": "bern"}, {"at": "Bern", "up": 1}], [{"up": 1}, {}]),
        ("where", [{"at": ["Bern"]}, {"at": ["Chur"]}], [{"at": "chur"}], [{"at": "Bern", "up": 1}, [], "Bern"]),
        ("rows", [[{"x": [1]}, {"x": [2]}]], [[{"x": 1}, {"x": 2}]], [[{"x": 2}, {"x": 1}], [{"x": 1}], [1, 2]]),
        # "any" is a text unless the allowed values are something else.
        ("note", ["Hello"], ["hello"], [1]),
        ("note", [3], [3], [4, "3"]),
    ],
)
def test_a_value_is_allowed_by_the_published_rules(
    parameter: str, allowed: list[Any], right: list[Any], wrong: list[Any]
) -> None:
    assert [value for value in right if not is_allowed(parameter, allowed, value)] == []
    assert [value for value in wrong if is_allowed(parameter, allowed, value)] == []


def make_wanted(**allowed: list[Any]) -> AllowedCall:
    return AllowedCall(name="f", allowed=allowed, parameters={"properties": PROPERTIES, "required": ["city"]})


def test_arguments_are_there_or_may_be_left_out_and_no_others_are() -> None:
    wanted = make_wanted(city=["Bern"], days=[3, ""], wet=[True])
    assert wanted.is_fulfilled("f", {"city": "Bern", "wet": True})
    assert wanted.is_fulfilled("f", {"city": "Bern", "wet": True, "days": 3})
    for arguments in (
        {"city": "Bern"},  # wet has no ""
        {"wet": True},  # city is required
        {"city": "Bern", "wet": True, "ratio": 0.5},  # of the schema, but not wanted
        {"city": "Bern", "wet": True, "zone": 1},  # not of the schema
    ):
        assert not wanted.is_fulfilled("f", arguments)
    assert not wanted.is_fulfilled("g", {"city": "Bern", "wet": True})
    # A required argument may not be left out where its values say so, but may be the empty text.
    lenient = make_wanted(city=["Bern", ""])
    assert (lenient.is_fulfilled("f", {}), lenient.is_fulfilled("f", {"city": ""})) == (False, True)


def test_an_example_is_right_or_there_is_none() -> None:
    assert make_wanted(city=["", "Bern"], days=["", 3], where=[{"at": ["x", "y"], "up": [""]}]).example() == {
        "city": "Bern",
        "where": {"at": "x"},
    }
    assert make_wanted(city=[""]).example() == {"city": ""}
    assert make_wanted(city=["Bern"], sizes=[[1, 2.5], [1.5]]).example() == {"city": "Bern", "sizes": [1, 2.5]}
    assert make_wanted(city=["Bern"], zone=[1]).example() is None
    assert make_wanted(days=[3]).example() is None


def test_calls_are_paired_one_to_one_in_any_order() -> None:
    either, bern = make_wanted(city=["Bern", "Chur"]), make_wanted(city=["Bern"])
    to_bern, to_chur = ("f", {"city": "Bern"}), ("f", {"city": "Chur"})
    assert count_fulfilled([either, bern], [to_chur, to_bern]) == 2
    # The first wanted call could take the first made one, which leaves none for the second; the pairing exists.
    assert count_fulfilled([either, bern], [to_bern, to_chur]) == 2
    assert count_fulfilled([either, bern], [to_chur, to_chur]) == 1
    assert count_fulfilled([bern, bern], [to_bern]) == 1
    assert count_fulfilled([], [to_bern]) == 0
