"""A judge that can only give verdicts: the grammar of a form in the engine."""

import asyncio

import pytest

from turnwise.core.messages import text_message
from turnwise.core.verdicts import RATING, Form, Question
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged import PagedEngine
from turnwise.judging.engine import EngineOptions, EngineWriter
from turnwise.judging.text import TextJudge
from turnwise.questions.forms import criteria, match, pair, ranking
from turnwise.testing import build_tiny_model, build_tiny_renderer, build_tiny_tokenizer

pytest.importorskip("llguidance")
FORMS: list[Form] = [RATING, match("a poem"), pair(), ranking(3), criteria({"it rhymes": 2, "it is dull": -1})]


def test_random_weights_give_nothing_but_verdicts() -> None:
    tokenizer = build_tiny_tokenizer(["a poem that rhymes score: 0.25 verdict: correct better: first"])
    renderer = build_tiny_renderer(tokenizer)
    model = build_tiny_model(vocab_size=len(tokenizer))
    engine = PagedEngine(
        model,
        max_concurrency=8,
        max_context=1024,
        grammars=GrammarCompiler(tokenizer, vocab_size=model.config.vocab_size),
        decode=tokenizer.decode,
    )
    options = EngineOptions(guided=True, temperature=1.0, max_tokens=200)
    judge = TextJudge(EngineWriter(engine, renderer, options, name="j", owns_engine=True), options, model="random")

    async def ask_all() -> None:
        for form in FORMS:
            for seed in range(3):
                answers = ("one", "two", "three")[: max(2, len(form.marks))] if form in (pair(), ranking(3)) else ()
                about = (text_message("user", "a poem"),)
                verdict = await judge.judge(Question(messages=about, answers=answers, form=form, seed=seed))
                assert [name for name, _ in verdict.marks] == [mark.name for mark in form.marks]
                assert 0 <= verdict.score <= 1
        await judge.close()

    asyncio.run(ask_all())
