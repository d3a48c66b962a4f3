"""What every attempt can be called, whatever its family, and how attempts without a name are put together."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnwise.badcases.naming import OTHER, cluster, find_repetition, list_names, name_fault
from turnwise.core.faults import SHARED
from turnwise.core.types import (
    FinishReason,
    Invalid,
    Message,
    StopReason,
    ToolCall,
    ToolCallError,
    ToolRecord,
    Turn,
    text_message,
)
from turnwise.environments.countdown.family import Countdown
from turnwise.testing.builders import make_completion, make_task, make_trajectory, make_turn

FAMILY = Countdown()
"""A family that has no names of its own."""
TASK = FAMILY.task("heldout", 0)


def record(name: str, arguments: str = "{}", answer: str = "ok", **fields: Any) -> ToolRecord:
    call = ToolCall(id="c", name=name, arguments=arguments)
    return ToolRecord(call=call, observation=answer, seconds=0.0, **{"error": None, **fields})


def called(*records: ToolRecord) -> Turn:
    return make_turn([1], [2], tool_records=records)


def said(text: str) -> Turn:
    return make_turn([1], [2], message=text_message("assistant", text))


def malformed(raw: str = "hm") -> Turn:
    error = ToolCallError(kind="bad_json", raw=raw, message="no")
    return make_turn([1], [2], message=Message(role="assistant", content=(), tool_errors=(error,)))


def name(*turns: Turn, **fields: object) -> tuple[str, int | None]:
    fault = name_fault(FAMILY, TASK, make_trajectory(*turns, **{"reward": 0.0, **fields}))  # type: ignore[arg-type]
    return fault.name, fault.turn


def test_every_shared_name_is_given_for_what_it_says() -> None:
    look = record("look", '{"at": 1}')
    assert name(called(look), reward=Invalid(reason="crash", retryable=True)) == ("tool failure", 0)
    assert name(called(look), stop=StopReason.TOOL_TIMEOUT, reward=None) == ("tool failure", 0)
    assert name(called(look), called(record("look", exception="OSError: gone"))) == ("tool failure", 1)
    cut = make_turn([1], make_completion([2], finish_reason=FinishReason.LENGTH))
    assert name(called(look), cut, stop=StopReason.MAX_TURN_TOKENS) == ("limit", 1)
    # What was cut off may read like an answer.
    half = make_turn(
        [1], make_completion([2], finish_reason=FinishReason.LENGTH), message=text_message("assistant", "12")
    )
    assert name(half, stop=StopReason.MAX_TURN_TOKENS) == ("limit", 0)
    assert name(said("a"), malformed(), malformed(), stop=StopReason.MAX_TURNS) == ("format", 1)
    # An attempt that found back to calls did not fail by its format.
    assert name(malformed(), called(look), stop=StopReason.MAX_TURNS) == ("limit", 1)
    assert name(called(look), called(look), called(look), stop=StopReason.MAX_TURNS) == ("repeated itself", 1)
    assert name(called(look), said("<answer> unknown </answer>")) == ("gave up", 1)
    assert name(called(look), said("")) == ("gave up", 1)
    assert name(called(look), said("<answer> 12 </answer>")) == (OTHER, 1)
    assert name(stop=StopReason.MAX_TOKENS) == (OTHER, None)
    assert set(list_names(FAMILY, [TASK])) == set(SHARED)


def test_one_repeated_call_is_no_loop() -> None:
    a, b, back = record("open", "a"), record("open", "b"), record("back", answer="the list")
    assert find_repetition([a, back, b, back]) is None
    assert find_repetition([a, back, a, back]) == 2
    assert find_repetition([a, a, b]) is None
    # Six of eight calls repeat, though the last one does not.
    white = record("click", "white", "no")
    assert find_repetition([a, *[white] * 7, b]) == 2
    # Three calls that go round, with equal answers each time.
    read, edit, test = record("read"), record("edit", answer="failed"), record("test", answer="red")
    assert find_repetition([read, edit, test] * 3) == 3
    # Another answer to the same call is news.
    assert (
        find_repetition([record("test", answer="red"), record("test", answer="green"), record("test", answer="x")])
        is None
    )


def test_clusters_read_alike_and_small_ones_join_what_stopped_alike() -> None:
    texts = {0: "done with a text, last tool answer 'a'", 1: "done with a text, last tool answer 'a'"}
    texts |= {2: "done with a text, last tool answer 'b'", 3: "max_turns with a call of look"}
    names = cluster(texts)
    assert names[0] == names[1] == f"{OTHER}: done with a text, last tool answer 'a'"
    assert names[2] == f"{OTHER}: done with a text"
    assert names[3] == f"{OTHER}: max_turns with a call of look"
    assert cluster(texts, most=0)[0] == f"{OTHER}: done with a text"


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from(["a, b", "a, c", "d", "e, f"]), max_size=12), st.integers(0, 9)
)
def test_clusters_do_not_depend_on_the_order(details: dict[int, str], seed: int) -> None:
    mixed = list(details.items())
    random.Random(seed).shuffle(mixed)
    assert cluster(dict(mixed)) == cluster(details)
    assert set(cluster(details)) == set(details)


def test_attempts_of_other_tasks_end_alike_whatever_their_numbers() -> None:
    ends = [
        name_fault(
            FAMILY, make_task(), make_trajectory(called(record("add", answer=f"sum is {n}")), said("5"), reward=0.0)
        )
        for n in (3, 45)
    ]
    assert ends[0].detail == ends[1].detail == "done with a text, last tool answer 'sum is #'"
