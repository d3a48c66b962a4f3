"""Layers that are computed again: the same gradients from less that is kept, also after a copy and another process."""

import copy
import pickle

import torch
from ranks_world import Case, make_samples
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch, collate
from turnwise.models.layers import list_layers, recompute_layers
from turnwise.training.forward import compute_logprobs


def compute_gradients(model: PreTrainedModel, batch: MicroBatch) -> tuple[list[torch.Tensor], int]:
    """All gradients, and how many numbers the forward pass kept that are no parameters."""
    kept, parameters = 0, {parameter.data_ptr() for parameter in model.parameters()}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * (tensor.data_ptr() not in parameters)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        logprobs, _ = compute_logprobs(model, batch, 1.0)
    logprobs.sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None], kept


def test_gradients_are_bit_equal_and_less_is_kept() -> None:
    model, batch = Case().build_policy(), collate(make_samples(1))
    again = copy.deepcopy(model)
    recompute_layers(again)
    (mine, kept), (theirs, kept_again) = compute_gradients(model, batch), compute_gradients(again, batch)
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
    assert kept_again < 0.5 * kept
    assert len(list_layers(model)) == 2


def test_copies_compute_with_their_own_weights_and_sent_models_as_before() -> None:
    model, batch = Case().build_policy(), collate(make_samples(1))
    recompute_layers(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    expected, _ = compute_logprobs(Case().build_policy(), batch, 1.0)
    for each in (other, pickle.loads(pickle.dumps(other))):
        assert torch.equal(compute_logprobs(each, batch, 1.0)[0], expected)


def test_a_part_without_layers_has_none() -> None:
    assert list_layers(torch.nn.Linear(2, 2)) == []
