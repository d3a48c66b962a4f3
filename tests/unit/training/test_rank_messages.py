"""What goes to ranks and comes back is the same in every bit."""

import socket
from dataclasses import asdict, replace
from typing import get_args

import numpy as np
from ranks_world import Case, make_batch, make_samples

from turnwise.core.batch import Columns, StepReport
from turnwise.core.keys import Span
from turnwise.core.metrics import Deviation, Max, Mean, Metric, Min, Quantile, Rate, Sum
from turnwise.core.types import to_experts, to_ids
from turnwise.training.ranks.messages import (
    decode_batch,
    decode_columns,
    decode_report,
    decode_samples,
    encode_batch,
    encode_columns,
    encode_message,
    encode_report,
    encode_samples,
    read_message,
)


def send(message: dict[str, object]) -> dict[str, object]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode_message(message))
        received = read_message(theirs)
    assert received is not None
    return received


def test_samples_come_back_as_they_were() -> None:
    samples = make_samples(1)
    num_tokens = len(samples[0].token_ids)
    experts = to_experts(np.arange(num_tokens - 1)[:, None, None] + np.arange(4).reshape(2, 2))
    images = (Span(start=1, length=2, digest="ab", offset=3, grid=(1, 2, 1)), Span(start=4, length=1, digest="cd"))
    samples[0] = replace(samples[0], versions=to_ids(range(num_tokens)), experts=experts, images=images)
    for sent, received in zip(samples, decode_samples(send(encode_samples(samples))), strict=True):
        for name in ("token_ids", "loss_mask", "behavior_logprobs", "advantages", "context_mask"):
            one, other = getattr(sent, name), getattr(received, name)
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
        assert received.origin == sent.origin
        assert received.images == sent.images
    first, second, *_ = decode_samples(send(encode_samples(samples)))
    assert first.experts is not None
    assert first.experts.tolist() == experts.tolist()
    assert second.versions is None
    assert second.experts is None


def test_batches_come_back_as_they_were() -> None:
    case = Case(critic="separate", num_updates=2)
    batch = make_batch(case.build_local(), case, 1)
    received = decode_batch(send(encode_batch(batch)))
    assert received.updates == batch.updates
    assert received.columns.values is not None
    assert batch.columns.values is not None
    assert [row.tobytes() for row in received.columns.values] == [row.tobytes() for row in batch.columns.values]
    assert received.columns.final_values == batch.columns.final_values
    pairs = make_batch(case.build_local(), Case(objective="preference"), 1).pairs
    again = decode_batch(send(encode_batch(replace(batch, pairs=pairs)))).pairs
    assert [pair.chosen for pair in again] == [pair.chosen for pair in pairs]
    assert again[0].chosen_in_step[0].tolist() == pairs[0].chosen_in_step[0].tolist()


def test_columns_that_nothing_computed_stay_away() -> None:
    columns = decode_columns(send(encode_columns(Columns(values=(np.array([1.0, np.nan]), np.zeros(0))))))
    assert columns.old_logprobs is None
    assert columns.values is not None
    assert [len(row) for row in columns.values] == [2, 0]


def test_metrics_keep_their_kind() -> None:
    metrics: dict[str, Metric] = {
        "a": Mean(0.1, 3.0),
        "b": Max(2.0),
        "c": Sum(5),
        "d": Rate(1.0, 0.5),
        "e": Min(0.5),
        "f": Deviation.of([1.0, 2.0]),
    }
    assert {type(metric) for metric in metrics.values()} == set(get_args(Metric)) - {Quantile}
    report = StepReport(
        metrics=metrics,
        optimizer_steps=7,
        sums={"weight": -(2**63)},
    )
    assert asdict(decode_report(send(encode_report(report)))) == asdict(report)
    spread = StepReport(metrics={"g": Quantile((1.0, 3.0))}, optimizer_steps=1, sums={})
    assert decode_report(send(encode_report(spread))).metrics["g"].value == 3.0


def test_the_end_of_a_rank_is_no_message() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(encode_message({"kind": "step"})[:-1])
    ours.close()
    with theirs:
        assert read_message(theirs) is None
