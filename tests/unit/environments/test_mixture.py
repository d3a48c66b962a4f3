"""Several families in one run: the order by hand and as a property, dispatch, the end, what the members offer."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.building.families import build_family
from turnwise.config.load import load_config
from turnwise.core.checked import to_single
from turnwise.core.errors import ConfigError
from turnwise.core.protocols import EnvironmentFamily, GoldAnswers, Split
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.countdown.family import Countdown
from turnwise.environments.mixture import Interleaving, Member, MixedFamily, list_families, mix_families
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.tool_environment import ToolEnvironment


class Numbers:
    """Tasks that are their own index; `size` held-out ones."""

    def __init__(self, name: str, size: int = 1000) -> None:
        self.name, self.size = name, size

    def task(self, split: Split, index: int) -> Task:
        if index < 0 or (split == "heldout" and index >= self.size):
            raise IndexError(f"{self.name} has {self.size} tasks")
        return Task(environment="numbers", prompt=(text_message("user", f"{self.name} {split} {index}"),), payload={})

    def build_environment(self, task: Task) -> ToolEnvironment:
        environment = ToolEnvironment()
        environment.name = self.name  # type: ignore[attr-defined]
        return environment

    def policy(self, name: str) -> Numbers:
        return self

    def reply(self, task: Task, messages: Any, rng: Random) -> Message:
        return text_message("assistant", f"by {self.name}")

    def texts(self, count: int) -> list[str]:
        return [f"{self.name} {index}" for index in range(count)]


def mix(**weights: float) -> MixedFamily:
    return mix_families({label: Member(family=Numbers(label), weight=weight) for label, weight in weights.items()})


def order(count: int, **weights: float) -> str:
    interleaving = Interleaving(weights)
    return "".join(interleaving.place(index)[0] for index in range(count))


def test_the_order_by_hand() -> None:
    # Shares 1/2 and 1/2. Deadlines ceil(1 / (1/2)) = 2 for both: a, by name; then b, whose deadline is 2 and a's 4.
    assert order(6, a=1, b=1) == "ababab"
    # Shares 3/4 and 1/4. a's deadlines: ceil(4/3) = 2, ceil(8/3) = 3, 4; b's: 4. At position 1 a's second may come
    # (floor(4/3) = 1), at 2 its third (floor(8/3) = 2) with deadline 4, as b's: a by name, then b.
    assert order(8, a=3, b=1) == "aaabaaab"
    # Shares 1/2, 1/4, 1/4: deadlines 2, 4, 4; a's second may come from position 2 on, deadline 4.
    assert order(8, a=2, b=1, c=1) == "abacabac"
    assert order(3, only=0.3) == "only" * 3


def test_weights_are_read_as_decimals_and_their_order_in_the_recipe_does_not_matter() -> None:
    # 0.1 + 0.2 is not 0.3 in binary: as decimals the shares are 1/6, 2/6, 3/6 and the order has period 6.
    one, other = Interleaving({"a": 0.1, "b": 0.2, "c": 0.3}), Interleaving({"c": 3, "a": 1, "b": 2})
    assert [one.place(index) for index in range(60)] == [other.place(index) for index in range(60)]
    assert one.place(6_000_000)[1] == {"a": 1_000_000, "b": 2_000_000, "c": 3_000_000}


weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 60) | st.floats(0.01, 50), min_size=1, max_size=8)


@settings(max_examples=80, deadline=None)
@given(weights=weights, length=st.integers(1, 400))
def test_every_prefix_is_within_one_of_the_weights(weights: dict[str, float], length: int) -> None:
    interleaving = Interleaving(weights)
    seen: Counter[str] = Counter()
    for index in range(length):
        label, before = interleaving.place(index)
        assert before == {name: seen[name] for name in weights}  # each family's own indices, in order, without gaps
        seen[label] += 1
        for name, weight in weights.items():
            assert abs(seen[name] - (index + 1) * weight / sum(weights.values())) < 1 + 1e-9


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="the weight of 'b' is"):
        mix(a=1.0, b=weight)


def test_tasks_come_from_the_families_in_their_own_order() -> None:
    family = mix(a=3, b=1)
    assert isinstance(family, EnvironmentFamily)
    tasks = [family.task("train", index) for index in range(8)]
    assert [task.prompt[0].text for task in tasks] == [
        *("a train 0", "a train 1", "a train 2", "b train 0", "a train 3", "a train 4", "a train 5", "b train 1")
    ]
    assert [task.environment for task in tasks] == list("aaabaaab")
    assert len({task.id for task in tasks}) == 8
    assert mix(a=3, b=1).task("train", 7) == tasks[7]  # a pure function: no earlier call is needed
    assert tasks[0].id != Numbers("a").task("train", 0).id  # the label is part of the content
    with pytest.raises(IndexError, match="the index must be at least 0"):
        family.task("train", -1)


def test_everything_about_a_task_goes_to_its_family() -> None:
    family = mix(a=1, b=1)
    for index in range(4):
        task = family.task("train", index)
        assert family.build_environment(task).name == task.environment  # type: ignore[union-attr]
        assert family.policy("oracle").reply(task, (), Random(0)).text == f"by {task.environment}"
    stray = Numbers("a").task("train", 0)
    with pytest.raises(ConfigError, match="belongs to environment 'numbers'; this mixture has a, b"):
        family.build_environment(stray)
    assert [each.name for each in list_families(family)] == ["a", "b"]  # type: ignore[attr-defined]
    alone = Numbers("alone")
    assert list(list_families(alone)) == [alone]


def test_texts_have_the_shares_of_the_families() -> None:
    assert mix(a=3, b=1).texts(5) == ["a 0", "a 1", "a 2", "b 0", "a 3"]
    assert mix(a=3, b=1).texts(0) == []


@pytest.mark.parametrize("warm", [False, True])
def test_a_finite_family_ends_the_mixture_for_good(warm: bool) -> None:
    family = mix_families(
        {"a": Member(family=Numbers("a"), weight=1), "b": Member(family=Numbers("b", size=2), weight=1)}
    )
    if warm:
        assert [family.task("heldout", index).environment for index in range(5)] == list("ababa")
    # a b a b a, then b's third task is missing: position 5 and everything after it, also where a's turn is.
    for index in (5, 6, 40):
        with pytest.raises(IndexError, match=rf"task {index} of split 'heldout': the mixture ends there.*'b'.*b has 2"):
            family.task("heldout", index)
    assert family.task("heldout", 4).environment == "a"
    assert family.task("train", 40).environment == "a"  # the other split has no end


def test_a_mixture_offers_gold_answers_where_all_of_its_families_do() -> None:
    search, sums = SearchQA(num_entities=12), Countdown()
    both = mix_families({"one": Member(family=search, weight=1), "two": Member(family=search, weight=1)})
    assert isinstance(both, GoldAnswers)
    task = both.task("train", 1)
    assert task.environment == "two"
    assert both.gold_answer(task) == task.payload["answers"][0]
    assert both.gold_answer(task) in both.answer_reply(task, both.gold_answer(task)).text
    partly = mix_families({"one": Member(family=search, weight=1), "two": Member(family=sums, weight=1)})
    assert not isinstance(partly, GoldAnswers)


# ------------------------------------------------------------------------------------------------ recipes

MIXTURE = [
    "model.path=anywhere",
    "train.lr=1e-6",
    "environment.mixture.search.name=search_qa",
    "environment.mixture.search.weight=2",
    "environment.mixture.search.args.num_entities=12",
    "environment.mixture.sums.name=countdown",
    "environment.mixture.sums.args.numbers=2",
]


def test_a_recipe_names_the_families_by_label() -> None:
    family = build_family(load_config([], MIXTURE))
    tasks = [family.task("heldout", index) for index in range(6)]
    # Shares 2/3 and 1/3: deadlines of search 2 and 3 (its second may come from floor(3/2) = 1 on), of sums 3.
    assert [task.environment for task in tasks] == ["search", "search", "sums"] * 2
    openings = [asyncio.run(to_single(family.build_environment(task)).reset(task, 0)) for task in tasks[1:3]]
    assert [len(opening.tools) for opening in openings] == [1, 0]


def test_a_control_changes_families_by_label() -> None:
    config = load_config([], MIXTURE)
    off = build_family(config, {"search": {"search": "off"}})
    task = off.task("heldout", 0)
    assert task == build_family(config).task("heldout", 0)
    for changes in ({"serch": {"search": "off"}}, {"search": "off"}):
        with pytest.raises(ConfigError, match=r"does not name a family in environment.mixture; .* search, sums"):
            build_family(config, changes)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("environment.mixture.search.args.num_entites=12", "num_entites=12: .* did you mean 'num_entities'"),
        ("environment.mixture.search.name=serch", r"environment.mixture.search.name='serch' is neither a known name"),
        ("environment.mixture.search.weight=0", "environment.mixture.search.weight is 0"),
        ("environment.mixture.search.wait=1", "unknown key 'environment.mixture.search.wait'"),
        ("environment.name=countdown", "environment.name='countdown' .* ignored together with environment.mixture"),
        ("environment.args.seed=1", r"environment.args=\{'seed': 1\} is ignored together with environment.mixture"),
    ],
)
def test_a_wrong_mixture_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_family(load_config([], [*MIXTURE, override]))
