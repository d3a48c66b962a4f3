"""Copies are exact, and malformed messages do no harm."""

import contextlib
import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise_sandbox.grading import channel
from turnwise_sandbox.grading.guest import worker
from turnwise_sandbox.grading.guest.rpc import get_plain
from turnwise_sandbox.grading.guest.wire import Decoder, Encoder, WireError, from_frame, to_frame


def refuse(value: Any, _: Any) -> Any:
    raise WireError(f"reference to {value!r}")


def travel(value: Any) -> Any:
    message = from_frame(to_frame({"r": Encoder(refuse).encode(value)})[4:])
    return Decoder(refuse).decode(message["r"])


def unfold(moment: Any) -> Any:
    return moment.replace(fold=0)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False) | st.dates() | st.datetimes().map(unfold) | st.times().map(unfold)
    | st.timedeltas()
    | st.decimals(allow_nan=False) | st.fractions() | st.uuids()
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(SCALARS)
        | st.frozensets(SCALARS)
    ),
    max_leaves=15,
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_what_arrives_is_what_was_sent(value: Any) -> None:
    arrived = travel(value)
    assert arrived == value
    assert repr(arrived) == repr(value) or isinstance(
        value, set | frozenset | list | tuple | dict
    )  # -0.0, True against 1
    assert type(arrived) is type(value)


def test_values_that_equality_does_not_tell_apart() -> None:
    assert math.isnan(travel(float("nan")))
    assert math.copysign(1, travel(-0.0)) == -1
    assert [type(x) for x in travel([1, 1.0, True, "\ud800"])] == [int, float, bool, str]
    assert (
        travel([date(2020, 1, 1), datetime(2020, 1, 1), timedelta(1), Decimal("1.0"), Fraction(1, 2)])[3]
        .as_tuple()
        .exponent
        == -1
    )
    assert travel(int) is int
    assert travel([ValueError, ..., NotImplemented, slice(1, None), range(1, 9, 2)]) == [
        ValueError,
        ...,
        NotImplemented,
        slice(1, None),
        range(1, 9, 2),
    ]


def test_aliases_and_cycles_keep_their_shape() -> None:
    row = [1]
    a, b = travel([row, row])
    assert a is b
    loop: list[Any] = []
    loop.append({"loop": loop})
    arrived = travel(loop)
    assert arrived[0]["loop"] is arrived


def test_arrays_keep_type_and_shape() -> None:
    for array in (
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.zeros((0, 4)),
        np.array(3.5),
        np.array(["a", "bc"]),
        np.array([1j]),
    ):
        arrived = travel(array)
        assert arrived.dtype == array.dtype
        assert arrived.shape == array.shape
        assert np.array_equal(arrived, array)
        assert arrived.flags.writeable
    assert type(travel(np.float32(1.5))) is np.float32
    with pytest.raises(WireError, match="reference"):
        travel(np.array([object()]))


def test_subclasses_are_not_copied_but_have_plain_content() -> None:
    class Liar(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    with pytest.raises(WireError, match="reference"):
        travel(Liar(3))
    assert type(get_plain(Liar(3))) is int
    assert get_plain(Liar(3)) == 3

    class Backwards(list[int]):
        def __iter__(self) -> Any:
            return iter([9])

    assert get_plain(Backwards([1, 2])) == [1, 2]
    with pytest.raises(TypeError, match="no plain content"):
        get_plain([1])


def test_deep_and_large_values_are_refused_by_name() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(WireError, match="deep"):
        travel(deep)
    with pytest.raises(WireError, match="too large"):
        travel("a" * (17 << 20))


@pytest.mark.parametrize(
    "data",
    [
        [], [1], {"a": 1}, ["zz"], ["r", 0], ["r", -1], ["r", "0"], ["T", "eval"], ["T", "len"], ["T", "__import__"],
        ["T", 1], ["I", "xyz"], ["I", 5], ["b", "?"], ["b"], ["c", "1", 2], ["d", 1], ["d", ["l"], 1], ["s", ["l"]],
        ["D", 1, 2], ["D", 2020, 13, 1], ["D", ["t"], 1, 1], ["a", "O", [1], ""], ["a", "<f8", [2], "AAAAAAAAAAA="],
        ["a", "<f8", [-2, 1], ""], ["n", "|V8", "AAAAAAAAAAA="], ["a", "<f8", "x", ""], ["FR", 1, 0], ["DE", "x"],
        ["DE", ["T", "int"]], ["PP", 3], ["h", 1], ["m", 0], ["R", "a", 1, 1], ["R", 0, 1, 0],
    ],
)  # fmt: skip
def test_malformed_messages_raise_one_error(data: Any) -> None:
    with pytest.raises(WireError):
        Decoder(refuse).decode(json.loads(json.dumps(data)))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_one_error_or_are_a_message(body: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(from_frame(body), dict)


def test_the_descriptor_is_the_same_on_both_sides() -> None:
    assert worker.CHANNEL_FD == channel.CHANNEL_FD
