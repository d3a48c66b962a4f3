"""The search world as an environment family: where its tasks, corpora, environments and policies come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Environment, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Task, text_message
from turnwise.environments.search_qa.corpus import NUM_PHRASINGS, Corpus, write_corpus
from turnwise.environments.search_qa.environment import (
    DocumentFormat,
    SearchEnvironment,
    SearchSwitch,
    format_documents,
)
from turnwise.environments.search_qa.files import QuestionRow, load_corpus, load_questions
from turnwise.environments.search_qa.names import MAX_WORDS
from turnwise.environments.search_qa.policies import (
    Conversation,
    NaivePolicy,
    OraclePolicy,
    RandomPolicy,
    answer_message,
)
from turnwise.environments.search_qa.projection import to_text
from turnwise.environments.search_qa.questions import KINDS, WITHOUT_SEARCH, Question, build_question
from turnwise.environments.search_qa.retrieval import Retriever
from turnwise.environments.search_qa.world import MIN_ENTITIES, World, build_world
from turnwise.rewards.selfcheck import load_reward

Mode = Literal["fresh", "fixed", "files"]
Prompt = Literal["search_r1", "short"]

DEFAULT_KINDS = {"no_search": 0.1, "1hop": 0.2, "2hop": 0.5, "unanswerable": 0.2}
PROMPTS: dict[str, str] = {
    "short": "Question: {question}\n",
    "search_r1": (
        "Answer the question below. Whenever you learn something new, first reason about it inside <think> and "
        "</think>. "
        "If you then still miss a piece of knowledge, search for it with <search> query </search>; the best results "
        "come back "
        "between <information> and </information>. You may search as often as you need. Once nothing is missing, "
        "give the "
        "answer inside <answer> and </answer>, in a few words and without an explanation, as in <answer> Beijing "
        "</answer>. "
        "Question: {question}\n"
    ),
}
"""The first message; `search_r1` says what Search-R1's template says."""
CACHED_SCENES = 512
MAX_WORLDS = 50
"""Fresh worlds to try until one has a question of the wanted kind."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One corpus with the worlds it was written from (none for a user's own)."""

    worlds: Mapping[Split, World]
    corpus: Corpus

    @cached_property
    def retriever(self) -> Retriever:
        """The index over the corpus, built on first use."""
        return Retriever(self.corpus.passages)


