"""A judge behind an OpenAI-style API."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section
from turnwise.core.errors import RewardError, boundary
from turnwise.core.verdicts import Question, Verdict
from turnwise.judging.judge_kind import JudgeKind, JudgeParts
from turnwise.judging.replies import read_score, write_prompt
from turnwise.tools.chat_api import ChatApi


class ApiOptions(Section):
    """Options of kind = "api"."""

    url: str
    """Root of the API, for example "http://127.0.0.1:8000/v1"; a key is read from OPENAI_API_KEY."""
    model: str
    max_tokens: int = Field(256, ge=1)
    """Most tokens of the judge's reply."""
    temperature: float = Field(0.0, ge=0)


class ApiJudge:
    """Implements `CheckedJudge`."""

    def __init__(self, api: ChatApi, options: ApiOptions) -> None:
        self._api, self._options = api, options

    async def judge(self, question: Question) -> Verdict:
        """Return the score in the model's reply. Raises RewardError if there is no reply or no score in it."""
        options = self._options
        with boundary(RewardError, self._api.url):
            text = await self._api.complete(
                [{"role": "user", "content": write_prompt(question)}],
                max_tokens=options.max_tokens,
                seed=question.seed,
                temperature=options.temperature,
            )
        return Verdict(score=read_score(text), text=text, model=options.model)

    async def check(self) -> None:
        """See `ChatApi.check`."""
        await self._api.check()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()


def build_api(parts: JudgeParts) -> ApiJudge:
    """Build the judge; the run repeats a failed question, so the connection does not."""
    options: ApiOptions = parts.options
    api = ChatApi(
        options.url,
        options.model,
        max_tokens=options.max_tokens,
        seed=parts.seed,
        source=f"judges.{parts.name}.options.url",
        max_concurrent=parts.max_concurrent,
        timeout_s=parts.timeout_s,
        retries_s=(),
    )
    return ApiJudge(api, options)


API = JudgeKind(name="api", summary="a model behind an OpenAI-style API", options=ApiOptions, build=build_api)
