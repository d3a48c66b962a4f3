"""Guided sampling: the text obeys, with log-probabilities of the masked and of the whole distribution."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.core.errors import EngineError
from turnwise.core.types import Completion, FinishReason, Grammar, SamplingParams, Session, ToolSpec, to_ids
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.local import LocalEngine
from turnwise.engines.paged import PagedEngine
from turnwise.models.build import build_model
from turnwise.models.invariant import InvariantAttention
from turnwise.rendering.call_grammar import build_call_grammar
from turnwise.rendering.hermes_calls import parse_tool_calls
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer

pytest.importorskip("llguidance")

PADDED = 7
"""Output rows of the model beyond the tokenizer's vocabulary."""
SEARCH = ToolSpec(
    name="search",
    description="",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "maxLength": 8},
            "k": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["query", "k"],
        "additionalProperties": False,
    },
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    texts = ['{"name": "search", "arguments": {"query": "Mira", "k": 3}}', "the cat sat on <b> mats\n"] * 20
    return train_tokenizer(texts, vocab_size=330, special_tokens=QWEN3_SPECIAL_TOKENS)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=len(tokenizer) + PADDED, seed=1)


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, vocab_size=model.config.vocab_size)


def build(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase, **changes: Any
) -> PagedEngine:
    settings = {"max_concurrency": 8, "max_context": 256, "fused": False, **changes}
    return PagedEngine(model, grammars=compiler, decode=tokenizer.decode, **settings)


def run_all(engine: PagedEngine | LocalEngine, prompts: list[list[int]], params: list[SamplingParams]) -> list[object]:
    async def run() -> list[object]:
        jobs = [
            engine.generate(to_ids(p), s, session=Session(str(i), "0"))
            for i, (p, s) in enumerate(zip(prompts, params, strict=True))
        ]
        return list(await asyncio.gather(*jobs, return_exceptions=True))

    return asyncio.run(run())


def params_of(seed: int, grammar: Grammar | None, **changes: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 80, "seed": seed, "grammar": grammar, **changes})


SCHEMA = Grammar(kind="json_schema", text=json.dumps(SEARCH.parameters))


