"""A judge from a checkpoint: the policy as it was at some step, or another model with the same tokens."""

from __future__ import annotations

from itertools import count

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.messages import text_message
from turnwise.core.protocols import Engine, Renderer
from turnwise.core.types import SamplingParams, Session
from turnwise.core.verdicts import Question, Verdict
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.judging.replies import read_score, write_prompt


class FrozenOptions(Section):
    """Options of kind = "frozen"."""

    path: str
    """Directory of a checkpoint, such as runs/RUN/checkpoints/step_000000, with the tokenizer of the run."""
    max_tokens: int = Field(64, ge=1)
    """Most tokens of the judge's reply."""
    temperature: float = Field(0.0, ge=0)


class EngineJudge:
    """Implements `Judge`: a model behind an engine of its own. Each question is a conversation that ends with its
    reply."""

    def __init__(self, engine: Engine, renderer: Renderer, options: FrozenOptions, *, name: str) -> None:
        self._engine, self._renderer, self._options, self._name = engine, renderer, options, name
        self._numbers = count()

    async def judge(self, question: Question) -> Verdict:
        """Return the score in the model's reply. Raises RewardError if there is none in it, EngineError if the engine
        fails."""
        options, renderer = self._options, self._renderer
        prompt_ids = renderer.open([text_message("user", write_prompt(question))], ())
        params = SamplingParams(
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            stop=renderer.stop,
            stop_token_ids=renderer.stop_token_ids,
            seed=question.seed,
        )
        session = Session(f"judge/{self._name}", str(next(self._numbers)))
        try:
            completion = await self._engine.generate(prompt_ids, params, session=session)
        finally:
            await self._engine.release(session)
        text = renderer.parse(prompt_ids, completion.token_ids).text
        return Verdict(score=read_score(text), text=text, model=options.path)

    async def close(self) -> None:
        """See `Engine.close`."""
        await self._engine.close()


def build_frozen(parts: JudgeParts) -> EngineJudge:
    """Build the judge with an engine of its own."""
    options: FrozenOptions = parts.options
    engine, renderer = parts.load_model(options.path)
    return EngineJudge(engine, renderer, options, name=parts.name)


FROZEN = JudgeKind(
    name="frozen",
    summary="a checkpoint with the tokens of this run",
    options=FrozenOptions,
    checkpoint="path",
    build=build_frozen,
)
