"""The generic path samples what the trainer scores: turns, siblings, company, cancellations, new weights."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from every_model import build_tiny
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.generic import KEPT_STATES, GenericRunner
from turnwise.models.attention import register_attention
from turnwise.models.check import choose_path, lay_packed
from turnwise.models.forward import compute_logits
from turnwise.models.paths import find_path, set_path

register_attention()
WAYS: dict[str, dict[str, Any]] = {
    "all together": {},
    "of one length": {"merges": False},
    "one by one": {"merges": False, "batches": False},
    "read again after observations": {"extends": False},
    "read again for every token": {"steps": False, "extends": False, "merges": False},
}


def build(name: str, **path: Any) -> PreTrainedModel:
    model = choose_path(build_tiny(name))
    assert find_path(model).kind == "generic"
    return set_path(model, replace(find_path(model), **path))


def open_engine(model: PreTrainedModel, **changes: Any) -> PagedEngine:
    return PagedEngine(model, **{"max_concurrency": 6, "max_context": 128, **changes})


def draw(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(6, 80, count).tolist()


async def converse(engine: PagedEngine, group: int, member: int, turns: int = 3) -> list[tuple[list[int], Completion]]:
    """Prompts and replies of a conversation; members of a group have one opening."""
    ids, found, session = draw(group, 11), [], Session(str(group), str(member))
    for turn in range(turns):
        seed = 100 * group + 10 * member + turn
        reply = await engine.generate(to_ids(ids), SamplingParams(max_tokens=3 + member, seed=seed), session=session)
        found.append((ids, reply))
        ids = [*ids, *reply.token_ids.tolist(), *draw(seed, 1 + 4 * turn)]
    await engine.release(session)
    return found


def crowd(engine: PagedEngine, groups: int = 2, members: int = 3) -> list[tuple[list[int], Completion]]:
    async def run() -> list[Any]:
        return await asyncio.gather(*(converse(engine, g, m) for g in range(groups) for m in range(members)))

    return [each for turns in asyncio.run(run()) for each in turns]


def compute_gap(model: PreTrainedModel, replies: list[tuple[list[int], Completion]]) -> float:
    """Largest difference of a sampled token's log-probability from the trainer's, in nats."""
    sequences = [torch.tensor([*prompt, *reply.token_ids.tolist()]) for prompt, reply in replies]
    runs, places = lay_packed(sequences)
    with torch.no_grad():
        logprobs = compute_logits(model, runs, torch.arange(len(runs.token_ids)))[0].log_softmax(-1)
    gaps = []
    for (prompt, reply), ids, place in zip(replies, sequences, places, strict=True):
        rows = logprobs[place[len(prompt) - 1 : -1]]
        scored = rows.gather(1, ids[len(prompt) :, None])[:, 0].numpy()
        gaps.append(np.abs(scored - reply.logprobs).max())
    return float(max(gaps))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["lfm2", "qwen3_5_text", "bloom", "minimax"])
def test_what_is_sampled_is_what_the_trainer_scores(name: str, way: str) -> None:
    model = build(name, **WAYS[way])
    replies = crowd(open_engine(model))
    assert compute_gap(model, replies) < 1e-4


def test_ways_sample_the_same_tokens() -> None:
    tokens = {}
    for way, path in WAYS.items():
        tokens[way] = [reply.token_ids.tolist() for _, reply in crowd(open_engine(build("lfm2", **path)))]
    assert all(each == tokens["all together"] for each in tokens.values())


@pytest.mark.parametrize("changes", [{"max_concurrency": 1}, {"max_batch_tokens": 8}, {"cache_tokens": 192}])
def test_company_chunks_and_memory_change_no_token(changes: dict[str, Any]) -> None:
    model = build("qwen3_5_text")
    expected, found = crowd(open_engine(model)), crowd(open_engine(model, **changes))
    assert [reply.token_ids.tolist() for _, reply in found] == [reply.token_ids.tolist() for _, reply in expected]
    assert compute_gap(model, found) < 1e-4


def test_siblings_read_their_prompt_once_and_turns_what_they_add(monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = build("lfm2"), []
    forward = type(model).forward

    def count(self: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        read.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **options)

    engine = open_engine(model)
    monkeypatch.setattr(type(model), "forward", count)
    crowd(engine, groups=1, members=3)
    assert [shape for shape in read if shape[1] == 11] == [(1, 11)]
    # Second turns add the last reply token and one more, third ones that and five more.
    assert sorted(shape[1] for shape in read if shape[1] > 1) == [2, 2, 2, 6, 6, 6, 11]
    # 3, 4 and 5 tokens, of which the first comes with the prompt and the last is not read: 2, 3 and 3 rows together.
    assert max(shape[0] for shape in read) == 3


def test_new_weights_are_sampled_from_at_once() -> None:
    model = build("lfm2")

    async def run() -> list[tuple[list[int], Completion]]:
        engine = open_engine(model)
        first = await converse(engine, 0, 0, turns=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.05)
        await engine.adopt(1)
        prompt = [*first[0][0], *first[0][1].token_ids.tolist(), 9]
        session = Session("0", "0")
        return [(prompt, await engine.generate(to_ids(prompt), SamplingParams(max_tokens=4), session=session))]

    assert compute_gap(model, asyncio.run(run())) < 1e-4


def test_a_cancelled_request_leaves_the_others_alone() -> None:
    model = build("qwen3_5_text")

    async def run(cancel: bool) -> list[Completion]:
        engine = open_engine(model)
        jobs = [
            asyncio.create_task(
                engine.generate(to_ids(draw(1, 9)), SamplingParams(max_tokens=12, seed=i), session=Session("g", str(i)))
            )
            for i in range(3)
        ]
        while engine.statistics().num_sampled_tokens < 9:
            await asyncio.sleep(0)
        if cancel:
            jobs[0].cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        return [job.result() for job in jobs[1:]]

    alone, beside = asyncio.run(run(False)), asyncio.run(run(True))
    assert [one.token_ids.tolist() for one in alone] == [one.token_ids.tolist() for one in beside]


def test_a_step_that_breaks_off_leaves_no_half_read_token() -> None:
    """The output layer fails once, when all layers have read a token; the step is run again in halves."""
    model = build("lfm2")
    expected = crowd(open_engine(model))
    seen: list[int] = []

    def fail(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        # The same rows as in the step before go on in place.
        fails = 99 not in seen and len(inputs[0]) > 2 and seen[-1:] == [len(inputs[0])]
        seen.append(99 if fails else len(inputs[0]))
        if fails:
            raise RuntimeError("no memory left")

    hook = model.lm_head.register_forward_pre_hook(fail)
    found = crowd(open_engine(model))
    hook.remove()
    assert 99 in seen
    assert [reply.token_ids.tolist() for _, reply in found] == [reply.token_ids.tolist() for _, reply in expected]
    assert compute_gap(model, found) < 1e-4


def test_states_are_kept_for_a_bounded_number_of_conversations_and_released() -> None:
    model = build("lfm2")

    async def run() -> tuple[int, int]:
        engine = open_engine(model, max_concurrency=2)
        runner = engine._runner
        assert isinstance(runner, GenericRunner)
        for number in range(20):
            prompt = to_ids(draw(number, 5))
            await engine.generate(prompt, SamplingParams(max_tokens=2), session=Session(str(number), "0"))
        kept = len(runner._conversations)
        for number in range(20):
            await engine.release(Session(str(number), "0"))
        return kept, len(runner._conversations)

    assert asyncio.run(run()) == (KEPT_STATES * 2, 0)


def test_weights_that_are_not_finite_fail_their_requests_and_leave_no_trace() -> None:
    model = build("lfm2")
    expected = crowd(open_engine(model))
    engine = open_engine(model)
    kept = model.lm_head.weight.detach().clone()

    async def ask() -> object:
        params = SamplingParams(max_tokens=3)
        return (
            await asyncio.gather(
                engine.generate(to_ids(draw(0, 11)), params, session=Session("x", "0")), return_exceptions=True
            )
        )[0]

    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    assert "not finite" in str(asyncio.run(ask()))
    with torch.no_grad():
        model.lm_head.weight.copy_(kept)
    assert [r.token_ids.tolist() for _, r in crowd(engine)] == [r.token_ids.tolist() for _, r in expected]
