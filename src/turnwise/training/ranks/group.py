"""The ranks of one trainer, which start, answer questions and end together.

Every wait ends: with answers from all ranks, with the first rank that fails or ends, or when one has been silent for
too long. In the latter cases all ranks end, because the others wait for it inside a collective; their state is in the
checkpoint.

A rank is *near* if it sees this process's memory, and thus its disk, and *far* otherwise: weights, rows and checkpoints
of a far rank go over its socket."""

from __future__ import annotations

import selectors
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError, TrainingError, boundary
from turnwise.core.notices import tell_loss, tell_start
from turnwise.hosts.host import Host, RunningProgram
from turnwise.hosts.leftovers import make_folder
from turnwise.hosts.thread import END_S, HostThread
from turnwise.models.checksums import sum_tensors
from turnwise.models.rows import find_rows
from turnwise.models.structure import list_tensors
from turnwise.store.checkpoint_folder import whole_folder
from turnwise.training.local import START_FOLDER
from turnwise.training.ranks.communication import START_S
from turnwise.training.ranks.messages import REFUSALS, encode_message, read_message
from turnwise.training.ranks.pieces import Piece, cut_folder, cut_tensors, put_file, put_pieces
from turnwise.training.ranks.plan import HOST_S, RankPlan, describe_ranks, start_programs

SPEAK_S = 2.0
"""Seconds that the other ranks have to report what happened to them after one has failed in a collective."""
REMEDY = "Nothing that was stored is lost: continue from the last checkpoint with --resume"


@dataclass(slots=True, eq=False, kw_only=True)
class _Rank:
    index: int
    name: str
    program: RunningProgram
    end: socket.socket
    heard: float
    """Time of its last message."""
    outcome: dict[str, Any] | None = None
    """Its last message about this question, heartbeats not counted."""
    is_near: bool = True
    rows: list[Piece] = field(default_factory=list)
    """Rows received from a far rank, kept aside until all ranks have finished."""


