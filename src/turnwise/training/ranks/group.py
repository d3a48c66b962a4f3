"""The ranks of one trainer: they start, are asked together, answer together, and end together.

Every wait ends: with an answer of all, with the first rank that fails or ends, or when one has said nothing for too
long. Then all of them end, because the others wait for it inside a collective; what they held is in the checkpoint."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
import time
import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch.multiprocessing as multiprocessing

from turnwise.core.errors import TrainingError, boundary
from turnwise.training.ranks.communication import START_S
from turnwise.training.ranks.messages import encode_message, read_message
from turnwise.training.ranks.rank import REFUSALS, RankPlan, run_rank

SPEAK_S = 2.0
"""Seconds in which the others say what happened to them after one has failed in a collective."""
END_S = 5.0
"""Most seconds that a killed process may take to end."""
REMEDY = "Nothing that was stored is lost: continue from the last checkpoint with turnwise train --resume RUN"


@dataclass(slots=True, eq=False)
class _Rank:
    name: str
    process: Any
    end: socket.socket
    heard: float
    """When it last said something."""
    outcome: dict[str, Any] | None = None
    """Its last message but signs of life, of this question."""


class RankGroup:
    """Processes that answer questions together. Belongs to the thread that first asks, and ends with it."""

    def __init__(self, plan: RankPlan) -> None:
        """Starts nothing yet; `plan.folder` is made and removed here."""
        self._plan = plan
        self._ranks: list[_Rank] = []
        self._lost: str | None = None

    @property
    def pids(self) -> list[int]:
        """Of the ranks that run."""
        return [rank.process.pid for rank in self._ranks]

    def ask(self, kind: str, **fields: Any) -> list[Any]:
        """The answers of all ranks, in order.

        Raises what all of them raise alike (TrainingError, CheckpointError), after which they go on; and TrainingError
        naming the rank that failed, ended or is missing, after which the group has ended, and so does every later
        question.
        """
        if self._lost is not None:
            raise TrainingError(self._lost)
        try:
            if not self._ranks:
                self._start()
            self._tell(encode_message({"kind": kind, **fields}))
            return self._collect(f"while all were asked to {kind}", self._plan.deadline_s)
        except BaseException as error:
            # Also of an interrupt: ranks that are in the middle of a question cannot be asked another.
            if not isinstance(error, tuple(REFUSALS.values())) or self._lost is not None or not self._ranks:
                self._end(self._lost or f"the ranks were ended: {type(error).__name__} in the trainer. {REMEDY}")
            raise

    def close(self) -> None:
        """End all ranks. A second call does nothing."""
        self._end(self._lost or "the ranks were ended: the trainer was closed")

    def _start(self) -> None:
        folder = tempfile.mkdtemp(prefix="turnwise-ranks-")
        plan = replace(self._plan, folder=folder)
        context = multiprocessing.get_context("spawn")
        with boundary(TrainingError, "the ranks cannot be started"):
            for index in range(plan.size):
                ours, theirs = socket.socketpair()
                process = context.Process(
                    target=run_rank, args=(theirs, os.getpid(), index, plan), name=f"rank {index}", daemon=True
                )
                with contextlib.closing(theirs):
                    process.start()
                ours.settimeout(plan.deadline_s)
                name = f"rank {index} of {plan.size} (process {process.pid})"
                self._ranks.append(_Rank(name=name, process=process, end=ours, heard=time.monotonic()))
        weakref.finalize(self, _end_ranks, self._ranks, folder)
        self._collect("while they started", START_S)

    def _tell(self, message: bytes) -> None:
        for rank in self._ranks:
            rank.outcome, rank.heard = None, time.monotonic()
            try:
                rank.end.sendall(message)
            except TimeoutError:
                self._lose(f"{rank.name} does not read what it is sent", "while all were asked")
            except OSError:
                rank.outcome = {"ended": True}

    def _collect(self, when: str, silence_s: float) -> list[Any]:
        """Everybody's answer to what they were asked last."""
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                selector.register(rank.end, selectors.EVENT_READ, rank)
            while any(rank.outcome is None for rank in self._ranks):
                if any(_is_fatal(rank) for rank in self._ranks):
                    self._hear_others(selector)
                    break
                for key, _ in selector.select(timeout=min(1.0, silence_s / 4)):
                    _hear(key.data, selector)
                # Ranks that wait for one another notice it themselves, after the same time.
                late = [r for r in self._ranks if r.outcome is None and time.monotonic() - r.heard > 1.5 * silence_s]
                if late:
                    names = ", ".join(rank.name for rank in late)
                    self._lose(f"{names} said nothing for {1.5 * silence_s:g} s", when)
        self._judge(when)
        return [rank.outcome["answer"] for rank in self._ranks if rank.outcome is not None]

    def _hear_others(self, selector: selectors.BaseSelector) -> None:
        """After one rank has failed: wait a little for what the others have to say."""
        until = time.monotonic() + SPEAK_S
        while any(rank.outcome is None for rank in self._ranks) and time.monotonic() < until:
            for key, _ in selector.select(timeout=max(0.0, until - time.monotonic())):
                _hear(key.data, selector)

    def _judge(self, when: str) -> None:
        """Raise what the outcomes amount to, unless all are answers."""
        outcomes = [(rank, rank.outcome or {}) for rank in self._ranks]
        for rank, outcome in outcomes:
            if "ended" in outcome:
                rank.process.join(END_S)
                status = rank.process.exitcode
                how = f"was ended by signal {-status}" if status and status < 0 else f"ended with status {status}"
                self._lose(f"{rank.name} {how}", when)
        for _, outcome in outcomes:
            if "failed" in outcome and not _is_consequence(outcome["failed"]):
                self._lose(outcome["failed"], when)
        failed = [(rank, outcome["failed"]) for rank, outcome in outcomes if "failed" in outcome]
        if failed:
            missing = [rank.name for rank, outcome in outcomes if not outcome]
            names = f"{', '.join(missing)} did not take part" if missing else "the ranks lost one another"
            self._lose(f"{names}; the others waited ({failed[0][1]})", when)
        refused = [outcome.get("refused") for _, outcome in outcomes]
        if None not in refused and refused:
            kind, text = refused[0]  # type: ignore[misc]
            raise REFUSALS[kind](text)
        for rank, outcome in outcomes:
            if "refused" in outcome:
                self._lose(f"{rank.name} alone refused: {outcome['refused'][1]}", when)

    def _lose(self, what: str, when: str) -> None:
        self._lost = f"{what} {when}; nothing of it was published, and all ranks were ended. {REMEDY}"
        raise TrainingError(self._lost)

    def _end(self, reason: str) -> None:
        self._lost = reason
        _end_ranks(self._ranks, None)


def _is_fatal(rank: _Rank) -> bool:
    return rank.outcome is not None and ("failed" in rank.outcome or "ended" in rank.outcome)


def _is_consequence(text: str) -> bool:
    """Whether an error says that another rank was not there. torch has no type for it."""
    return "gloo" in text.lower() or "nccl" in text.lower() or "DistBackendError" in text


def _hear(rank: _Rank, selector: selectors.BaseSelector) -> None:
    """Take in one message."""
    try:
        message = read_message(rank.end)
    except TimeoutError:
        message = None
    rank.heard = time.monotonic()
    if message is None:
        # What it said before it ended says more.
        rank.outcome = rank.outcome if rank.outcome is not None else {"ended": True}
        selector.unregister(rank.end)
    elif "alive" not in message:
        rank.outcome = message


def _end_ranks(ranks: list[_Rank], folder: str | None) -> None:
    for rank in ranks:
        rank.process.kill()
        rank.end.close()
    for rank in ranks:
        rank.process.join(END_S)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
