"""The experts that completions carry: those of an exact forward, however the tokens got into the cache."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from small_model import CONFIG, MIXTURE, VOCAB
from transformers import PreTrainedModel
from waiting import until

from turnwise.core.sampled import keep_own_experts
from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.workers import WorkerEngine
from turnwise.models.build import build_model
from turnwise.models.invariant import InvariantAttention

SYSTEM = np.random.default_rng(99).integers(0, VOCAB, 50).tolist()


def build(seed: int = 1) -> PreTrainedModel:
    return build_model("qwen3_moe", MIXTURE, vocab_size=VOCAB, seed=seed)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return build()


def start(model: PreTrainedModel, **changes: Any) -> PagedEngine:
    return PagedEngine(model, **{"max_concurrency": 8, "max_context": 160, **changes})


class Record:
    def __init__(self) -> None:
        self.layers: dict[int, torch.Tensor] = {}

    def choose(self, layer: int, chosen: torch.Tensor) -> None:
        self.layers[layer] = chosen


def route(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """The experts of all tokens in one exact forward, `[N, layers, k]`."""
    seen = Record()
    with torch.no_grad():
        model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.arange(len(ids))[None],
            use_cache=False,
            attention_plan=InvariantAttention([len(ids)]),
            routing=seen,
        )
    return torch.stack([seen.layers[0], seen.layers[1]], dim=1).numpy()


async def converse(engine: Any, seed: int, turns: int = 3) -> list[tuple[list[int], Completion]]:
    """A conversation of `turns` replies with 9 random tokens between them; prompts and replies."""
    rng = np.random.default_rng(seed // 2)
    ids, said = [*SYSTEM, *rng.integers(0, VOCAB, 20).tolist()], []
    for turn in range(turns):
        params = SamplingParams(max_tokens=6, seed=1000 * seed + turn)
        reply = await engine.generate(to_ids(ids), params, session=Session(str(seed // 2), str(seed)))
        said.append((ids, reply))
        observed = np.random.default_rng(7 * seed + turn).integers(0, VOCAB, 9).tolist()
        ids = [*ids, *reply.token_ids.tolist(), *observed]
    return said


def crowd(engine: Any, num: int = 6) -> list[list[tuple[list[int], Completion]]]:
    async def run() -> list[list[tuple[list[int], Completion]]]:
        said = await asyncio.gather(*(converse(engine, seed) for seed in range(num)))
        await engine.close()
        return said

    return asyncio.run(run())


def experts_of(completion: Completion) -> np.ndarray:
    assert completion.experts is not None
    return completion.experts


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_batch_tokens": 37, "page_size": 16},
        {"max_concurrency": 1},
    ],
)
def test_a_completion_has_the_experts_of_every_token_but_the_last(
    model: PreTrainedModel, changes: dict[str, Any]
) -> None:
    """Shared prompts, chunks and histories included, which the cache has from others."""
    engine = start(model, **changes)
    for conversation in crowd(engine):
        for prompt, reply in conversation:
            check_experts(model, prompt, reply)
    assert engine.statistics().num_reused_tokens > 0


def check_experts(model: PreTrainedModel, prompt: list[int], reply: Completion) -> None:
    assert experts_of(reply).tolist() == route(model, [*prompt, *reply.token_ids.tolist()])[:-1].tolist()
    assert experts_of(reply).dtype == np.uint8


def sample_group(engine: PagedEngine, num: int, *, max_tokens: int, temperature: float) -> list[Completion]:
    """One after the other is begun, so that later ones can guess from earlier ones."""

    async def sample_two() -> None:
        before = engine.statistics().num_sampled_tokens
        await until(lambda: engine.statistics().num_sampled_tokens >= before + 2)

    async def run() -> list[Completion]:
        jobs = []
        for seed in range(num):
            params = SamplingParams(max_tokens=max_tokens, seed=seed, temperature=temperature)
            jobs.append(asyncio.create_task(engine.generate(to_ids(SYSTEM), params, session=Session("g", str(seed)))))
            await sample_two()
        done = await asyncio.gather(*jobs)
        await engine.close()
        return done

    return asyncio.run(run())


def test_guessed_tokens_have_theirs(model: PreTrainedModel) -> None:
    engine = start(model, max_draft_tokens=8)
    for reply in sample_group(engine, 4, max_tokens=30, temperature=0.2):
        check_experts(model, SYSTEM, reply)
    assert engine.statistics().num_accepted_tokens > 0


def test_requests_that_are_sent_back_have_theirs(model: PreTrainedModel) -> None:
    """Ten pages of 16: three replies share 4 pages of the prompt and grow to 9 each."""
    engine = start(model, cache_tokens=160, page_size=16)
    for reply in sample_group(engine, 3, max_tokens=90, temperature=1.0):
        check_experts(model, SYSTEM, reply)
    assert engine.statistics().num_preemptions > 0


def test_workers_say_the_same(model: PreTrainedModel) -> None:
    ours = crowd(start(model), 2)
    theirs = crowd(WorkerEngine(model, num_workers=1, max_concurrency=8, max_context=160), 2)
    for one, other in zip(ours, theirs, strict=True):
        for (_, a), (_, b) in zip(one, other, strict=True):
            assert a.logprobs.tolist() == b.logprobs.tolist()
            assert experts_of(a).tolist() == experts_of(b).tolist()


def test_turns_share_out_the_tokens_of_a_conversation(model: PreTrainedModel) -> None:
    """70 tokens of prompt and 6 of reply: 75 rows, then 9 + 6 for each further turn, 105 of 106 tokens in all."""
    [conversation] = crowd(start(model), 1)
    own = [
        keep_own_experts(reply, len(prompt) if turn == 0 else 9) for turn, (prompt, reply) in enumerate(conversation)
    ]
    assert [len(experts_of(completion)) for completion in own] == [75, 15, 15]
    last_prompt, last = conversation[-1]
    joined = np.concatenate([experts_of(completion) for completion in own])
    assert joined.tolist() == route(model, [*last_prompt, *last.token_ids.tolist()])[:-1].tolist()


def publish_into_a_reply(
    interrupt: Any, num_computed: int = 56
) -> tuple[PreTrainedModel, PreTrainedModel, list[int], Completion]:
    """A prompt of 50 and a reply of 12 tokens: after so many of them weights are replaced. The models before and after,
    and all tokens."""
    model, before, after = build(), build(), build(seed=2)
    engine = start(model, max_batch_tokens=16)

    async def run() -> Completion:
        params = SamplingParams(max_tokens=12, seed=5)
        job = asyncio.create_task(engine.generate(to_ids(SYSTEM), params, session=Session("g", "0")))
        while engine.statistics().num_computed_tokens < num_computed:
            await asyncio.sleep(0)
        await engine.pause(interrupt)
        with torch.no_grad():
            for mine, new in zip(model.parameters(), after.parameters(), strict=True):
                mine.copy_(new)
        await engine.adopt(1)
        await engine.resume()
        reply = await job
        await engine.close()
        return reply

    reply = asyncio.run(run())
    return before, after, [*SYSTEM, *reply.token_ids.tolist()], reply


def test_a_token_keeps_the_experts_that_the_next_one_was_drawn_with() -> None:
    """New weights compute all tokens again, with other experts; those before the change stay as they were."""
    before, after, ids, reply = publish_into_a_reply("continue")
    assert reply.versions is not None
    num_old = int((reply.versions == 0).sum())
    assert 0 < num_old < 12
    first = len(SYSTEM) + num_old - 1
    old, new = route(before, ids)[:-1], route(after, ids)[:-1]
    assert experts_of(reply)[:first].tolist() == old[:first].tolist()
    assert experts_of(reply)[first:].tolist() == new[first:].tolist()
    assert (old != new).any((1, 2)).mean() > 0.5


@pytest.mark.parametrize(("interrupt", "num_computed"), [("restart", 56), ("continue", 32)])
def test_a_reply_without_a_token_of_older_weights_has_the_experts_of_the_new_ones(
    interrupt: str, num_computed: int
) -> None:
    """It begins anew, or its prompt was not yet computed to the end."""
    _, after, ids, reply = publish_into_a_reply(interrupt, num_computed)
    assert (reply.version_first, reply.version_last) == (1, 1)
    assert experts_of(reply).tolist() == route(after, ids)[:-1].tolist()


def test_a_dense_model_has_none() -> None:
    dense = build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)
    [conversation] = crowd(start(dense), 1)
    assert [reply.experts for _, reply in conversation] == [None, None, None]
