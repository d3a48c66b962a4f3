"""A judge that writes: one prompt, one reply, and the verdict in it, whoever writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import RewardError
from turnwise.core.judging import NoVerdict
from turnwise.core.messages import Message, TextPart
from turnwise.core.verdicts import Form, Question, Usage, Verdict
from turnwise.questions.prompts import MAX_CHARS, attach_pictures, write_prompt
from turnwise.questions.replies import read_reply


class TextOptions(Section):
    """Options of every judge that writes."""

    max_tokens: int = Field(256, ge=1)
    """Most tokens of the judge's reply."""
    temperature: float = Field(0.0, ge=0)
    guided: bool = False
    """Whether the reply must have the form's values: by a grammar in the engine, which leaves only the lines of the
    verdict, or by the JSON schema of a request's `response_format`, with a reason before them."""
    max_chars: int = Field(MAX_CHARS, ge=16)
    """Most characters that the judge reads of each judged text; of a longer one it reads the two ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A reply to a prompt."""

    text: str
    is_cut: bool
    """Whether `max_tokens` ended it."""
    usage: Usage
    refusal: str = ""


class Writer(Protocol):
    """Replies to one prompt: an engine or a server."""

    async def write(self, prompt: Message, form: Form | None, *, seed: int) -> Written:
        """Return the reply; `form` is what it must have the form of, if anything. The prompt has pictures only for
        judges that see. Raises EngineError or RewardError if there is none."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...


class TextJudge:
    """Implements `Judge`."""

    def __init__(self, writer: Writer, options: TextOptions, *, model: str, sees_pictures: bool = False) -> None:
        """A judge that `sees_pictures` gets those of a question; any other is told what it does not see."""
        self.writer, self._options, self._model, self._sees = writer, options, model, sees_pictures

    async def judge(self, question: Question) -> Verdict:
        """Return the verdict in the reply. Raises NoVerdict if there is none in it: it was cut or refused, or lacks a
        mark of the form."""
        options, form = self._options, question.form
        text = write_prompt(question, max_chars=options.max_chars, shows_pictures=self._sees)
        shown = attach_pictures(question) if self._sees else ()
        prompt = Message(role="user", content=(*shown, TextPart(text=text)))
        written = await self.writer.write(prompt, form if options.guided and form.marks else None, seed=question.seed)
        try:
            if written.refusal:
                raise RewardError(f"it refused: {written.refusal[:200]}")
            if written.is_cut and form.marks:
                raise RewardError(f"its reply was cut at max_tokens={options.max_tokens}; raise it")
            score, marks = read_reply(written.text, form)
        except RewardError as problem:
            raise NoVerdict(str(problem), written.usage) from None
        return Verdict(score=score, marks=marks, text=written.text, model=self._model, usage=written.usage)

    async def close(self) -> None:
        """See `Writer.close`."""
        await self.writer.close()
