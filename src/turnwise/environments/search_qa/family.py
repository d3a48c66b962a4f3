"""The search world as an environment family: where its tasks, corpora, environments and policies come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, get_args

from turnwise.config.catalog import find_model
from turnwise.core.errors import ConfigError
from turnwise.core.faults import Fault
from turnwise.core.protocols import Environment, GradedCase, ScriptedPolicy, Split
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import Message, Part, Task, Trajectory
from turnwise.environments.file_splits import DataFile, FromFiles, check_path, load_splits
from turnwise.environments.generated import GeneratedFamily
from turnwise.environments.published_rows import fill_template, take_pictures
from turnwise.environments.replies import answer_message
from turnwise.environments.search_qa.arguments import Prompt, SearchArguments
from turnwise.environments.search_qa.corpus import Corpus, Passage, write_corpus
from turnwise.environments.search_qa.dense import DenseRetriever, HybridRetriever
from turnwise.environments.search_qa.embedder import cache_folder, load_embedder
from turnwise.environments.search_qa.environment import SearchEnvironment, format_documents
from turnwise.environments.search_qa.faults import NAMES, find_search_fault
from turnwise.environments.search_qa.files import QUESTIONS, QuestionRow, load_corpus, to_question
from turnwise.environments.search_qa.policies import NaivePolicy, OraclePolicy, RandomPolicy, write_search
from turnwise.environments.search_qa.projection import to_text
from turnwise.environments.search_qa.questions import WITHOUT_SEARCH, Question, build_question
from turnwise.environments.search_qa.retrieval import Retriever, WordRetriever
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import World, build_world
from turnwise.pictures.rows import RowPictures
from turnwise.rewards.hand_cases import grade_short_answers
from turnwise.rewards.selfcheck import load_reward

PROMPTS: dict[Prompt, str] = {
    "short": "Question: {question}\n",
    "search_r1": (
        "Answer the question below. Whenever you learn something new, first reason about it inside <think> and "
        "</think>. If you then still miss a piece of knowledge, search for it with <search> query </search>; the best "
        "results come back between <information> and </information>. You may search as often as you need. Once nothing "
        "is missing, give the answer inside <answer> and </answer>, in a few words and without an explanation, as in "
        "<answer> Beijing </answer>. Question: {question}\n"
    ),
    "chat": (
        "Search for what you need to know, then give the answer inside <answer> and </answer>, in a few words. If the "
        "passages do not say it, answer unknown. Question: {question}\n"
    ),
}
"""The first message; `search_r1` says the same as Search-R1's template, `chat` is for models whose template describes
the tool."""
CACHED_SCENES = 512
MAX_WORLDS = 50
"""Number of fresh worlds to try until one has a question of the wanted kind."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One corpus with the worlds from which it was written (none for a user's own)."""

    worlds: Mapping[Split, World]
    corpus: Corpus
    index: Callable[[Sequence[Passage]], Retriever]
    """Builds the index that searches the corpus."""

    @cached_property
    def retriever(self) -> Retriever:
        """The index over the corpus, built on first use."""
        return self.index(self.corpus.passages)


