"""Computes the logits of planned items on the generic path, with the model's own attention, mixers and cache.

The scheduler's pages say what a request needs; this module keeps one state per conversation (`models.caches`) and one
per recent prompt, from which the other members of its group continue. Conversations whose next token is due step
together, all of them if the model's cache allows that, else those of equal length. An observation extends its
conversation's state, or the whole conversation is read again where the cache cannot extend by several tokens at once. A
model without a cache that can be continued computes every token from the whole sequence, in padded rows. So does any
model for a conversation with pictures whose positions have axes, by itself.

States are found by keys (`core.keys.to_keys`), in which the places of two pictures differ though their ids do not. Of
the pieces in which a long prompt is planned, only the last one computes anything: the whole prompt. So no picture is
read in two pieces, and its places may see each other in both directions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from turnwise.core.keys import Span
from turnwise.core.positions import number_positions
from turnwise.core.types import Session
from turnwise.engines.paged.scheduler import Item
from turnwise.engines.paged.seeing import KnownPictures
from turnwise.models.caches import Caches, State
from turnwise.models.checksums import compute_checksums
from turnwise.models.forward import Runs, compute_logits
from turnwise.models.paths import find_path
from turnwise.models.rope import depends_on_length, pin_length
from turnwise.models.routing import follow
from turnwise.models.vision.eyes import find_eyes
from turnwise.models.vision.inputs import TYPES
from turnwise.models.vision.placing import show

KEPT_STATES = 4
"""Conversations whose state is kept, in units of the requests that are sampled at once; the least recently used one is
read again if it continues."""


@dataclass(slots=True, eq=False)
class _Read:
    """The part of a conversation that was read."""

    keys: list[int]
    state: State


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is known of a conversation."""

    tokens: list[int]
    keys: list[int]
    images: Sequence[Span]


