"""Policies that speak for a role of an episode: an engine, or a policy written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from turnwise.core.asking import ask_engine
from turnwise.core.errors import EngineError, EnvironmentFault, boundary
from turnwise.core.protocols import Engine, Renderer, ScriptedPolicy
from turnwise.core.types import Completion, FinishReason, Message, SamplingParams, Session, Task, to_floats
from turnwise.rollout.attempt import Attempt
from turnwise.rollout.conversation import Conversation


class RolePolicy(Protocol):
    """Answers in the conversations of one role."""

    @property
    def renderer(self) -> Renderer:
        """Converts its conversations into token ids."""
        ...

    @property
    def learns(self) -> bool:
        """Whether this is the policy that is trained."""
        ...

    def of(self, attempt: Attempt) -> RolePolicy:
        """Return the policy for an attempt; most return themselves."""
        ...

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """Return the next reply. Raises EngineError or EnvironmentFault."""
        ...

    async def release(self, session: Session) -> None:
        """Note that a conversation will not be asked for a while; its cache may be freed."""
        ...

    async def close(self) -> None:
        """Free what it holds. Further calls do nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePolicy:
    """Implements `RolePolicy`: a model behind an engine."""

    engine: Engine
    renderer: Renderer
    learns: bool = True

    def of(self, attempt: Attempt) -> EnginePolicy:
        """Return itself."""
        return self

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """See `Engine.generate`."""
        with boundary(EngineError, f"the engine failed in session {session}"):
            return await ask_engine(self.engine, conversation.prompt, params, session)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        await self.engine.release(session)

    async def close(self) -> None:
        """See `Engine.close`."""
        await self.engine.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedRole:
    """Implements `RolePolicy`: a policy written by hand.

    Its replies are not sampled from a model, so their log-probabilities are NaN.
    """

    policy: ScriptedPolicy
    renderer: Renderer
    learns: bool = False

    def of(self, attempt: Attempt) -> ScriptedRole:
        """Return itself."""
        return self

    async def reply(
        self, task: Task, conversation: Conversation, params: SamplingParams, session: Session
    ) -> Completion:
        """Return the policy's next message as tokens. All its randomness derives from `params.seed`."""
        with boundary(EnvironmentFault, f"the policy {type(self.policy).__name__} in task {task.id}"):
            message = self.policy.reply(task, conversation.messages, Random(params.seed))
        return encode_scripted(message, self.renderer)

    async def release(self, session: Session) -> None:
        """Do nothing: nothing is held."""

    async def close(self) -> None:
        """Do nothing: nothing is held."""


def encode_scripted(message: Message, renderer: Renderer) -> Completion:
    """Encode a reply that no model sampled as a completion of version 0; its log-probabilities are NaN (unknown)."""
    token_ids = renderer.encode_reply(message)
    return Completion(
        token_ids=token_ids,
        logprobs=to_floats(np.full(len(token_ids), np.nan)),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )
