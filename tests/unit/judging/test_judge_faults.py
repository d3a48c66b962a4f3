"""Faults of judges' servers: each is a reason why there is no verdict, never a score."""

import asyncio
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from chat_server import Reply, chat_completion, chat_server
from judge_parts import make_parts

from turnwise.config.judges import JudgeSection
from turnwise.core.errors import ConfigError
from turnwise.core.judging import NoVerdict
from turnwise.core.messages import text_message
from turnwise.core.verdicts import RATING, Form, Question, Usage, Verdict
from turnwise.judging import api
from turnwise.judging.limits import LimitedJudge
from turnwise.judging.table import build_judge, find_judge
from turnwise.questions.forms import criteria, match


def build(url: str, options: dict[str, Any] | None = None, **limits: Any) -> LimitedJudge:
    given = {"url": url, "model": "m", **(options or {})}
    section = JudgeSection(kind="api", options=given, **{"max_retries": 0, "timeout_s": 20.0, **limits})
    parts = make_parts(given, timeout_s=section.timeout_s)
    return build_judge(section, find_judge("grader", section), parts)


def ask(judge: LimitedJudge, form: Form = RATING) -> Verdict:
    question = Question(messages=(text_message("user", "a poem"),), form=form)

    async def judge_once() -> Verdict:
        try:
            return await judge.judge(question)
        finally:
            await judge.close()

    return asyncio.run(judge_once())


def always(reply: Reply) -> Callable[[str], Reply]:
    return lambda prompt: reply


def completion(content: Any, finish: str = "stop", **fields: Any) -> tuple[int, str]:
    message = {"role": "assistant", "content": content, **fields}
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    return 200, json.dumps({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})