class SearchQA:
    """Questions that a search tool answers. Implements `EnvironmentFamily`; tasks are pure functions of its
    arguments."""

    def __init__(
        self,
        *,
        mode: Mode = "fresh",
        seed: int = 0,
        num_entities: int = 40,
        tasks_per_world: int = 1,
        num_words: int = MAX_WORDS,
        num_passages: int = 10_000,
        kinds: Mapping[str, float] | None = None,
        num_phrasings: int = 1,
        num_distractors: int = 20,
        top_k: int = 3,
        document_format: DocumentFormat = "search_r1",
        prompt: Prompt = "search_r1",
        search: SearchSwitch = "on",
        reward: str = "exact_match",
        corpus_path: str = "",
        train_path: str = "",
        heldout_path: str = "",
        naive_wander: float = 0.1,
        tool_timeout_s: float = 10.0,
        reward_timeout_s: float = 10.0,
        max_observation_chars: int = 4000,
    ) -> None:
        """
        Args:
            mode: "fresh": every task has a small world of its own, so nothing can be memorised. "fixed": one large
            corpus
                holds a training and a held-out world. "files": the user's own corpus and questions.
            seed: Of worlds, questions and the order of training rows.
            num_entities: Entities of a fresh world.
            tasks_per_world: Consecutive tasks that share a fresh world; building one is most of a small task's cost.
            num_words: Words used of each list that names are made from, 8 to `MAX_WORDS`; fewer are easier for a small
            model.
            num_passages: Size of the fixed corpus, distractors included.
            kinds: Question kind -> weight, for "fresh" and "fixed"; None is `DEFAULT_KINDS`.
            num_phrasings: How many ways facts and questions are worded, 1 to `NUM_PHRASINGS`.
            num_distractors: Passages of a fresh world that answer nothing.
            top_k: Passages a search returns at most.
            document_format: "search_r1": "Doc 1(Title: t) text"; "plain": the text alone. One line each.
            prompt: "search_r1" explains the tags; "short" is the question alone.
            search: "on", or a control that must fail: "off" finds nothing, "shuffled" returns random passages.
            reward: "exact_match", "f1", "format", or the import path "package.module:NAME" of an `AnswerReward`.
            corpus_path: JSONL corpus of mode "files" (layouts: see `files`).
            train_path: JSONL training questions of mode "files".
            heldout_path: JSONL held-out questions of mode "files".
            naive_wander: Probability that the naive policy looks up what it found instead of answering with it.
            tool_timeout_s: Seconds a search may take.
            reward_timeout_s: Seconds the reward may take.
            max_observation_chars: Longest result text shown to the model.

        Raises:
            ConfigError: an argument is out of range; the message names it, its value and the remedy.
            DataError: a file of mode "files" is missing or malformed.
            RewardError: the reward fails its own cases.
        """
        _check_choices(
            mode=(mode, Mode),
            document_format=(document_format, DocumentFormat),
            prompt=(prompt, Prompt),
            search=(search, SearchSwitch),
        )
        _check_whole("seed", seed, 0, 2**62)
        _check_whole("num_entities", num_entities, MIN_ENTITIES, 1_000)
        _check_whole("tasks_per_world", tasks_per_world, 1, 1_000)
        _check_whole("num_words", num_words, 8, MAX_WORDS)
        _check_whole("num_passages", num_passages, 1_000, 1_000_000)
        _check_whole("num_phrasings", num_phrasings, 1, NUM_PHRASINGS)
        _check_whole("num_distractors", num_distractors, 0, 10_000)
        _check_whole("top_k", top_k, 1, 100)
        _check_number("naive_wander", naive_wander, 0.0, 1.0)
        for name, seconds in (("tool_timeout_s", tool_timeout_s), ("reward_timeout_s", reward_timeout_s)):
            _check_number(name, seconds, 1e-3, 86_400.0)
        self._kinds = _checked_kinds(DEFAULT_KINDS if kinds is None else kinds)
        self._mode, self._seed, self._num_entities, self._num_passages, self._top_k = (
            mode,
            seed,
            num_entities,
            num_passages,
            top_k,
        )
        self._num_words, self._num_phrasings, self._num_distractors = num_words, num_phrasings, num_distractors
        self._tasks_per_world, self._document_format = tasks_per_world, document_format
        self._prompt, self._search, self._naive_wander = PROMPTS[prompt], search, naive_wander
        self._reward = load_reward(reward)
        self._reward_timeout_s, self._tool_timeout_s, self._max_observation_chars = (
            reward_timeout_s,
            tool_timeout_s,
            max_observation_chars,
        )
        self._fresh_scene = lru_cache(maxsize=CACHED_SCENES)(self._build_fresh_scene)
        self._epoch_order = lru_cache(maxsize=2)(self._shuffle_epoch)
        if mode == "files":
            self._load_files(corpus_path=corpus_path, train_path=train_path, heldout_path=heldout_path)

    def _load_files(self, **paths: str) -> None:
        for name, path in paths.items():
            if not path:
                raise ConfigError(f"{name}={path!r} but mode='files' needs it; give the path of a JSONL file")
        splits: tuple[Split, ...] = get_args(Split)
        self._rows = {split: load_questions(Path(paths[f"{split}_path"])) for split in splits}
        self._file_scene = Scene(
            worlds={}, corpus=Corpus(passages=load_corpus(Path(paths["corpus_path"])), evidence={})
        )

    # ------------------------------------------------------------------------------------------- tasks

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split.

        Generated splits have no end. Of files, "train" starts over in a new order after each pass and "heldout" ends.
        Raises IndexError for a negative index or one past the end, ConfigError when no world has the wanted question.
        """
        if split not in get_args(Split):
            raise ConfigError(f"split {split!r} is unknown; use one of {', '.join(map(repr, get_args(Split)))}")
        if index < 0:
            raise IndexError(f"task {index} of split {split!r}: an index starts at 0")
        if self._mode == "files":
            row = self._row(split, index)
            kind, text, query, evidence, answers, world_seed = row.kind, row.question, None, [], list(row.answers), None
        else:
            world_seed, question = self._question(split, index)
            kind, text, query = question.kind, question.text, to_text(question.query)
            evidence, answers = list(question.evidence), list(question.answers)
        payload = {
            "kind": kind,
            "question": text,
            "query": query,
            "answers": answers,
            "evidence": evidence,
            "needs_search": kind not in WITHOUT_SEARCH,
            "split": split,
            "world": world_seed,
        }
        return Task(
            environment="search_qa", prompt=(text_message("user", self._prompt.format(question=text)),), payload=payload
        )

    def _question(self, split: Split, index: int) -> tuple[int | None, Question]:
        """The seed of the task's own world (None in the fixed corpus) and its question."""
        path = (self._seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        for attempt in range(1 if self._mode == "fixed" else MAX_WORLDS):
            world_seed = (
                None
                if self._mode == "fixed"
                else derive_seed(self._seed, "world", split, index // self._tasks_per_world, attempt)
            )
            scene = self._scene(split, world_seed)
            question = build_question(
                kind, scene.worlds[split], scene.corpus, rng(*path, "question", attempt), self._num_phrasings
            )
            if question is not None:
                return world_seed, question
        raise ConfigError(
            f"kinds has {kind!r}, but no such question was found; raise num_entities={self._num_entities} or drop "
            "the kind"
        )

    def _row(self, split: Split, index: int) -> QuestionRow:
        rows = self._rows[split]
        if split == "heldout":
            if index >= len(rows):
                raise IndexError(f"task {index} of split 'heldout': the file has {len(rows)} questions")
            return rows[index]
        return rows[self._epoch_order(index // len(rows))[index % len(rows)]]

    def _shuffle_epoch(self, epoch: int) -> Sequence[int]:
        return rng(self._seed, "epoch", epoch).sample(range(len(self._rows["train"])), len(self._rows["train"]))

    # ------------------------------------------------------------------------------------------- corpora

    def _scene(self, split: Split, world_seed: int | None) -> Scene:
        if self._mode == "files":
            return self._file_scene
        return self._fixed_scene if world_seed is None else self._fresh_scene(split, world_seed)

    def _build_fresh_scene(self, split: Split, world_seed: int) -> Scene:
        world = build_world(world_seed, split, self._num_entities, self._num_words)
        corpus = write_corpus(
            [world], seed=world_seed, num_phrasings=self._num_phrasings, num_distractors=self._num_distractors
        )
        return Scene(worlds={split: world}, corpus=corpus)

    @cached_property
    def _fixed_scene(self) -> Scene:
        # An entity has 2.6 facts on average (2.75 at most), so two such worlds leave about a third of the passages to
        # distractors.
        num_entities = int(self._num_passages * 0.33 / 2.6)
        worlds: dict[Split, World] = {
            split: build_world(self._seed, split, num_entities, self._num_words) for split in get_args(Split)
        }
        rest = self._num_passages - sum(len(world.facts) for world in worlds.values())
        corpus = write_corpus(
            tuple(worlds.values()), seed=self._seed, num_phrasings=self._num_phrasings, num_distractors=rest
        )
        return Scene(worlds=worlds, corpus=corpus)

    def retriever(self, task: Task) -> Retriever:
        """The index a task's searches go to."""
        return self._scene(task.payload["split"], task.payload["world"]).retriever

    # ------------------------------------------------------------------------------------------- the family's other
    # products

    def build_environment(self) -> Environment:
        """A fresh, single-use `SearchEnvironment`."""
        return SearchEnvironment(
            open_retriever=self.retriever,
            reward=self._reward,
            top_k=self._top_k,
            document_format=self._document_format,
            search=self._search,
            reward_timeout_s=self._reward_timeout_s,
            tool_timeout_s=self._tool_timeout_s,
            max_observation_chars=self._max_observation_chars,
        )

    def gold_answer(self, task: Task) -> str:
        """The first of the task's right answers."""
        return str(task.payload["answers"][0])

    def answer_reply(self, answer: str) -> Message:
        """The reply that gives this answer and nothing else; "" leaves its place empty."""
        return answer_message(answer)

    def policy(self, name: str) -> ScriptedPolicy:
        """A scripted policy: "oracle", "random" or "naive" (the demonstrator). Raises ConfigError naming these."""
        policies: dict[str, ScriptedPolicy] = {
            "oracle": OraclePolicy(),
            "random": RandomPolicy(),
            "naive": NaivePolicy(self._naive_wander),
        }
        if name not in policies:
            raise ConfigError(f"policy {name!r} is unknown; use one of {', '.join(policies)}")
        return policies[name]

    def texts(self, count: int) -> list[str]:
        """`count` texts of training tasks as a policy meets them: prompts, search results, tagged searches and
        answers."""
        found: list[str] = []
        oracle = self.policy("oracle")
        index = 0
        while len(found) < count:
            task = self.task("train", index)
            found.append(task.prompt[0].text)
            messages: list[Message] = list(task.prompt)
            while (reply := oracle.reply(task, messages, Random(0))).tool_calls:
                query = Conversation.of([reply]).queries[0]
                results = format_documents(self.retriever(task).search(query, self._top_k), self._document_format)
                found += [f"<search> {query} </search>", results]
                messages += [reply, text_message("tool", results, tool_call_id=reply.tool_calls[0].id, name="search")]
            found.append(reply.text)
            index += 1
        return found[:count]


def _check_choices(**arguments: tuple[str, Any]) -> None:
    """Each argument's value and the `Literal` it must be one of."""
    for name, (value, choices) in arguments.items():
        if value not in get_args(choices):
            raise ConfigError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, get_args(choices)))}")


def _check_whole(name: str, value: Any, minimum: int, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigError(f"{name}={value!r} is out of range; give a whole number from {minimum} to {maximum}")


def _check_number(name: str, value: Any, minimum: float, maximum: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise ConfigError(f"{name}={value!r} is out of range; give a number from {minimum:g} to {maximum:g}")


def _checked_kinds(kinds: Any) -> dict[str, float]:
    """Weights without the zero ones."""
    if not isinstance(kinds, Mapping):
        raise ConfigError(f"kinds={kinds!r} is not a table; give weights such as {{'1hop': 1.0, '2hop': 2.0}}")
    for kind, weight in kinds.items():
        if kind not in KINDS:
            raise ConfigError(f"kinds.{kind}={weight!r}: no such kind of question; use {', '.join(KINDS)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"kinds.{kind}={weight!r} is no weight; give a number of at least 0")
    positive = {kind: float(weight) for kind, weight in kinds.items() if weight > 0}
    if not positive:
        raise ConfigError(f"kinds={dict(kinds)!r} has no positive weight; give at least one kind a weight above 0")
    return positive
