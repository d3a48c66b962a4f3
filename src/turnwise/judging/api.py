"""A judge behind an API, OpenAI-style or Anthropic-style."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from turnwise.core.errors import ConfigError, RewardError, boundary
from turnwise.core.messages import Message
from turnwise.core.pictures import Pictures
from turnwise.core.verdicts import Form, Usage
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.judging.text import TextJudge, TextOptions, Written
from turnwise.pictures.chat_parts import embed, write_anthropic_content, write_content
from turnwise.questions.replies import build_schema
from turnwise.tools.chat_api import ChatApi, Dialect

PAUSES_S = (0.5, 2.0, 8.0)
"""Pauses in seconds before a request is sent again to a server that is busy, away or failing."""


class ApiOptions(TextOptions):
    """Options of kind = "api"."""

    url: str
    """Root of the API, for example "http://127.0.0.1:8000/v1"."""
    model: str
    dialect: Dialect = Field("openai", validate_default=True)
    """"openai": requests to URL/chat/completions, a key from OPENAI_API_KEY. "anthropic": to URL/messages, a key from
    ANTHROPIC_API_KEY."""
    sends_pictures: bool = False
    """Whether the judge gets the pictures in what it judges; if not, it reads their sizes and names in their places."""


class ApiJudge(TextJudge):
    """Implements `CheckedJudge`."""

    def __init__(self, writer: ApiWriter, options: ApiOptions) -> None:
        super().__init__(writer, options, model=options.model, sees_pictures=options.sends_pictures)
        self._api = writer.api

    async def check(self) -> None:
        """See `ChatApi.check`."""
        await self._api.check()


class ApiWriter:
    """Implements `Writer`: a request for each prompt."""

    def __init__(self, api: ChatApi, options: ApiOptions, pictures: Pictures | None) -> None:
        self.api, self._options, self._pictures = api, options, pictures

    async def write(self, prompt: Message, form: Form | None, *, seed: int) -> Written:
        """See `Writer.write`."""
        options = self._options
        settings: dict[str, Any] = {"temperature": options.temperature}
        if form is not None:
            schema = {"name": "verdict", "strict": True, "schema": build_schema(form)}
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        with boundary(RewardError, self.api.url):
            content = (
                write_content(prompt.content, embed(self._pictures))
                if options.dialect == "openai"
                else write_anthropic_content(prompt.content, self._pictures)
            )
            reply = await self.api.reply(
                [{"role": "user", "content": content}], max_tokens=options.max_tokens, seed=seed, **settings
            )
        return Written(
            text=reply.text,
            is_cut=reply.is_cut,
            refusal=reply.refusal,
            usage=Usage(prompt_tokens=reply.prompt_tokens, reply_tokens=reply.reply_tokens),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()


def build_api(parts: JudgeParts) -> ApiJudge:
    """Build the judge; pauses after a failed request are part of the attempt's deadline."""
    options: ApiOptions = parts.options
    if options.guided and options.dialect == "anthropic":
        raise ConfigError(
            f"judges.{parts.name}.options.guided=true: an Anthropic-style API takes no response_format; use "
            "dialect='openai' or guided=false"
        )
    api = ChatApi(
        options.url,
        options.model,
        max_tokens=options.max_tokens,
        seed=parts.seed,
        source=f"judges.{parts.name}.options.url",
        max_concurrent=parts.max_concurrent,
        timeout_s=parts.timeout_s,
        retries_s=PAUSES_S,
        dialect=options.dialect,
    )
    return ApiJudge(ApiWriter(api, options, parts.pictures), options)


API = JudgeKind(
    name="api", summary="a model behind an OpenAI- or Anthropic-style API", options=ApiOptions, build=build_api
)
