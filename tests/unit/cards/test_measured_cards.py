"""Cards of small environments with one planted fault each: the first line names the fault, and a sound one passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from turnwise.cards.card import Card, read_page
from turnwise.cards.facts import Facts
from turnwise.cards.measure import measure, probe, summarise_rewards, take_heldout
from turnwise.cards.measured import Rate
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.classes.family import ClassFamily
from turnwise.environments.search_qa.family import SearchQA

WORDS = [first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "ai", "ou", "ei")]
FACTS = Facts(
    recipe="letters",
    ability="saying a word twice",
    number="success",
    environment={"letters": {}},
    heldout_tasks=120,
    samples=1,
    group_size=4,
    max_turns=3,
    warm_up_tasks=20,
    rl_tasks=20,
    demonstrator="naive",
    judges=(),
    roles={},
    terms=(),
    files={},
)


class Sound:
    """Say the word twice."""

    def reset(self, seed: int) -> str:
        self.word, self.right, self.done = Random(seed).choice(WORDS) + str(seed % 1000), False, False
        return f"The word is {self.word}."

    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: The word, twice.
        """
        self.right, self.done = text == self.word * 2, True
        return "said"

    def get_reward(self) -> Any:
        return float(self.right)

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": self.word * 2}


class Raising(Sound):
    def get_reward(self) -> float:
        raise KeyError("gold")


class NaN(Sound):
    def get_reward(self) -> float:
        return math.nan


class Unseeded(Sound):
    def reset(self, seed: int) -> str:
        super().reset(seed)
        self.word = Random().choice(WORDS)
        return f"The word is {self.word}."


class Fickle(Sound):
    """Each grade differs from the one before."""

    graded = 0

    def get_reward(self) -> dict[str, float]:
        Fickle.graded += 1
        return {"reward": self.right + Fickle.graded / 1000, "success": float(self.right)}


class Generous(Sound):
    def get_reward(self) -> float:
        return 1.0


class Silent(Sound):
    """Pays who does nothing."""

    def get_reward(self) -> float:
        return float(self.right or not self.done)


class Blind(Sound):
    """The oracle knows no word with an o in it."""

    def _oracle(self) -> tuple[str, dict[str, str]]:
        return "say", {"text": self.word if "o" in self.word else self.word * 2}


class Unsolved:
    """Nobody knows the right call."""

    def reset(self, seed: int) -> str:
        self.done = False
        return f"Number {seed}."

    def say(self, text: str) -> str:
        """Say it.

        Args:
            text: A word.
        """
        self.done = True
        return "said"

    def get_reward(self) -> float:
        return 0.0


def make(build: Callable[[], EnvironmentFamily], **changes: Any) -> Card:
    facts = replace(FACTS, **changes)
    measured, timing, played = measure(build, facts, num_played=6)
    return Card(facts=facts, measured=measured, timing=timing, num_played=played)


def test_a_sound_environment_is_believed_for_what_the_recipe_says() -> None:
    card = make(lambda: ClassFamily(Sound))
    assert card.verdict.line.startswith("believe: success on 120 held-out tasks, to within 8.8 points and for ")
    assert card.verdict.line.endswith("as a measure of saying a word twice")
    assert card.measured.policies["oracle"].success == Rate(hits=6, count=6)
    assert card.measured.policies["random"].success.hits == 0
    assert card.measured.missing["gold"] == "the family names no gold answers"
    continuity = card.measured.continuity
    assert continuity is not None
    assert continuity.distinct_rewards == 2


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (Raising, "6 of 6 episodes of 'oracle' have no reward"),
        (NaN, "episodes of 'oracle' have no reward"),
        (Unseeded, "the same episode played twice differs: 'oracle' on task"),
        (Fickle, "the same replies got another reward in 100%"),
        (Silent, "the attack 'empty reply' succeeds on 100% (3 of 3)"),
        (Generous, "the oracle is only 0 points above random play"),
        (Blind, "the oracle solves"),
        (Unsolved, "it has no oracle and no gold answers"),
    ],
)
def test_a_planted_fault_is_named_in_the_first_line(environment: type, words: str) -> None:
    verdict = make(lambda: ClassFamily(environment)).verdict
    assert verdict.word == "do not believe"
    assert words in verdict.line
    assert "\n" not in verdict.line


def test_no_held_out_tasks_and_too_few_are_said() -> None:
    assert make(lambda: ClassFamily(Sound), heldout_tasks=0).verdict.line == (
        "do not believe: success, because no held-out task is evaluated (evaluate.tasks is 0)"
    )
    line = make(lambda: ClassFamily(Sound), heldout_tasks=30).verdict.line
    assert line == "do not believe: success, because 30 held-out tasks leave an interval of ±16.8 points"


