"""Faults planted in attempts at search questions with two hops, one hop or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from planted_faults.script import Planted, follow, write_nonsense
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.corpus import Passage
from turnwise.environments.search_qa.family import SearchQA
from turnwise.environments.search_qa.policies import Conversation, search_message
from turnwise.environments.search_qa.projection import Project, parse
from turnwise.environments.search_qa.world import RELATIONS, build_world

ARGUMENTS = {
    "mode": "fresh",
    "num_entities": 40,
    "tasks_per_world": 8,
    "num_words": 32,
    "num_phrasings": 1,
    "num_distractors": 0,
    "top_k": 3,
    "document_format": "plain",
    "prompt": "short",
}
"""The worlds of recipes/search_r1/tiny.toml."""


class _Down:
    """A retriever that fails."""

    passages: Sequence[Passage] = ()

    def search(self, query: str, top_k: int) -> Sequence[Passage]:
        """Raise."""
        raise RuntimeError("the index is down")


class _DownFamily(SearchQA):
    """Questions whose search fails."""

    def retriever(self, task: Task) -> _Down:  # type: ignore[override]
        """An index that is down."""
        return _Down()


class SearchFaults:
    """Plants every fault of the family in its tasks."""

    def __init__(self, family: EnvironmentFamily | None = None) -> None:
        """`family` None: questions of one hop, of two, and without an answer."""
        kinds = {"1hop": 0.2, "2hop": 0.7, "unanswerable": 0.1}
        self.family = family or SearchQA(**ARGUMENTS, kinds=kinds)
        self._shuffled = SearchQA(**ARGUMENTS, kinds=kinds, search="shuffled")
        self._down = _DownFamily(**ARGUMENTS, kinds=kinds)

    def plant(self, index: int) -> Iterator[Planted]:
        """Yield an attempt for every fault that can be planted in the task at `index` of the held-out split."""
        task, random = self.family.task("heldout", index), Random(index)
        oracle = follow(self.family.policy("oracle"), task)
        query = parse(task.payload["query"])
        assert isinstance(query, Project)
        names = sorted(build_world(task.payload["world"], "heldout", 40, 32).entities)
        wrong = next(name for name in random.sample(names, 8) if name not in task.payload["answers"])
        given: dict[str, Any] = {"family": self.family, "task": task, "index": index}
        lie = answer_message(wrong)
        if task.payload["kind"] == "no_search":
            yield Planted(name="read and not used", turn=0, replies=[lie], **given)
            return
        if task.payload["kind"] == "unanswerable":
            yield Planted(name="made up", turn=1, replies=[oracle, lie], **given)
            return
        yield Planted(name="never searched", turn=0, replies=[lie], **given)
        yield Planted(
            name="right passage not read",
            turn=0,
            replies=[oracle, lie],
            **{**given, "family": self._shuffled},
        )
        yield Planted(name="tool failure", turn=0, replies=[oracle, lie], **{**given, "family": self._down})
        hops = 2 if task.payload["kind"] == "2hop" else 1
        before = random.randrange(hops)
        """Right searches before the fault."""
        said = random.choice([lie, answer_message("unknown")])
        yield Planted(name="read and not used", turn=hops, replies=[oracle] * hops + [said], **given)
        yield Planted(name="format", turn=before, replies=[oracle] * before, loop=[write_nonsense()], **given)
        others = [search_message(f"mayor of {name}", n) for n, name in enumerate(random.sample(names, 8))]
        yield Planted(name="limit", turn=7, diverges=0, replies=others, **given)
        yield self._misdirect("wrong relation", before, random, given, lie, names)
        yield self._misdirect("wrong entity", before, random, given, lie, names)
        if hops == 2:
            yield Planted(name="never searched again", turn=1, replies=[oracle, _answer_found], **given)
            yield Planted(name="gave up", turn=1, replies=[oracle, answer_message("unknown")], **given)
            ends = [_repeat, _answer_found] if random.random() < 0.5 else [_repeat] * 7
            yield Planted(name="repeated itself", turn=1, replies=[oracle, *ends], **given)

    def _misdirect(
        self, name: str, before: int, random: Random, given: dict[str, Any], lie: Message, names: Sequence[str]
    ) -> Planted:
        """A search for another relation or another entity in place of the needed one, after `before` right ones; then
        what it found is the answer if that is wrong, else a lie."""
        task = given["task"]
        assert isinstance(task, Task)
        oracle = follow(self.family.policy("oracle"), task)

        def search(messages: Sequence[Message]) -> Message:
            right = Conversation.of([oracle(messages)]).queries[0]  # type: ignore[operator]
            relation, _, entity = right.partition(" of ")
            if name == "wrong relation":
                kind = RELATIONS[relation][0]
                relation = random.choice(
                    [r for r, (subject, _) in RELATIONS.items() if subject == kind and r != relation]
                )
            else:
                entity = random.choice([each for each in names if each != entity])
            return search_message(f"{relation} of {entity}", len(messages))

        return Planted(name=name, turn=before, replies=[oracle] * before + [search, lie], **given)  # type: ignore[arg-type]


def _answer_found(messages: Sequence[Message]) -> Message:
    """Answer with what the first search found."""
    seen = Conversation.of(messages)
    found = [o for r, s, o in seen.facts() if f"{r} of {s}" == seen.queries[0]]
    return answer_message(found[0] if found else "unknown")


def _repeat(messages: Sequence[Message]) -> Message:
    return search_message(Conversation.of(messages).queries[-1], len(messages))