class RankGroup:
    """Processes, started by a host, that answer questions together. They end with `close` or with this process."""

    def __init__(self, plan: RankPlan, host: Host) -> None:
        """Starts no process yet."""
        self._plan = plan
        self._host = host
        self._ranks: list[_Rank] = []
        self._saving: Path | None = None
        """The folder of the checkpoint being saved."""
        self._lost: str | None = None
        self._end_ranks: weakref.finalize[..., Any] | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids of the running ranks, on their machines."""
        return [rank.program.pid or 0 for rank in self._ranks]

    @property
    def num_far(self) -> int:
        """Number of ranks that do not see this process's memory."""
        return sum(not rank.is_near for rank in self._ranks)

    def ask(self, kind: str, **fields: Any) -> list[Any]:
        """Ask all ranks and return their answers, in order.

        Raises an error on which all ranks agree (TrainingError, CheckpointError), after which they continue. Raises
        TrainingError naming the rank that failed, ended or is missing; the group has then ended, and every later
        question raises too.
        """
        if self._lost is not None:
            raise TrainingError(self._lost)
        try:
            if not self._ranks:
                self._start()
            self._saving = Path(fields["folder"]) if kind == "save" else None
            for rank in self._ranks:
                for message in () if rank.is_near else self._prepare(rank, kind, fields):
                    self._tell(rank, {"kind": "told", **message})
            question = encode_message({"kind": kind, **fields})
            for rank in self._ranks:
                self._tell(rank, question)
            refusal = self._collect(f"while all were asked to {kind}", self._plan.deadline_s)
            if kind == "publish":
                self._take_rows()
        except BaseException as error:
            # Even after an interrupt: ranks in the middle of a question cannot be asked another.
            self._end(self._lost or f"the ranks were ended: {type(error).__name__} in the trainer. {REMEDY}")
            raise
        if refusal is not None:
            raise refusal
        return [rank.outcome["answer"] for rank in self._ranks if rank.outcome is not None]

    def close(self) -> None:
        """End all ranks. A second call does nothing."""
        self._end(self._lost or "the ranks were ended: the trainer was closed")

    # ------------------------------------------------------------------------------------------------ the start

    def _start(self) -> None:
        plan = self._plan
        tell_start(f"starting {plan.size} trainer ranks")
        folder, thread = make_folder(Path(tempfile.gettempdir()), "turnwise-ranks-"), HostThread()
        self._end_ranks = weakref.finalize(self, _end_ranks, self._ranks, thread, folder)
        with boundary(TrainingError, "the ranks cannot be started"):
            try:
                started = thread.run(start_programs(self._host, plan, folder), HOST_S)
            except EngineError as cause:
                raise TrainingError(str(cause)) from cause
        for index, (program, end) in enumerate(started):
            end.settimeout(plan.deadline_s)
            name = f"rank {index} of {plan.size} (process {program.pid})"
            self._ranks.append(_Rank(index=index, name=name, program=program, end=end, heard=time.monotonic()))
        described = describe_ranks(plan, [program.address for program, _ in started])
        when = "while they started"
        for rank, settings in zip(self._ranks, described, strict=True):
            self._tell(rank, settings)
        self._collect(when, START_S)
        port = None
        for rank in self._ranks:
            assert rank.outcome is not None
            rank.is_near, port = rank.outcome["answer"]["is_near"], rank.outcome["answer"]["port"] or port
        for rank in self._ranks:
            for pieces in () if rank.is_near else cut_tensors(list_tensors(plan.source).items()):
                self._tell(rank, {"kind": "weights", "pieces": pieces})
        # All ranks have the weights before any waits for the others.
        meeting = {"kind": "meet", "address": described[0]["address"], "port": port, "is_shared": not self.num_far}
        for rank in self._ranks:
            self._tell(rank, meeting)
        self._collect(when, START_S)

    # ------------------------------------------------------------------------------------------------ far ranks

    def _prepare(self, rank: _Rank, kind: str, fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a far rank, before a question, what a near one would see by itself."""
        if kind in ("score", "step"):
            yield {"sums": sum_tensors(self._find_rows(rank))}
        if kind == "load":
            whole = whole_folder(Path(fields["folder"]))
            for folder in dict.fromkeys((whole, whole.parent / START_FOLDER)):
                yield from ({"file": piece} for piece in cut_folder(whole.parent, folder))

    def _find_rows(self, rank: _Rank) -> dict[str, Any]:
        """Return the rank's rows of the policy in this process, in place."""
        parameters = self._plan.source.named_parameters()
        return {name: find_rows(whole.detach(), rank.index, self._plan.size) for name, whole in parameters}

    def _take_rows(self) -> None:
        for rank in self._ranks:
            if rank.rows:
                put_pieces(rank.rows, self._find_rows(rank))
                rank.rows = []

    # ------------------------------------------------------------------------------------------------ questions

    def _tell(self, rank: _Rank, message: Mapping[str, Any] | bytes) -> None:
        rank.outcome, rank.heard = None, time.monotonic()
        try:
            rank.end.sendall(message if isinstance(message, bytes) else encode_message(message))
        except TimeoutError:
            self._lose(f"{rank.name} does not read what it is sent", "while all were asked")
        except OSError:
            rank.outcome = {"ended": True}

    def _collect(self, when: str, silence_s: float) -> Exception | None:
        """Wait for every rank's answer to the last question. Returns the error on which all agree, if any."""
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                selector.register(rank.end, selectors.EVENT_READ, rank)
            while any(rank.outcome is None for rank in self._ranks):
                if any(_is_fatal(rank) for rank in self._ranks):
                    self._hear_others(selector)
                    break
                for key, _ in selector.select(timeout=min(1.0, silence_s / 4)):
                    self._hear(key.data, selector)
                # Ranks that wait for one another notice this themselves, after the same time.
                late = [r for r in self._ranks if r.outcome is None and time.monotonic() - r.heard > 1.5 * silence_s]
                if late:
                    names = ", ".join(rank.name for rank in late)
                    self._lose(f"{names} said nothing for {1.5 * silence_s:g} s", when)
        return self._judge(when)

    def _hear(self, rank: _Rank, selector: selectors.BaseSelector) -> None:
        """Receive one message."""
        try:
            message = read_message(rank.end)
        except TimeoutError:
            message = None
        rank.heard = time.monotonic()
        if message is None:
            # Its last message before it ended is more informative.
            rank.outcome = rank.outcome if rank.outcome is not None else {"ended": True}
            selector.unregister(rank.end)
        elif "rows" in message:
            rank.rows += message["rows"]
        elif "file" in message and self._saving is not None:
            put_file(self._saving, message["file"])
        elif "alive" not in message:
            rank.outcome = message

    def _hear_others(self, selector: selectors.BaseSelector) -> None:
        """After one rank has failed, wait briefly for what the others report."""
        until = time.monotonic() + SPEAK_S
        while any(rank.outcome is None for rank in self._ranks) and time.monotonic() < until:
            for key, _ in selector.select(timeout=max(0.0, until - time.monotonic())):
                self._hear(key.data, selector)

    def _judge(self, when: str) -> Exception | None:
        """Raise the error that the outcomes amount to. Returns None if all are answers, and the common error if all
        refuse alike."""
        outcomes = [(rank, rank.outcome or {}) for rank in self._ranks]
        for rank, outcome in outcomes:
            if "ended" in outcome:
                self._lose(_describe_end(rank), when)
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
            return REFUSALS[kind](text)
        for rank, outcome in outcomes:
            if "refused" in outcome:
                self._lose(f"{rank.name} alone refused: {outcome['refused'][1]}", when)
        return None

    def _lose(self, what: str, when: str) -> None:
        tell_loss(f"{what} {when}")
        self._lost = f"{what} {when}; nothing of it was published, and all ranks were ended. {REMEDY}"
        raise TrainingError(self._lost)

    def _end(self, reason: str) -> None:
        self._lost = reason
        if self._end_ranks is not None:
            self._end_ranks()


def _describe_end(rank: _Rank) -> str:
    """Describe how a rank ended, with the end of its log if there is one."""
    rank.program.join(END_S)
    status, log = rank.program.exitcode, rank.program.read_log()
    if status is None:
        how = "was lost with what ran it"
    else:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{rank.name} {how}" + (f" (the end of its log: {log})" if log else "")


def _is_fatal(rank: _Rank) -> bool:
    return rank.outcome is not None and ("failed" in rank.outcome or "ended" in rank.outcome)


def _is_consequence(text: str) -> bool:
    """Return whether an error says that another rank was missing. torch has no type for it."""
    return any(word in text for word in ("gloo", "Gloo", "NCCL", "nccl", "DistBackendError", "DistNetworkError"))


def _end_ranks(ranks: list[_Rank], thread: HostThread, folder: Path) -> None:
    thread.close([rank.program for rank in ranks])
    for rank in ranks:
        rank.end.close()
    shutil.rmtree(folder, ignore_errors=True)