def test_what_is_sampled_obeys_and_company_does_not_matter(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    prompts = [tokenizer.encode("the cat")] * 6
    params = [params_of(i, SCHEMA if i % 2 else None, temperature=(1.0, 0.7)[i % 2]) for i in range(6)]
    together = run_all(build(model, compiler, tokenizer), prompts, params)
    for i, done in enumerate(together):
        assert isinstance(done, Completion)
        (alone,) = run_all(build(model, compiler, tokenizer, max_batch_tokens=8), [prompts[i]], [params[i]])
        assert isinstance(alone, Completion)
        assert (alone.token_ids.tolist(), alone.logprobs.tobytes()) == (
            done.token_ids.tolist(),
            done.logprobs.tobytes(),
        )
        if i % 2:
            # Without stop tokens the tokenizer's end token completes the text.
            assert done.finish_reason is FinishReason.STOP
            assert done.token_ids[-1] == tokenizer.eos_token_id
            value = json.loads(tokenizer.decode(done.token_ids[:-1]))
            assert set(value) == {"query", "k"}
            assert 1 <= value["k"] <= 9
        else:
            assert done.full_logprobs is None


def test_log_probabilities_are_masked_and_the_trainers_are_recorded(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    prompt = tokenizer.encode("the cat")
    grammar = Grammar(kind="regex", text="(yes|no|cat)!")
    for seed, temperature in ((1, 1.0), (2, 0.6)):
        (done,) = run_all(
            build(model, compiler, tokenizer), [prompt], [params_of(seed, grammar, temperature=temperature)]
        )
        assert isinstance(done, Completion)
        assert done.full_logprobs is not None
        ids = [*prompt, *done.token_ids.tolist()]
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([ids]), use_cache=False, attention_plan=InvariantAttention([len(ids)])
            ).logits[0]
        at = torch.arange(len(prompt) - 1, len(ids) - 1)
        # A trainer without the grammar computes the same bits.
        whole = (logits[at] / temperature).log_softmax(-1)
        assert whole.gather(-1, torch.tensor(ids[len(prompt) :])[:, None])[:, 0].tolist() == done.full_logprobs.tolist()
        # The masked ones, by replaying the grammar: the allowed tokens, renormalised.
        guide = compiler.start(grammar, ())
        for place, token in enumerate(done.token_ids.tolist()):
            allowed = torch.from_numpy(guide.allowed())
            mass = whole[place].double().exp()[allowed].sum().log()
            assert done.logprobs[place] == pytest.approx(float(done.full_logprobs[place]) - float(mass), abs=1e-5)
            guide.advance(token)
        assert (done.logprobs >= done.full_logprobs).all()
        assert done.logprobs[-1] == 0.0, "only the end token is left"


def test_a_stop_token_ends_a_text_where_it_may_end(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    (done,) = run_all(
        build(model, compiler, tokenizer),
        [[5]],
        [params_of(1, Grammar(kind="regex", text="[ab]{3,5}"), stop_token_ids=(stop,))],
    )
    assert isinstance(done, Completion)
    assert done.token_ids[-1] == stop
    assert tokenizer.eos_token_id not in done.token_ids
    text = tokenizer.decode(done.token_ids[:-1])
    assert 3 <= len(text) <= 5
    assert set(text) <= {"a", "b"}


def test_greedy_takes_the_likeliest_allowed_token(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    (done,) = run_all(
        build(model, compiler, tokenizer),
        [[5, 6]],
        [params_of(1, Grammar(kind="regex", text="[xyz]"), temperature=0.0)],
    )
    assert isinstance(done, Completion)
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([[5, 6]]), use_cache=False, attention_plan=InvariantAttention([2])
        ).logits[0, -1]
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in "xyz"]
    assert done.token_ids[0] == letters[int(logits[letters].argmax())]


def test_tool_calls_are_well_formed(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    grammar = build_call_grammar([SEARCH], special_tokens=True, max_calls=2)
    free = Grammar(kind="lark", text=grammar.text.replace("TEXT? ", ""))  # a random model would never stop talking
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    completions = run_all(
        build(model, compiler, tokenizer),
        [[5]] * 4,
        [params_of(i, free, stop_token_ids=(stop,), max_tokens=200) for i in range(4)],
    )
    for done in completions:
        assert isinstance(done, Completion)
        assert done.finish_reason is FinishReason.STOP
        content, calls, errors = parse_tool_calls(tokenizer.decode(done.token_ids[:-1]))
        assert (content, errors) == ("", ())
        assert 1 <= len(calls) <= 2
        for call in calls:
            assert call.name == "search"
            assert set(json.loads(call.arguments)) == {"query", "k"}
    guide = compiler.start(grammar, ())
    assert guide.allowed()[tokenizer.encode("the")[0]]
    with pytest.raises(ValueError, match="0 tools"):
        build_call_grammar([], special_tokens=True)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar(kind="regex", text="[^\\s\\S]"), "allows no token after 0 sampled ones"),
        (Grammar(kind="json_schema", text='{"type": "integer", "minimum": 3, "maximum": 2}'), "Unsatisfiable schema"),
        (Grammar(kind="json_schema", text="{"), "cannot read"),
        (Grammar(kind="lark", text="start: nothing"), "rejected"),
    ],
)
def test_a_grammar_that_admits_nothing_fails_its_request_alone(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase, grammar: Grammar, words: str
) -> None:
    engine = build(model, compiler, tokenizer)
    bad, guided, free = run_all(
        engine, [[1, 2]] * 3, [params_of(1, grammar), params_of(2, SCHEMA), params_of(3, None, max_tokens=5)]
    )
    assert isinstance(bad, EngineError)
    assert words in str(bad)
    assert isinstance(guided, Completion)
    assert isinstance(free, Completion)
    assert engine.statistics().num_held_pages == 0


def test_a_grammar_that_turns_out_a_dead_end_fails_its_request_alone(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compiler: GrammarCompiler
) -> None:
    """A byte that no token of the model spells: the grammar is sound, the vocabulary cannot write it."""
    small = GrammarCompiler(tokenizer, vocab_size=20)
    guide = small.start(Grammar(kind="regex", text="[xyz]"), ())
    assert not guide.allowed().any()


def test_guided_survives_preemption_and_drafting(
    model: PreTrainedModel, compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerBase
) -> None:
    prompts = [tokenizer.encode("the cat sat")] * 4
    params = [params_of(i, SCHEMA, max_tokens=60) for i in range(4)]
    ample = run_all(build(model, compiler, tokenizer), prompts, params)
    engine = build(model, compiler, tokenizer, cache_tokens=96, page_size=16, max_draft_tokens=8)
    short = run_all(engine, prompts, params)
    assert engine.statistics().num_preemptions > 0
    for a, b in zip(ample, short, strict=True):
        assert isinstance(a, Completion)
        assert isinstance(b, Completion)
        assert np.array_equal(a.token_ids, b.token_ids)
        assert a.logprobs.tobytes() == b.logprobs.tobytes()


def test_the_plain_engine_refuses_grammars(model: PreTrainedModel) -> None:
    (bad,) = run_all(LocalEngine(model, max_concurrency=2, max_context=64), [[1]], [params_of(1, SCHEMA, max_tokens=4)])
    assert isinstance(bad, EngineError)
    assert "engine.kind='paged'" in str(bad)