def test_rows_that_repeat_are_counted_once_and_rows_that_are_trained_on_are_found() -> None:
    rows = [{"seed": number % 10} for number in range(120)]
    card = make(lambda: ClassFamily(Sound, rows=rows))
    assert card.measured.tasks.copies > 0
    assert "of the held-out tasks are training tasks" in card.verdict.line or card.measured.tasks.distinct <= 2


def test_an_environment_that_cannot_be_built_claims_nothing() -> None:
    card = make(lambda: ClassFamily(Sound, path="nowhere.jsonl"))
    assert card.verdict.line.startswith("cannot say: nothing could be measured here, ")
    assert "nowhere.jsonl" in card.verdict.line
    assert "No episode was played." in card.to_page()


def test_a_number_that_no_reward_has_is_refused() -> None:
    assert "rewards have no part 'speed' (card.number)" in make(lambda: ClassFamily(Sound), number="speed").verdict.line


def test_pages_say_how_they_were_made_and_two_are_the_same_but_for_times() -> None:
    pages = [make(lambda: ClassFamily(Sound)).to_page() for _ in range(2)]
    one, other = ([line for line in page.splitlines() if "| time: " not in line] for page in pages)
    assert one == other
    stored = read_page(pages[0])
    assert stored is not None
    assert (stored.digest, stored.num_played) == (FACTS.compute_digest(), 6)
    assert stored.probe == probe(lambda: ClassFamily(Sound), FACTS)
    assert stored.probe != probe(lambda: ClassFamily(Generous), FACTS)
    assert read_page("# A page") is None


def test_facts_of_another_evaluation_have_another_digest() -> None:
    digests = {
        replace(FACTS, **change).compute_digest() for change in ({}, {"heldout_tasks": 121}, {"number": "reward"})
    }
    assert len(digests) == 3


def test_gold_answers_are_tried_with_their_near_misses() -> None:
    card = make(lambda: SearchQA(num_entities=20, kinds={"1hop": 1.0}), max_turns=4)
    assert card.measured.gold == Rate(hits=3, count=3)
    kinds = {kind.kind: kind for kind in card.measured.near}
    assert kinds["another entity"].accepted == Rate(hits=0, count=3)
    assert kinds["capitals"].accepted.hits == kinds["capitals"].accepted.count
    assert {kind.kind for kind in card.measured.hand} > {"number in words", "must_pass of the reward"}
    assert card.measured.agreement is not None
    assert card.measured.agreement.same.share == 1.0


class Lenient(SearchQA):
    """Reads the gold answer out of any answer that contains it."""

    def answer_reply(self, task: Task, answer: str) -> Message:
        gold = self.gold_answer(task)
        return super().answer_reply(task, gold if gold in answer else answer)


def test_a_grader_that_finds_the_gold_answer_anywhere_is_not_believed() -> None:
    line = make(lambda: Lenient(num_entities=20, kinds={"1hop": 1.0}), max_turns=4).verdict.line
    assert "of the wrong near-misses (a negation, an extra word, two answers)" in line


def test_rewards_of_groups() -> None:
    assert summarise_rewards([[0.0], []], "x") is None
    found = summarise_rewards([[0.0, 0.0], [0.0, 1.0, 0.5], [1.0]], "x")
    assert found is not None
    assert (found.distinct_rewards, found.with_signal) == (3, Rate(hits=1, count=2))


class Twice:
    """A family of two held-out tasks, the second of which cannot be built, and a copy of the first."""

    def task(self, split: str, index: int) -> Task:
        if index > 2:
            raise IndexError
        if index == 1:
            raise ValueError("no such row")
        return Task(environment="twice", prompt=(text_message("user", "?"),), payload={})

    def build_environment(self, task: Task) -> Any: ...

    def policy(self, name: str) -> Any: ...

    def texts(self, count: int) -> list[str]: ...  # type: ignore[empty-body]


def test_copies_and_tasks_that_fail_are_counted() -> None:
    found = take_heldout(Twice(), 10)
    assert (found.counts.distinct, found.counts.copies, found.counts.left_out) == (1, 1, 1)
    assert "no such row" in found.counts.example
    assert isinstance(found.tasks[0].prompt[0], Message)


def test_tasks_that_take_too_long_to_build_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.cards.measure.BUILD_S", -1.0)
    line = make(lambda: ClassFamily(Sound)).verdict.line
    assert line.startswith(
        "cannot say: nothing could be measured here, only 0 of 120 held-out tasks were built in -1 s;"
    )
