"""Models in rows: every rank holds its rows of each parameter, and layers are assembled when they compute.

FSDP2 (`torch.distributed.fsdp.fully_shard`). The loss weights of a step refer to the whole batch, so the ranks'
gradients are summed, not averaged. The trainer's process keeps a whole copy of the policy in shared memory, from which
engines sample: ranks read it at the start, write their rows into it after a step, and check before the next step that
they still agree with it."""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any, TypeVar

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from transformers import PreTrainedModel

from turnwise.batching.ranks import Ranks
from turnwise.models.checksums import compute_checksum, join_base, sum_tensors
from turnwise.models.layers import list_layers
from turnwise.models.lora import list_adapter
from turnwise.models.rows import cut_rows, join_rows, own_rows
from turnwise.models.structure import with_tensors
from turnwise.training.masters import SHORT
from turnwise.training.placement import Backbone

Model = TypeVar("Model", bound=torch.nn.Module)


class Sharded:
    """Implements `Placement` for a rank."""

    def __init__(
        self,
        source: PreTrainedModel,
        ranks: Ranks,
        device: torch.device,
        *,
        is_shared: bool = True,
        offloads: bool = False,
    ) -> None:
        """`source` is the whole policy in shared memory, on the CPU. If some rank does not see that memory, `is_shared`
        is False on all ranks, and the `source` of that rank has no weights. With `offloads`, rows stay in the CPU's
        memory with their gradients and moments, and a layer is on `device` only while it computes."""
        self.ranks = ranks
        self.device = device
        self.source = source
        self._is_shared = is_shared
        self._mesh: DeviceMesh = init_device_mesh(device.type, (ranks.size,))
        self._offload = CPUOffloadPolicy(pin_memory=device.type == "cuda") if offloads else OffloadPolicy()
        self._precision = MixedPrecisionPolicy()
        if source.dtype in SHORT:
            self._precision = MixedPrecisionPolicy(param_dtype=source.dtype, reduce_dtype=torch.float32)

    def copy(self, policy: PreTrainedModel) -> PreTrainedModel:
        """See `Placement.copy`: new modules on the tensors of the shared copy until they are placed; without a shared
        copy, on rows that the ranks gather."""
        tensors = {name: parameter.detach() for name, parameter in self.source.named_parameters()}
        if not self._is_shared:
            with torch.no_grad():
                tensors = {
                    name: join_rows(parameter).to(tensors[name].dtype) for name, parameter in policy.named_parameters()
                }
        return with_tensors(self.source, tensors)

    def place(self, model: Model) -> Model:
        """See `Placement.place`: every layer is assembled separately, and the remaining modules as one more unit.

        Parameters that train in a short format have float32 rows, which are rounded for computing. An adapter computes
        in float32, as in one process.
        """
        if not isinstance(self._offload, CPUOffloadPolicy):  # else `fully_shard` moves one part at a time there
            model.to(self.device)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dtype in SHORT:
                parameter.data = parameter.data.float()
        precision = MixedPrecisionPolicy() if list_adapter(model) else self._precision
        parts: list[torch.nn.Module] = [*list_layers(model), model]
        for part in parts:
            fully_shard(
                part,
                mesh=self._mesh,
                mp_policy=precision,
                offload_policy=self._offload,
                reshard_after_forward=True,
            )
        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo cannot scale while it sums
        return model

    def find_dtype(self, policy: PreTrainedModel) -> torch.dtype:
        """See `Placement.find_dtype`: for a policy in a short format, ranks hold float32 rows."""
        dtype: torch.dtype = self.source.dtype
        return dtype

    def find_backbone(self, policy: PreTrainedModel) -> Backbone:
        """See `Placement.find_backbone`."""
        policy.run_layers = MethodType(_run_layers, policy)
        register_fsdp_forward_method(policy, "run_layers")
        backbone: Backbone = policy.run_layers
        return backbone

    def compute_sums(self, policy: PreTrainedModel) -> dict[str, int]:
        """See `Placement.compute_sums`; a checksum of a tensor is the sum of those of its rows."""
        sums = sum_tensors(dict(self.list_rows(policy)))
        whole: Any = self.ranks.add(np.array(list(sums.values()), np.int64))  # type: ignore[arg-type]
        return join_base(dict(zip(sums, whole.tolist(), strict=True)))

    def publish(self, policy: PreTrainedModel) -> None:
        """Write this rank's rows into the shared copy."""
        for _, rows, published in self._pair_rows(policy):
            published.copy_(rows)

    def find_drift(self, policy: PreTrainedModel) -> str | None:
        """Return the first tensor whose rows differ between this rank and the shared copy."""
        for name, rows, published in self._pair_rows(policy):
            if compute_checksum(rows) != compute_checksum(published):
                return name
        return None

    def list_rows(self, policy: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield this rank's rows of every parameter as engines sample with them, by name."""
        return ((name, rows) for name, rows, _ in self._pair_rows(policy))

    @torch.no_grad()
    def _pair_rows(self, policy: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yield the items of `list_rows` with the same rows of the source."""
        source = dict(self.source.named_parameters())
        for name, parameter in policy.named_parameters():
            published = cut_rows(source[name].detach(), parameter)
            yield name, own_rows(parameter.detach()).to(published.dtype), published


def _run_layers(policy: PreTrainedModel, **inputs: Any) -> Any:
    return policy.base_model(**inputs)
