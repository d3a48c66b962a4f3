"""Grouped drafting: the automaton against brute force, and sampling that stays the same in every bit."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from turnwise.core.types import Completion, SamplingParams, Session, to_ids
from turnwise.engines.paged import PagedEngine
from turnwise.engines.paged.drafts import ROOT, GroupDrafts, SuffixAutomaton
from turnwise.models.attention import PackedAttention
from turnwise.models.build import build_model

VOCAB = 12
CONFIG = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return build_model("qwen3", CONFIG, vocab_size=VOCAB, seed=1)


def grow(automaton: SuffixAutomaton, texts: list[list[int]]) -> list[int]:
    """All texts side by side, one token each in turn; where each ends."""
    ends = [ROOT] * len(texts)
    for at in range(max(map(len, texts))):
        for i, text in enumerate(texts):
            if at < len(text):
                ends[i] = automaton.extend(ends[i], text[at])
    return ends


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=24), min_size=1, max_size=4))
def test_the_automaton_knows_exactly_the_substrings_and_how_often_they_end(texts: list[list[int]]) -> None:
    automaton = SuffixAutomaton()
    grow(automaton, texts)
    # Every path from the root spells a substring, and every substring has a path.
    spelled: set[tuple[int, ...]] = set()
    stack: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
    counts = {}
    while stack:
        state, text = stack.pop()
        spelled.add(text)
        counts[text] = automaton.count[state]
        stack += [(state_, (*text, token)) for token, state_ in automaton.next[state].items()]
    expected = Counter(tuple(t[i:j]) for t in texts for i in range(len(t)) for j in range(i + 1, len(t) + 1))
    assert spelled - {()} == set(expected)
    # At most 24 suffixes, below MAX_COUNTED: all are counted.
    assert {text: count for text, count in counts.items() if text} == dict(expected)


def test_guesses_by_hand() -> None:
    automaton = SuffixAutomaton()
    first, _, third, fourth = grow(automaton, [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [9, 9], [1, 2, 3]])
    at, matched = automaton.find(fourth)
    assert matched == 3
    # After 1 2 3 came 4 twice, never anything else: 2 / (2 + 1/3).
    guess = automaton.guess(at, matched)
    assert guess is not None
    assert guess.token == 4
    assert guess.probability == pytest.approx(6 / 7)
    # After 1 2 3 4 came 5 and 6 once each: 1 / (2 + 1/4).
    after = automaton.guess(guess.state, 4)
    assert after is not None
    assert after.token in (5, 6)
    assert after.probability == pytest.approx(4 / 9)
    # Nothing follows 5 anywhere. 9 was followed by 9 once: 1 / (1 + 1/1); 9 9 by nothing, so its end 9 is what is
    # looked at.
    assert automaton.find(first) == (ROOT, 0)
    assert automaton.guess(ROOT, 0) is None
    at, matched = automaton.find(third)
    guess = automaton.guess(at, matched)
    assert guess is not None
    assert (matched, guess.token, guess.probability) == (1, 9, 0.5)


def test_groups_do_not_see_each_other_and_the_oldest_is_forgotten() -> None:
    drafts = GroupDrafts(max_draft_tokens=4, max_groups=2)
    drafts.read(Session("a", "0"), [1, 2, 3, 4, 5, 6, 7])
    assert drafts.draft(Session("a", "1"), [1, 2, 3], 9) == (4, 5, 6)  # 3/4 * 4/5 * 5/6 = 0.5, times 6/7 is less
    assert drafts.draft(Session("a", "1"), [1, 2, 3], 2) == (4, 5)
    assert drafts.draft(Session("a", "1"), [1, 2, 3], 0) == ()
    assert drafts.draft(Session("b", "0"), [1, 2, 3], 9) == ()
    assert drafts.draft(Session("c", "0"), [1, 2, 3], 9) == ()
    assert drafts.draft(Session("a", "1"), [1, 2, 3], 9) == ()


def test_guesses_that_fail_are_trusted_less_and_those_that_come_true_again_more() -> None:
    drafts = GroupDrafts(max_draft_tokens=1, max_groups=1)
    text = [1, 2, 3, 4] * 30
    drafts.read(Session("a", "0"), text)
    other = [1, 2, 3, 4]
    assert drafts.draft(Session("a", "1"), other, 1) == (1,)
    random = np.random.default_rng(0)
    for _ in range(60):  # 1 to 4 in any order: each guess is right one time in four
        other.append(int(random.integers(1, 5)))
        drafts.draft(Session("a", "1"), other, 1)
    assert drafts.draft(Session("a", "1"), [*other, 1, 2], 1) == ()
    other += [1, 2]
    hits = 0
    for at in range(200):
        other.append((at + 2) % 4 + 1)
        hits += len(drafts.draft(Session("a", "1"), other, 1))
    assert drafts.draft(Session("a", "1"), [*other, (200 + 2) % 4 + 1], 1) != ()
    assert 50 < hits < 200


def sample(
    model: PreTrainedModel, *, drafted: int, members: int = 6, **changes: Any
) -> tuple[list[Completion], PagedEngine]:
    """Two turns of a group that begins with a repetitive prompt."""
    shape: dict[str, Any] = {"max_concurrency": 8, "max_context": 160, "max_draft_tokens": drafted}
    shape |= {
        key: changes.pop(key) for key in ("fused", "max_concurrency", "cache_tokens", "page_size") if key in changes
    }
    engine = PagedEngine(model, **shape)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8] * 3

    async def member(number: int) -> list[Completion]:
        ids, done = list(prompt), []
        for turn in range(2):
            params = SamplingParams(**{"max_tokens": 30, "seed": 100 * number + turn, **changes})
            completion = await engine.generate(to_ids(ids), params, session=Session("g", str(number)))
            done.append(completion)
            ids = [*ids, *completion.token_ids.tolist(), 1, 2, 3]
        await engine.release(Session("g", str(number)))
        return done

    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(member(number) for number in range(members)))

    return [completion for done in asyncio.run(run()) for completion in done], engine


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.4},
        {"temperature": 0.0},
        {"temperature": 0.4, "top_k": 4, "stop_token_ids": (0, 9)},
        {"temperature": 0.3, "cache_tokens": 192, "page_size": 16},
        {"temperature": 0.3, "max_concurrency": 2},
    ],
)
def test_drafting_changes_no_token_and_no_bit(model: PreTrainedModel, fused: bool, changes: dict[str, Any]) -> None:
    plain, _ = sample(model, drafted=0, fused=fused, **changes)
    drafted, engine = sample(model, drafted=8, fused=fused, **changes)
    for a, b in zip(plain, drafted, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.logprobs.tobytes() == b.logprobs.tobytes()
        assert a.finish_reason == b.finish_reason
    statistics = engine.statistics()
    assert 0 < statistics.num_accepted_tokens < statistics.num_drafted_tokens
    assert statistics.num_held_pages == 0


def test_fewer_steps_where_drafts_are_right(model: PreTrainedModel) -> None:
    plain, drafted = (sample(model, drafted=n, members=2, temperature=0.0)[1].statistics() for n in (0, 8))
    assert drafted.num_sampled_tokens == plain.num_sampled_tokens == 2 * 2 * 30
    assert drafted.num_steps < 0.7 * plain.num_steps


def test_drafted_samples_have_the_models_distribution(model: PreTrainedModel) -> None:
    """Chi-square over 600 seeds: of the token after a prompt with drafts, and of the pair with the one after it."""
    engine = PagedEngine(model, max_concurrency=4, max_context=64, max_draft_tokens=8)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8] * 3

    async def run() -> list[tuple[int, int]]:
        pairs = []
        for seed in range(600):
            params = SamplingParams(max_tokens=4, temperature=0.5, seed=seed)
            completion = await engine.generate(to_ids(prompt), params, session=Session("g", str(seed)))
            pairs.append((int(completion.token_ids[1]), int(completion.token_ids[2])))
        return pairs

    pairs = asyncio.run(run())
    assert engine.statistics().num_accepted_tokens > 50

    # Exact: P(second, third) = sum over the first token of P(first) P(second | first) P(third | first, second).
    def distribution(texts: list[list[int]]) -> torch.Tensor:
        flat = torch.tensor([[token for text in texts for token in text]])
        positions = torch.tensor([[i for text in texts for i in range(len(text))]])
        with torch.no_grad():
            logits = model(
                input_ids=flat,
                position_ids=positions,
                use_cache=False,
                attention_plan=PackedAttention([len(text) for text in texts]),
            ).logits[0]
        ends = torch.tensor(np.cumsum([len(text) for text in texts]) - 1)
        return (logits[ends].double() / 0.5).softmax(-1)

    one = distribution([prompt])[0]
    two = distribution([[*prompt, a] for a in range(VOCAB)])
    three = distribution([[*prompt, a, b] for a in range(VOCAB) for b in range(VOCAB)]).view(VOCAB, VOCAB, VOCAB)
    exact = torch.einsum("a,ab,abc->bc", one, two, three).reshape(-1)
    seen = Counter(VOCAB * b + c for b, c in pairs)
    observed = np.array([seen[i] for i in range(VOCAB * VOCAB)], dtype=float)
    expected = exact.numpy() * len(pairs)
    # Cells with fewer than five expected counts are one cell.
    large = expected >= 5
    observed = np.append(observed[large], observed[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    assert freedom >= 5
    # The 99.9 % point of chi-square, Wilson-Hilferty: k (1 - 2/(9k) + 3.09 sqrt(2/(9k)))^3. Seeds are fixed, so this
    # passes or fails.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