class SearchQA(FromFiles, GeneratedFamily[SearchArguments]):
    """Questions answered with a search tool."""

    name = "search_qa"
    section = SearchArguments
    fault_names = NAMES

    def __init__(self, **arguments: Any) -> None:
        """See `GeneratedFamily`. Raises DataError if a file of mode "files" is missing or malformed, RewardError if the
        reward fails its own cases."""
        super().__init__(**arguments)
        chosen = self._chosen
        self._kinds = chosen.weights
        self._pictures = RowPictures()
        self._style = Style(wording=chosen.wording, num_phrasings=chosen.num_phrasings)
        self._reward = load_reward(chosen.reward)
        self._fresh_scene = lru_cache(maxsize=CACHED_SCENES)(self._build_fresh_scene)
        if chosen.mode == "files":
            check_path("corpus_path", chosen.corpus_path)
            paths: dict[Split, str] = {"train": chosen.train_path, "heldout": chosen.heldout_path}
            self._files = load_splits(
                paths,
                to_question,
                chosen.seed,
                max_bad_rows=chosen.max_bad_rows,
                asks=lambda row: row.asks,
                prepare=partial(take_pictures, names=QUESTIONS, pictures=self._pictures),
            )
            self._corpus_file = corpus = load_corpus(Path(chosen.corpus_path), max_bad_share=chosen.max_bad_rows)
            self._file_scene = self._build_scene({}, Corpus(passages=tuple(corpus.rows), evidence={}))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on questions and passages for readers of the run; one line each."""
        note = self._corpus_file.note if self._files is not None else None
        return super().notes + (() if note is None else (note,))

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The files of questions and passages."""
        if self._files is None:
            return ()
        corpus = self._corpus_file
        return *super().data_files, DataFile(path=corpus.path, num_rows=len(corpus.rows))

    # ------------------------------------------------------------------------------------------- tasks

    def generate(self, split: Split, index: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Generate a task; splits are endless. From files, "train" starts over in a new order after each pass,
        "heldout" ends.

        Raises IndexError past the end, ConfigError if no world has the wanted question.
        """
        before: tuple[Message, ...] = ()
        shown: tuple[Part, ...] = ()
        if self._files is not None:
            row: QuestionRow = self._files.row(split, index)
            before, shown = row.before, row.shown
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
        asked = fill_template(PROMPTS[self._chosen.prompt], text, shown)
        return tuple(map(self._pictures.fill, (*before, asked))), payload

    def _question(self, split: Split, index: int) -> tuple[int | None, Question]:
        """Return the seed of the task's own world (None in the fixed corpus) and its question."""
        path = (self._chosen.seed, "task", split, index)
        kind = rng(*path, "kind").choices(list(self._kinds), list(self._kinds.values()))[0]
        for attempt in range(1 if self._chosen.mode == "fixed" else MAX_WORLDS):
            world_seed = (
                None
                if self._chosen.mode == "fixed"
                else derive_seed(self._chosen.seed, "world", split, index // self._chosen.tasks_per_world, attempt)
            )
            scene = self._scene(split, world_seed)
            question = build_question(
                kind, scene.worlds[split], scene.corpus, rng(*path, "question", attempt), self._style
            )
            if question is not None:
                return world_seed, question
        raise ConfigError(
            f"kinds has {kind!r}, but no such question was found; raise num_entities={self._chosen.num_entities} or "
            "drop the kind"
        )

    # ------------------------------------------------------------------------------------------- corpora

    def _scene(self, split: Split, world_seed: int | None) -> Scene:
        if self._chosen.mode == "files":
            return self._file_scene
        return self._fixed_scene if world_seed is None else self._fresh_scene(split, world_seed)

    def _build_scene(self, worlds: Mapping[Split, World], corpus: Corpus) -> Scene:
        return Scene(worlds=worlds, corpus=corpus, index=self._index)

    def _index(self, passages: Sequence[Passage]) -> Retriever:
        retrieval = self._chosen.retrieval
        if retrieval == "bm25":
            return WordRetriever(passages)
        dense = DenseRetriever(passages, load_embedder(find_model(self._chosen.embedder), cache_folder()))
        return dense if retrieval == "dense" else HybridRetriever(WordRetriever(passages), dense)

    def _build_fresh_scene(self, split: Split, world_seed: int) -> Scene:
        world = build_world(world_seed, split, self._chosen.num_entities, self._chosen.num_words)
        corpus = write_corpus(
            [world],
            seed=world_seed,
            style=self._style,
            num_distractors=self._chosen.num_distractors,
        )
        return self._build_scene({split: world}, corpus)

    @cached_property
    def _fixed_scene(self) -> Scene:
        # An entity has 2.6 facts on average (at most 2.75), so two such worlds leave about a third of the passages for
        # distractors.
        num_entities = int(self._chosen.num_passages * 0.33 / 2.6)
        worlds: dict[Split, World] = {
            split: build_world(self._chosen.seed, split, num_entities, self._chosen.num_words)
            for split in get_args(Split)
        }
        num_distractors = self._chosen.num_passages - sum(len(world.facts) for world in worlds.values())
        corpus = write_corpus(
            tuple(worlds.values()),
            seed=self._chosen.seed,
            style=self._style,
            num_distractors=num_distractors,
        )
        return self._build_scene(worlds, corpus)

    def retriever(self, task: Task) -> Retriever:
        """Return the index for a task's searches."""
        return self._scene(task.payload["split"], task.payload["world"]).retriever

    # ------------------------------------------------------------------------------------------- episodes

    def build_environment(self, task: Task) -> Environment:
        """Build a fresh, single-use `SearchEnvironment` over the task's corpus."""
        return SearchEnvironment(
            retriever=self.retriever(task),
            reward=self._reward,
            top_k=self._chosen.top_k,
            document_format=self._chosen.document_format,
            search=self._chosen.search,
            reward_timeout_s=self._chosen.reward_timeout_s,
            tool_timeout_s=self._chosen.tool_timeout_s,
            max_observation_chars=self._chosen.max_observation_chars,
            normalize=self._chosen.normalize,
        )

    def gold_answer(self, task: Task) -> str:
        """Return the first of the task's right answers."""
        return str(task.payload["answers"][0])

    def answer_reply(self, task: Task, answer: str) -> Message:
        """Return the reply to the task that states only this answer; "" leaves its place empty."""
        return answer_message(answer)

    def find_fault(self, task: Task, trajectory: Trajectory) -> Fault | None:
        """See `FaultFinder`."""
        return find_search_fault(task, trajectory)

    def grade_hand_cases(self) -> list[GradedCase]:
        """See `TriedGrader`: short answers, by the recipe's reward and normal form."""
        return grade_short_answers(self._reward, self._chosen.normalize)

    def policies(self) -> Mapping[str, ScriptedPolicy]:
        """Return the policies "oracle", "random" and "naive"."""
        wording = self._chosen.wording
        naive = NaivePolicy(self._chosen.naive_wander, wording)
        return {"oracle": OraclePolicy(wording), "random": RandomPolicy(), "naive": naive}

    def sample_texts(self, index: int) -> Iterator[str]:
        """Yield prompts, tagged searches, results and answers."""
        task = self.task("train", index)
        yield from (message.text for message in task.prompt)
        yield from write_search(
            self.policy("oracle"),
            task,
            task.prompt,
            lambda query: format_documents(
                self.retriever(task).search(query, self._chosen.top_k), self._chosen.document_format
            ),
        )
