"""One question researched by the policy of a run, checked and written as a page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.judging import EpisodeJudges, list_stored_judges
from turnwise.core.types import Draw, Invalid, Task, Trajectory
from turnwise.environments.arguments import read_arguments
from turnwise.environments.search_qa.retrieval import WordRetriever
from turnwise.rewards.answers import AnswerCase, final_answer
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.workers import RolloutWorker
from turnwise.runs.build import System
from turnwise.runs.data_files import check_data_files
from turnwise.runs.evaluate import load_trained_system
from turnwise.runs.openings import take_task
from turnwise.store.run_folder import write_bytes_atomic
from turnwise_synthesis.research.desk import list_sections
from turnwise_synthesis.research.files.arguments import FileArguments
from turnwise_synthesis.research.files.corpus import load_own_corpus
from turnwise_synthesis.research.files.family import FileResearch, build_own_research, write_question
from turnwise_synthesis.research.files.sources import check_own_report, find_sections
from turnwise_synthesis.research.page import Research, write_page
from turnwise_synthesis.research.world.family import WorldResearch

PAGE = "research.html"


def run_research(
    run: Path,
    *,
    question: str | None,
    corpus: Path | None,
    judge: str,
    index: int,
    output: Path | None,
    step: int | str | None = None,
    device: str | None = None,
) -> Iterator[str]:
    """Research a question with the policy of a run and write the page; yields lines for the reader.

    `corpus` None searches what the run's environment does: the generated world of held-out task `index`, whose own
    question is the default, or the run's corpus. `step` and `device` None are the latest and the run's. Raises
    ConfigError for a judge that the run does not have, DataError for an empty corpus, a question without words,
    one that the world does not answer or an output that cannot be written, and as `load_trained_system` does."""
    if question is not None and not question.strip():
        raise DataError("the question is empty; write what is to be researched")
    folder, system, at = load_trained_system(run, step, device=device)
    check_data_files(folder.path, system.family)
    yield f"checkpoint of step {at}"
    family = system.family
    if corpus is None and isinstance(family, WorldResearch):
        task = family.ask(question, index) if question is not None else _take(system, index)
        shown = asyncio.run(_research_world(system, family, task))
    else:
        if isinstance(family, FileResearch) and corpus is None:
            chosen = family.arguments.model_copy(update={"judge": judge or family.arguments.judge})
        elif corpus is not None:
            chosen = read_arguments(FileArguments, {"mode": "files", "corpus_path": str(corpus), "judge": judge})
        else:
            raise ConfigError(
                f"{run} was trained on {system.config.environment.name!r}, which has no world to research; give "
                "passages with --corpus"
            )
        if chosen.judge and chosen.judge not in system.judges:
            known = ", ".join(system.judges) or "none"
            raise ConfigError(f"--judge {chosen.judge!r} is no judge of this run's recipe; it has {known}")
        if question is None:
            question = str(_take(system, index).payload.get("question", "")) if corpus is None else ""
        if not question:
            raise DataError("a corpus needs a question; write it behind the run")
        shown = asyncio.run(_research_corpus(system, chosen, question))
    yield from _describe(shown)
    path = output or folder.path / PAGE
    try:
        # Text may hold half a surrogate pair, which UTF-8 cannot encode: it becomes "?".
        write_bytes_atomic(path, write_page(shown).encode("utf-8", "replace"))
    except OSError as cause:
        raise DataError(f"cannot write {path}: {cause.strerror}; name a file in an existing folder") from cause
    yield f"page {path}"


async def _research_world(system: System, family: WorldResearch, task: Task) -> Research:
    trajectory = await _play(system, system.worker("evaluate"), task)
    records, answer = family.records(task, trajectory), find_answer(trajectory)
    [truth] = task.payload["answers"]
    reward = trajectory.reward
    is_right = not isinstance(reward, Invalid) and reward.part("answered") == 1
    return Research(
        question=f"What is the {task.payload['question']}?",
        answer=answer,
        verdict="right" if is_right else f"wrong: the best page says {truth}",
        sections=list_sections(records),
        checked=family.check(task, records),
        records=records,
        origins={},
        notes=_list_notes(trajectory),
    )


async def _research_corpus(system: System, chosen: FileArguments, question: str) -> Research:
    corpus = load_own_corpus(
        Path(chosen.corpus_path), passage_words=chosen.passage_words, max_bad_rows=chosen.max_bad_rows
    )
    retriever = WordRetriever(corpus.passages)
    payload = {"question": question, "answers": [], "sections": []}
    task = Task(environment=FileResearch.name, prompt=write_question(question), payload=payload)
    worker = replace(system.worker("evaluate"), build_environment=lambda _: build_own_research(chosen, retriever))
    trajectory = await _play(system, worker, task)
    records, answer = [each for turn in trajectory.turns for each in turn.tool_records], find_answer(trajectory)
    judges = EpisodeJudges(list_stored_judges(trajectory.judgements))
    return Research(
        question=question,
        answer=answer,
        verdict="",
        sections=find_sections(records, answer),
        checked=await check_own_report(records, answer, question, chosen, judges),
        records=records,
        origins={each.id: origin for each, origin in zip(corpus.passages, corpus.origins, strict=True)},
        notes=[*_list_notes(trajectory), *corpus.notes, _say_how(chosen)],
    )


async def _play(system: System, worker: RolloutWorker, task: Task) -> Trajectory:
    try:
        episode = await worker.run_attempt(Attempt(draw=Draw(index=0, task=task), member=0))
    finally:
        await system.close()
    [trajectory] = episode.trajectories
    return trajectory


def _take(system: System, index: int) -> Task:
    return take_task(system.family, "heldout", index, f"the held-out split has no task {index}; use a smaller --task")


def find_answer(trajectory: Trajectory) -> str | None:
    """Return the answer of an episode, None if a limit ended it before there was one."""
    replies = [turn.message for turn in trajectory.turns]
    return final_answer(AnswerCase(replies=replies, golds=(), stop=trajectory.stop))


def _list_notes(trajectory: Trajectory) -> list[str]:
    """What a reader should know of how the episode ended."""
    notes = [f"The episode ended by a limit: {trajectory.stop}."] if trajectory.stop.is_truncated else []
    if trajectory.error is not None:
        notes.append(f"The episode failed: {trajectory.error}")
    return notes


def _say_how(chosen: FileArguments) -> str:
    if chosen.judge:
        return f"Whether a passage supports a claim was decided by the judge {chosen.judge}."
    return "No judge was named: a passage supports a claim only if it contains its words."


def _describe(shown: Research) -> Iterator[str]:
    """The outcome in lines."""
    checked = shown.checked
    count = sum(len(ledger.entries) for ledger in checked.ledgers)
    supported = sum(ledger.num_supported for ledger in checked.ledgers)
    yield from shown.notes
    verdict = f" ({shown.verdict})" if shown.verdict else ""
    yield f"answer: {shown.answer}{verdict}" if shown.answer is not None else "no answer"
    yield f"{supported} of {count} claims supported, {checked.num_fabricated} citations of passages that do not exist"
    if not any(record.call.name == "search" and record.error is None for record in shown.records):
        yield "no search was made"
