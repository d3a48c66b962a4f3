"""Generated API problems: what each kind promises, disjoint splits, nothing to memorise."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from turnwise.core.protocols import Split
from turnwise_worlds.tool_calls.problems import MAX_PARAMETERS, MAX_TOOLS, NUM_CALLS, Problem, build_problem
from turnwise_worlds.tool_calls.words import CAPABILITIES, MAX_WORDS, MIN_WORDS, NUMBERS, SLOTS, VALUES, split_of


def draw(kind: str, seed: int, split: Split = "train", **changes: int | bool) -> Problem:
    sizes = {"num_tools": 3, "max_parameters": 2, "num_words": 40, "shuffle_slots": True, **changes}
    return build_problem(kind, split, Random(seed), **sizes)  # type: ignore[arg-type]


def test_the_words_are_enough_for_the_largest_api_and_all_different() -> None:
    # The largest API and the tool it lacks: 5 tools of 3 parameters.
    assert len(CAPABILITIES) >= MAX_TOOLS + 1
    assert len(SLOTS) >= (MAX_TOOLS + 1) * MAX_PARAMETERS
    assert (MAX_TOOLS + 1) * (1 + MAX_PARAMETERS) < MIN_WORDS
    words = [*NUMBERS, *VALUES, *CAPABILITIES, *SLOTS]
    assert len(words) == len(set(words)) == 2 * MAX_WORDS + len(CAPABILITIES) + len(SLOTS)


@pytest.mark.parametrize("kind", NUM_CALLS)
@pytest.mark.parametrize("max_parameters", [2, 3])
def test_a_request_says_everything_except_what_its_kind_leaves_out(kind: str, max_parameters: int) -> None:
    for seed in range(60):
        problem = draw(kind, seed, max_parameters=max_parameters)
        apis = {api.capability: api for api in problem.apis}
        assert len(apis) == 3
        assert len(problem.calls) == NUM_CALLS[kind]
        left_out = 0
        for wish in problem.wishes:
            api = apis.get(wish.capability)
            if api is None:
                assert kind == "irrelevant"
            else:
                left_out += len(api.parameters) - len(wish.values)
                assert {slot for slot, _ in wish.values} <= {slot for _, slot in api.parameters}
        assert left_out == (kind == "missing")
        assert (problem.missing is not None) == (kind == "missing")
        if problem.missing is not None:
            (wish,) = problem.wishes
            needed = {slot for _, slot in apis[wish.capability].parameters}
            assert needed - dict(wish.values).keys() == {problem.missing}
        for wish, (name, arguments) in zip(problem.wishes, problem.calls, strict=False):
            assert name == apis[wish.capability].name
            slots = dict(apis[wish.capability].parameters)
            assert {slots[parameter]: value for parameter, value in arguments.items()} == dict(wish.values)


def test_all_words_of_an_episode_are_different() -> None:
    for seed in range(100):
        problem = draw("3calls", seed, num_tools=4, max_parameters=3, num_words=MIN_WORDS)
        names = [
            name[-2:] for api in problem.apis for name in (api.name, *(parameter for parameter, _ in api.parameters))
        ]
        slots = [slot for api in problem.apis for _, slot in api.parameters]
        values = [value for wish in problem.wishes for _, value in wish.values]
        for words in (names, slots, values):
            assert len(words) == len(set(words))


def test_no_tool_is_in_both_splits_and_both_use_all_numbers() -> None:
    tools: dict[Split, set[tuple[str, ...]]] = {"train": set(), "heldout": set()}
    for split, names in tools.items():
        for seed in range(400):
            for api in draw("1call", seed, split).apis:
                names.add((api.name, *sorted(name for name, _ in api.parameters)))
    assert not tools["train"] & tools["heldout"]
    for names in tools.values():
        assert {int(name[-2:]) for tool in names for name in tool} == set(NUMBERS[:40])
    shares = Counter(split_of(f"news{number}", (f"city{other}",)) for number in NUMBERS for other in NUMBERS)
    assert 0.45 < shares["train"] / shares.total() < 0.55


def test_a_word_says_nothing_about_its_number() -> None:
    """Guessing a tool's number from its capability must not beat chance by much."""
    seen: dict[str, Counter[str]] = {}
    for seed in range(1500):
        for api in draw("1call", seed).apis:
            assert api.name.startswith(api.capability)
            seen.setdefault(api.capability, Counter())[api.name] += 1
    best = sum(counts.most_common(1)[0][1] for counts in seen.values())
    # 4500 tools over 12 capabilities are 375 each; of 40 equal numbers (9.4 each) the commonest comes about 17 times: a
    # share of 0.05.
    assert best / sum(counts.total() for counts in seen.values()) < 0.07


def test_slots_stand_in_the_order_of_the_api_unless_shuffled() -> None:
    orders = {shuffled: set[bool]() for shuffled in (False, True)}
    for shuffled, in_order in orders.items():
        for seed in range(60):
            problem = draw("1call", seed, shuffle_slots=shuffled)
            api = next(api for api in problem.apis if api.capability == problem.wishes[0].capability)
            in_order.add([slot for _, slot in api.parameters] == [slot for slot, _ in problem.wishes[0].values])
    assert orders == {False: {True}, True: {True, False}}


def test_in_order_the_last_value_is_missing_and_shuffled_any() -> None:
    places = {shuffled: set[int]() for shuffled in (False, True)}
    for shuffled, positions in places.items():
        for seed in range(60):
            problem = draw("missing", seed, shuffle_slots=shuffled, max_parameters=2)
            api = next(api for api in problem.apis if api.capability == problem.wishes[0].capability)
            positions.add([slot for _, slot in api.parameters].index(str(problem.missing)))
    assert places == {False: {1}, True: {0, 1}}
