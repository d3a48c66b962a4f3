"""Windows, soft caps and sinks by hand and by their definition, and what attention refuses."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import EngineError
from turnwise.models.attention import PLAIN, PackedAttention, Rules, _attention_forward, causal_attention
from turnwise.models.invariant import InvariantAttention

LOG_3 = math.log(3.0)


def attend(scores: list[float], rules: Rules) -> list[float]:
    """What the last token of one head takes of each key, whose scores are these: values are unit vectors."""
    count = len(scores)
    query = torch.ones(count, 1, 1)
    key = torch.tensor(scores).view(count, 1, 1)
    return causal_attention(query, key, torch.eye(count)[:, None], 1.0, rules)[-1, 0].tolist()


def test_a_window_of_two_sees_itself_and_the_token_before() -> None:
    # Scores 0, 0, log 3: of the last two, weights 1/4 and 3/4.
    assert attend([0.0, 0.0, LOG_3], Rules(window=2)) == pytest.approx([0, 0.25, 0.75], abs=1e-6)
    # All three: 1/5, 1/5, 3/5.
    assert attend([0.0, 0.0, LOG_3], Rules(window=3)) == pytest.approx([0.2, 0.2, 0.6], abs=1e-6)
    assert attend([0.0, 0.0, LOG_3], PLAIN) == pytest.approx([0.2, 0.2, 0.6], abs=1e-6)


def test_a_cap_bounds_scores() -> None:
    # 2 tanh(100 / 2) = 2 and 2 tanh(0) = 0: weights 1 / (1 + e^2) and e^2 / (1 + e^2).
    low = 1 / (1 + math.exp(2))
    assert attend([0.0, 100.0], Rules(softcap=2.0)) == pytest.approx([low, 1 - low], abs=1e-6)


def test_a_sink_takes_part_and_gives_nothing() -> None:
    # Scores 0 and log 3, a sink of log 4: 1/8, 3/8, and 4/8 for nothing.
    assert attend([0.0, LOG_3], Rules(sinks=torch.tensor([math.log(4.0)]))) == pytest.approx([1 / 8, 3 / 8], abs=1e-6)


def define(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, rules: Rules) -> torch.Tensor:
    """Causal attention of one sequence, score by score."""
    rows = []
    repeats = query.shape[1] // key.shape[1]
    before = len(key) - len(query)
    for at in range(len(query)):
        first = 0 if rules.window is None else max(0, before + at + 1 - rules.window)
        for head in range(query.shape[1]):
            keys = key[first : before + at + 1, head // repeats]
            scores = keys @ query[at, head] * scaling
            if rules.softcap is not None:
                scores = rules.softcap * torch.tanh(scores / rules.softcap)
            extra = [] if rules.sinks is None else [rules.sinks[head].view(1)]
            weights = torch.cat([scores, *extra]).softmax(0)[: len(scores)]
            rows.append(weights @ value[first : before + at + 1, head // repeats])
    return torch.stack(rows).view(len(query), query.shape[1], -1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_plan_computes_the_definition(data: st.DataObject) -> None:
    heads, kv_heads = data.draw(st.sampled_from([(4, 2), (3, 3), (6, 1)]))
    dim, value_dim = data.draw(st.sampled_from([(8, 8), (12, 4)]))
    lengths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3))
    total = sum(lengths)
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    query, key = (torch.randn(total, count, dim, generator=draw, dtype=torch.float64) for count in (heads, kv_heads))
    value = torch.randn(total, kv_heads, value_dim, generator=draw, dtype=torch.float64)
    rules = Rules(
        window=data.draw(st.sampled_from([None, 1, 5, 64, 100])),
        softcap=data.draw(st.sampled_from([None, 1.5])),
        sinks=data.draw(st.sampled_from([None, torch.randn(heads, generator=draw, dtype=torch.float64)])),
    )
    parts = [tensor.split(lengths) for tensor in (query, key, value)]
    expected = torch.cat([define(q, k, v, 0.4, rules) for q, k, v in zip(*parts, strict=True)])
    for plan in (PackedAttention(lengths), InvariantAttention(lengths)):
        assert torch.allclose(plan.attend(0, query, key, value, 0.4, rules), expected, atol=1e-10, rtol=0)


def test_gradients_reach_queries_keys_values_and_sinks() -> None:
    draw = torch.Generator().manual_seed(0)
    tensors = [torch.randn(6, count, 4, generator=draw, dtype=torch.float64).requires_grad_() for count in (4, 2, 2)]
    sinks = torch.randn(4, generator=draw, dtype=torch.float64).requires_grad_()

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        return causal_attention(query, key, value, 0.5, Rules(window=3, softcap=2.0, sinks=sinks))

    assert torch.autograd.gradcheck(run, (*tensors, sinks))


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("position_bias", torch.zeros(1), "passes position_bias"),
        ("indices", torch.zeros(1), "passes indices"),
        ("a_thing_of_next_year", 3, "passes a_thing_of_next_year"),
        ("attention_mask", torch.zeros(1, 1, 2, 2), "passes attention_mask"),
        ("is_causal", False, "later tokens"),
        ("dropout", 0.1, "dropout"),
    ],
)
def test_an_argument_that_is_not_known_is_refused_and_never_dropped(argument: str, value: Any, text: str) -> None:
    module: Any = torch.nn.Identity()
    module.layer_idx = 0
    attend: Any = _attention_forward
    tensors = [torch.zeros(1, 2, 2, 4)] * 3
    plain: dict[str, Any] = {"attention_mask": None, "scaling": 1.0, "attention_plan": PackedAttention([2])}
    none = 0.0 if argument == "dropout" else None
    attend(module, *tensors, **plain | {argument: none})
    with pytest.raises(EngineError, match=text):
        attend(module, *tensors, **plain | {argument: value})