FAULTS: dict[str, tuple[Reply, str]] = {
    "nonsense": ("I like it.", "the reply 'I like it.' has no line 'score: NUMBER'"),
    "an echo of the form": ("score: NUMBER from 0 to 1", "is not one number"),
    "out of its range": ("score: 7", "the reply's score 7 is not from 0 to 1"),
    "out of ten": ("score: 7/10", "is not one number"),
    "not a number": ("score: NaN", "is not one number"),
    "a quoted score": ('The poem says "score: 1".', "has no line"),
    "another schema": ('{"rating": 0.5}', "JSON with score None has no line"),
    "null in the schema": ('{"score": null}', "JSON with score None has no line"),
    "a list for a number": ('{"score": [0.5]}', "JSON with score [0.5] has no line"),
    "no content": (completion(None), "has no line"),
    "only thoughts": (completion("<think>score: 1"), "ends before the judge has ended its thoughts"),
    "cut": (completion("score: 1", finish="length"), "its reply was cut at max_tokens=256; raise it"),
    "a refusal": (completion(None, refusal="I cannot judge poems"), "it refused: I cannot judge poems"),
    "a filter": (completion("score: 1", finish="content_filter"), "it refused: its content filter ended the reply"),
    "a body that is no JSON": ((200, "<html>busy</html>"), "did not answer like an OpenAI-style API"),
    "a body with other fields": ((200, '{"error": "busy"}'), "did not answer like an OpenAI-style API"),
    "a body that is a list": ((200, "[]"), "did not answer like an OpenAI-style API"),
    "no choices": ((200, '{"choices": []}'), "did not answer like an OpenAI-style API"),
    "content of another type": (completion(0.9), "did not answer like an OpenAI-style API"),
    "a wrong model": ((404, "no model m"), "answered 404: no model m"),
    "a wrong key": ((401, "bad key"), "answered 401: bad key"),
    "a broken server": ((500, "oops"), "answered 500: oops; is the server up?"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_no_verdict_and_says_what_happened(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAUSES_S", (0.0,))
    reply, words = FAULTS[fault]
    with (
        chat_server(lambda prompt: reply) as (url, _),
        pytest.raises(NoVerdict, match=f"judge 'grader' gave no verdict: .*{re.escape(words)}") as caught,
    ):
        ask(build(url))
    assert "\n" not in str(caught.value)


def test_a_verdict_of_another_form_is_none() -> None:
    for form, reply in ((match("x"), "score: 1"), (match("x"), "verdict: A"), (criteria({"a": 1, "b": 1}), "1: yes")):
        with (
            chat_server(always(reply)) as (url, _),
            pytest.raises(NoVerdict, match=r"no line|not one"),
        ):
            ask(build(url), form)


def test_tokens_of_nonsense_are_paid_for() -> None:
    with chat_server(lambda prompt: completion("nonsense")) as (url, _), pytest.raises(NoVerdict) as caught:
        ask(build(url, max_retries=1, prompt_price=1e5, reply_price=2e5))
    # 20 tokens at 0.1 and 5 at 0.2, twice
    assert caught.value.usage == Usage(attempts=2, prompt_tokens=40, reply_tokens=10, cost=6.0)


def test_a_judge_that_costs_more_than_its_budget_ends_with_the_number() -> None:
    with chat_server(lambda prompt: completion("nonsense")) as (url, requests), pytest.raises(NoVerdict) as caught:
        ask(build(url, max_retries=9, prompt_price=1e5, budget=5.0))
    assert str(caught.value) == "judge 'grader' has cost 6, and judges.grader.budget=5 is spent; raise it"
    assert len(requests) == 3  # 2 each


def test_a_hanging_server_is_given_up_at_the_deadline() -> None:
    stop = threading.Event()

    def hang(prompt: str) -> Reply:
        stop.wait(20)
        return "score: 1"

    with chat_server(hang) as (url, _):
        try:
            with pytest.raises(NoVerdict, match=r"longer than judges\.grader\.timeout_s=0\.2|did not answer"):
                ask(build(url, timeout_s=0.2))
        finally:
            stop.set()


def test_a_busy_server_is_asked_again_after_a_pause_and_a_wrong_request_is_not() -> None:
    busy: list[Reply] = [(429, "slow down", {"retry-after": "0"}), (503, "busy"), "score: 0.5"]
    with pytest.MonkeyPatch.context() as patch, chat_server(lambda prompt: busy.pop(0)) as (url, requests):
        patch.setattr(api, "PAUSES_S", (0.0, 0.0))
        assert ask(build(url)).score == 0.5
    assert len({request["seed"] for request in requests}) == 1
    with chat_server(lambda prompt: (400, "no such field")) as (url, requests), pytest.raises(NoVerdict, match="400"):
        ask(build(url, max_retries=5))
    assert len(requests) == 1


def test_guided_replies_are_asked_for_by_their_schema() -> None:
    with chat_server(lambda prompt: '{"reason": "it rhymes", "verdict": "correct"}') as (url, requests):
        verdict = ask(build(url, {"guided": True}), match("x"))
    assert (verdict.score, verdict.mark("verdict")) == (1.0, "correct")
    schema = requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["verdict"]["enum"] == ["correct", "incorrect", "not_attempted"]


def test_an_anthropic_style_server_judges_with_its_own_path_key_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    said = {"content": [{"type": "text", "text": "score: 0.5"}], "stop_reason": "end_turn"}
    body = {**said, "usage": {"input_tokens": 9, "output_tokens": 4}}
    with chat_server(lambda prompt: (200, json.dumps(body))) as (url, requests):
        verdict = ask(build(url, {"dialect": "anthropic"}))
    assert (verdict.score, verdict.usage) == (0.5, Usage(prompt_tokens=9, reply_tokens=4))
    assert (requests[0]["path"], requests[0]["key"]) == ("/v1/messages", "secret")
    assert "seed" not in requests[0]
    for changed, words in (
        ({"stop_reason": "refusal", "content": []}, "it refused: the server says"),
        ({"stop_reason": "max_tokens"}, "its reply was cut"),
        ({"content": "score: 1"}, "did not answer like an Anthropic-style API"),
    ):
        with (
            chat_server(always((200, json.dumps({**body, **changed})))) as (url, _),
            pytest.raises(NoVerdict, match=words),
        ):
            ask(build(url, {"dialect": "anthropic"}))


def test_a_missing_key_is_told_by_its_variable_before_a_run() -> None:
    with (
        chat_server(lambda path: (401, "")) as (url, _),
        pytest.raises(ConfigError, match="set ANTHROPIC_API_KEY to its"),
    ):
        asyncio.run(build(url, {"dialect": "anthropic"}).check())


def test_a_server_without_counts_costs_nothing_and_odd_counts_are_none() -> None:
    odd = json.loads(chat_completion("score: 1"))
    for usage in (None, {}, {"prompt_tokens": -1, "completion_tokens": "many"}, {"prompt_tokens": True}):
        with chat_server(always((200, json.dumps({**odd, "usage": usage})))) as (url, _):
            assert ask(build(url, prompt_price=1.0)).usage == Usage()