class GenericRunner:
    """Runs one model and keeps the states of its conversations. Implements `runner.Runner`."""

    is_fused = False
    experts = None

    def __init__(self, model: PreTrainedModel, *, max_concurrency: int, max_context: int) -> None:
        self.model = model
        self.vocab_size = int(model.config.get_text_config().vocab_size)
        if depends_on_length(model):
            pin_length(model, max_context)
        self._path = find_path(model)
        self._caches = Caches(model)
        self._conversations: OrderedDict[Session, _Read] = OrderedDict()
        self._max_conversations = KEPT_STATES * max_concurrency
        self._prompts: OrderedDict[tuple[int, ...], tuple[State, torch.Tensor]] = OrderedDict()
        self._max_prompts = max_concurrency
        self._parameters = list(model.parameters())
        eyes = find_eyes(model)
        self.pictures = None if eyes is None else KnownPictures(model, eyes)

    def weights_stamp(self) -> int:
        """See `ModelRunner.weights_stamp`."""
        return sum(parameter._version for parameter in self._parameters)

    def renew(self) -> None:
        """Drop all states: the weights changed."""
        self._conversations.clear()
        self._prompts.clear()
        if self.pictures is not None:
            self.pictures.renew()

    def compute_checksums(self) -> dict[str, int]:
        """Return one checksum per parameter with which the next step samples."""
        return compute_checksums(self.model)

    def copy_pages(self, copies: Sequence[tuple[int, int]]) -> None:
        """Do nothing: no page holds anything."""

    def scrub(self, pages: Sequence[int]) -> None:
        """Forget all states, which may hold non-finite numbers: they are read again."""
        self.renew()

    def forget(self, session: Session) -> None:
        """Forget the conversation."""
        self._conversations.pop(session, None)

    @torch.inference_mode()
    def run(self, items: Sequence[Item]) -> torch.Tensor:
        """Compute the logits `[R, V]` after the last known token of each item that samples, in order."""
        wanted = [item for item in items if item.samples]
        if not wanted:
            return torch.empty(0, self.vocab_size, device=self.model.device)
        is_whole = False
        try:
            logits = self._run(wanted)
            is_whole = True
        finally:
            if not is_whole:  # some layers may have read a token that others did not
                self.renew()
        return logits

    def _run(self, wanted: Sequence[Item]) -> torch.Tensor:
        known = {item.request.session: _known(item) for item in wanted}
        if not self._path.steps and not any(each.images for each in known.values()):
            return self._read_again([each.tokens for each in known.values()])
        logits: dict[Session, torch.Tensor] = {}
        stepping: list[Session] = []
        for session, each in known.items():
            read = self._find(session, each)
            due = len(each.tokens) - (0 if read is None else len(read.keys))
            if each.images and (not self._path.steps or any(span.grid is not None for span in each.images)):
                logits[session] = self._look(each)
            elif not self._path.steps:
                logits[session] = self._read_again([each.tokens])[0]
            elif read is None or (due > 1 and not self._path.extends):
                logits[session] = self._begin(session, each)
            elif due > 1:
                logits[session] = self._extend(session, read, each)
            else:
                stepping.append(session)
        for together in self._group(stepping):
            logits |= self._step(together, known)
        self._forget_oldest()
        return torch.stack([logits[item.request.session] for item in wanted])

    def _find(self, session: Session, known: _Known) -> _Read | None:
        """Return the state of a conversation if the known tokens continue it, else None."""
        read = self._conversations.get(session)
        if read is None or len(read.keys) >= len(known.keys) or known.keys[: len(read.keys)] != read.keys:
            return None
        return read

    def _keep(self, session: Session, keys: list[int], state: State) -> None:
        self._conversations[session] = _Read(keys, state)
        self._conversations.move_to_end(session)

    def _begin(self, session: Session, known: _Known) -> torch.Tensor:
        """Compute the logits `[V]` after all tokens of a conversation that was not read yet."""
        prompt = tuple(known.keys)
        if prompt not in self._prompts:
            logits, state = self._caches.begin(self._to_ids([known.tokens]), self._show(known, 0))
            self._prompts[prompt] = state, logits[0, -1]
            while len(self._prompts) > self._max_prompts:
                self._prompts.popitem(last=False)
        self._prompts.move_to_end(prompt)
        state, last = self._prompts[prompt]
        self._keep(session, known.keys, state)
        return last

    def _extend(self, session: Session, read: _Read, known: _Known) -> torch.Tensor:
        start = len(read.keys)
        logits, state = self._caches.extend(read.state, self._to_ids([known.tokens[start:]]), self._show(known, start))
        self._keep(session, known.keys, state)
        return logits[0, -1]

    def _group(self, sessions: Sequence[Session]) -> Iterator[list[Session]]:
        """Yield the conversations that step together: neighbouring rows of one cache, in its order."""
        if not self._path.batches:
            yield from ([session] for session in sessions)
            return
        by_length: dict[int, list[Session]] = {}
        for session in sessions:
            state = self._conversations[session].state
            by_length.setdefault(0 if self._path.merges else state.length, []).append(session)
        for together in by_length.values():
            states = {session: self._conversations[session].state for session in together}
            yield sorted(together, key=lambda session: (id(states[session].batch), states[session].row))

    def _step(self, sessions: Sequence[Session], known: Mapping[Session, _Known]) -> dict[Session, torch.Tensor]:
        states = [self._conversations[session].state for session in sessions]
        self._detach_others(sessions, states)
        logits, after = self._caches.step(states, self._to_ids([known[session].tokens[-1:] for session in sessions]))
        for session, state in zip(sessions, after, strict=True):
            self._keep(session, known[session].keys, state)
        return {session: row[-1] for session, row in zip(sessions, logits, strict=True)}

    def _detach_others(self, sessions: Sequence[Session], states: Sequence[State]) -> None:
        """Give waiting conversations their own state if their cache continues without them."""
        batches, going_on = {id(state.batch) for state in states}, set(sessions)
        for session, read in self._conversations.items():
            if session not in going_on and id(read.state.batch) in batches:
                read.state = self._caches.detach(read.state)

    def _forget_oldest(self) -> None:
        while len(self._conversations) > self._max_conversations:
            self._conversations.popitem(last=False)

    def _read_again(self, sequences: Sequence[list[int]]) -> torch.Tensor:
        """Compute the logits `[R, V]` after all tokens of every sequence, keeping no state."""
        lengths = [len(tokens) for tokens in sequences]
        device = self.model.device
        runs = Runs(
            token_ids=torch.tensor([token for tokens in sequences for token in tokens], device=device),
            positions=torch.cat([torch.arange(length, device=device) for length in lengths]),
            lengths=lengths,
            seen=None,
            num_seen=lengths,
        )
        return compute_logits(self.model, runs, torch.tensor(lengths, device=device).cumsum(0) - 1)[0]

    def _show(self, known: _Known, start: int) -> dict[str, torch.Tensor] | None:
        """Return the arguments of a forward for the tokens from `start` on, which are not in the middle of a picture;
        None if they show none."""
        if self.pictures is None:
            return None
        placed = self.pictures.place([known.images], [(0, start, len(known.tokens) - start, 0)])
        if placed is None:
            return None
        inputs = show(self.model, self._to_ids([known.tokens[start:]]), placed)
        if TYPES in inputs:
            inputs[TYPES] = functional.pad(inputs[TYPES], (start, 0))
        return inputs

    def _look(self, known: _Known) -> torch.Tensor:
        """Compute the logits `[V]` after all tokens of a conversation that shows pictures, keeping no state."""
        follow(None)
        positions = torch.from_numpy(number_positions(len(known.tokens), known.images)).to(self.model.device)
        axes = {"position_ids": positions[:, None]} if positions.ndim == 2 else {}
        inputs = self._show(known, 0)
        assert inputs is not None
        logits: torch.Tensor = self.model(**inputs, **axes, use_cache=False).logits
        return logits[0, -1]

    def _to_ids(self, rows: Sequence[list[int]]) -> torch.Tensor:
        return torch.tensor(rows, device=self.model.device)


def _known(item: Item) -> _Known:
    request = item.request
    count = item.start + item.count
    return _Known(request.tokens[:count], request.shared_by[:count], request.images)
