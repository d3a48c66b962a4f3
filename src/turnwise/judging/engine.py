"""Judges that this process samples: a checkpoint, such as the policy as it was at some step, and the policy as it
is."""

from __future__ import annotations

import re
from itertools import count

from pydantic import Field

from turnwise.core.asking import ask_engine
from turnwise.core.errors import ConfigError
from turnwise.core.messages import Message
from turnwise.core.prompts import open_prompt
from turnwise.core.protocols import Engine, Renderer
from turnwise.core.types import FinishReason, Grammar, SamplingParams, Session
from turnwise.core.verdicts import Form, Usage
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.judging.text import TextJudge, TextOptions, Written
from turnwise.questions.replies import build_regex
from turnwise.rendering.images import find_pictures

_END_TAG = re.compile(r"\s*</\w+>\s*\Z")
"""A tag that ends the turn of an agent, and no verdict."""


class EngineOptions(TextOptions):
    """Options of kind = "policy"."""

    max_tokens: int = Field(64, ge=1)
    """Most tokens of the judge's reply."""


class FrozenOptions(EngineOptions):
    """Options of kind = "frozen"."""

    path: str
    """Directory of a checkpoint, such as runs/RUN/checkpoints/step_000000, with the tokenizer of the run."""


class EngineWriter:
    """Implements `Writer`: each prompt is a conversation that ends with its reply."""

    def __init__(
        self, engine: Engine, renderer: Renderer, options: TextOptions, *, name: str, owns_engine: bool
    ) -> None:
        self._engine, self._renderer, self._options, self._name = engine, renderer, options, name
        self._owns_engine = owns_engine
        self._numbers = count()

    @property
    def version(self) -> int:
        """The version of the weights that reply."""
        return self._engine.version

    async def write(self, prompt: Message, form: Form | None, *, seed: int) -> Written:
        """See `Writer.write`."""
        options, renderer = self._options, self._renderer
        shown = open_prompt(renderer, [prompt], ())
        params = SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            grammar=None if form is None else Grammar(kind="regex", text=build_regex(form)),
            stop=renderer.stop,
            stop_token_ids=renderer.stop_token_ids,
            seed=seed,
        )
        session = Session(f"judge/{self._name}", str(next(self._numbers)))
        try:
            completion = await ask_engine(self._engine, shown, params, session)
        finally:
            await self._engine.release(session)
        text = renderer.parse(shown.token_ids, completion.token_ids).text
        return Written(
            text=_END_TAG.sub("", text),
            is_cut=completion.finish_reason is FinishReason.LENGTH,
            usage=Usage(prompt_tokens=len(shown.token_ids), reply_tokens=len(completion.token_ids)),
        )

    async def close(self) -> None:
        """See `Engine.close`; the run closes the policy's engine itself."""
        if self._owns_engine:
            await self._engine.close()


class PolicyJudge(TextJudge):
    """Implements `ChangingJudge`."""

    def __init__(self, writer: EngineWriter, options: TextOptions, *, sees_pictures: bool = False) -> None:
        super().__init__(writer, options, model="policy", sees_pictures=sees_pictures)
        self._engine_writer = writer

    @property
    def version(self) -> int:
        """The version of the weights that judge next."""
        return self._engine_writer.version


def check_guided(parts: JudgeParts, options: EngineOptions) -> None:
    """Raise ConfigError if the reply should follow a grammar and the engine cannot."""
    if options.guided and not parts.follows_grammars:
        raise ConfigError(
            f"judges.{parts.name}.options.guided=true needs an engine that follows grammars; use engine.kind='paged'"
        )


def build_frozen(parts: JudgeParts) -> TextJudge:
    """Build the judge with an engine of its own."""
    options: FrozenOptions = parts.options
    check_guided(parts, options)
    engine, renderer = parts.load_model(options.path)
    return TextJudge(
        EngineWriter(engine, renderer, options, name=parts.name, owns_engine=True),
        options,
        model=options.path,
        sees_pictures=find_pictures(renderer) is not None,
    )


def build_policy(parts: JudgeParts) -> PolicyJudge:
    """Build the judge on the engine that samples the episodes."""
    options: EngineOptions = parts.options
    check_guided(parts, options)
    engine, renderer = parts.load_policy()
    writer = EngineWriter(engine, renderer, options, name=parts.name, owns_engine=False)
    return PolicyJudge(writer, options, sees_pictures=find_pictures(renderer) is not None)


FROZEN = JudgeKind(
    name="frozen",
    summary="a checkpoint with the tokens of this run",
    options=FrozenOptions,
    checkpoint="path",
    build=build_frozen,
)
POLICY = JudgeKind(
    name="policy", summary="the policy that learns, with its present weights", options=EngineOptions, build=build_policy
)
