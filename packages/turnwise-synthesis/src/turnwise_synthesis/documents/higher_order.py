"""Higher-order actions (HAS, AgentFounder, arXiv 2509.13310): a trajectory's steps as choices among alternatives, and
its outcome at the end. And the control: the same trajectories as plain text.

    Question: What is the birthplace of the author of Blue Lantern ?
    1 search author of Blue Lantern 2 answer Mira Tolen So 1 <search> author of Blue Lantern </search>
    ...
    It was right.

Alternatives are not executed. Deviation: the paper samples alternatives from a model; here proposers make them, which
may be scripted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from turnwise.core.documents import Document
from turnwise.core.messages import TextPart
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.seeds import rng
from turnwise.core.types import Message, text_message
from turnwise_synthesis.documents.ledger import Ledger
from turnwise_synthesis.documents.trajectories import Told
from turnwise_synthesis.documents.writers import describe_action

HAS, PLAIN = "has", "plain"
RIGHT, WRONG = "It was right.", "It was wrong."


class Proposer(Protocol):
    """Proposes actions for a step."""

    async def propose(self, told: Told, step: int, rng: Random) -> str | None:
        """Return an action in the words of `describe_action`; None where it has none."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedProposer:
    """Implements `Proposer` with a policy: what it would reply there."""

    policy: ScriptedPolicy

    async def propose(self, told: Told, step: int, rng: Random) -> str | None:
        """See `Proposer.propose`."""
        if told.task is None:
            return None
        return " ".join(describe_action(self.policy.reply(told.task, told.before(step), rng)))


async def build_choices(
    trajectories: Sequence[Told],
    proposers: Sequence[Proposer],
    ledger: Ledger,
    *,
    seed: int,
    alternatives: int = 2,
    tries: int = 4,
) -> list[Document]:
    """Return a document per trajectory: every step that has alternatives lists them with the real action, in random
    order, and names it; the outcome follows at the end.

    At most `alternatives` per step, from `tries` rounds over the proposers. A trajectory without an outcome, or without
    any alternative, is dropped."""
    documents = []
    for told in trajectories:
        if told.succeeded is None:
            ledger.drop(HAS, told.id, "no_outcome")
            continue
        random, replies, has_choice = rng(seed, HAS, told.id), [], False
        for number, step in enumerate(told.steps):
            real = " ".join(describe_action(step.reply))
            others = await _list_alternatives(told, number, real, proposers, random, alternatives, tries)
            has_choice = has_choice or bool(others)
            replies.append(_offer(step.reply, real, others, random) if others else step.reply)
        if not has_choice:
            ledger.drop(HAS, told.id, "no_choice")
            continue
        outcome = text_message("user", RIGHT if told.succeeded else WRONG)
        if (kept := ledger.keep(HAS, _write(HAS, told, replies, outcome))) is not None:
            documents.append(kept)
    return documents


def build_plain(trajectories: Sequence[Told], ledger: Ledger) -> list[Document]:
    """Return the same trajectories as they are: the control of `build_choices`."""
    documents = []
    for told in trajectories:
        if told.succeeded is None:
            ledger.drop(PLAIN, told.id, "no_outcome")
        elif (kept := ledger.keep(PLAIN, _write(PLAIN, told, [step.reply for step in told.steps]))) is not None:
            documents.append(kept)
    return documents


def _write(kind: str, told: Told, replies: Sequence[Message], *end: Message) -> Document:
    messages = list(told.opening)
    for reply, step in zip(replies, told.steps, strict=True):
        messages += [reply, *step.observations]
    return Document(id=f"{kind}/{told.id}", messages=(*messages, *end), tools=told.tools)


async def _list_alternatives(
    told: Told, step: int, real: str, proposers: Sequence[Proposer], random: Random, most: int, tries: int
) -> list[str]:
    """Return different actions, none of them the real one."""
    found: list[str] = []
    for _ in range(tries):
        for proposer in proposers:
            if len(found) >= most:
                return found
            action = await proposer.propose(told, step, random)
            if action is not None and action.strip() and action not in (real, *found):
                found.append(action)
    return found


def _offer(reply: Message, real: str, others: Sequence[str], random: Random) -> Message:
    """Return the reply with the options before it."""
    options = [real, *others]
    random.shuffle(options)
    listed = " ".join(f"{number} {option}" for number, option in enumerate(options, start=1))
    offered = f"{listed} So {options.index(real) + 1}"
    text = f"{offered} {reply.text}" if reply.text.strip() else offered
    return replace(reply, content=(*reply.images, TextPart(text=text)))
