"""A recorder of graphs for the CPU with the limits of a GPU's graphs, so that tests fail where a GPU would."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from turnwise.engines.paged.graphs import Record, Step

Operation = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
WAITING = ("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select", "aten::unique")
"""Operations whose result the CPU must know: recording fails on a GPU."""


class Tape(TorchDispatchMode):
    """Writes down every operation with the tensors it was given and the tensors it made."""

    supports_higher_order_operators = True  # flex_attention is one; its mask holds the tensors it looks at

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name() if callable(getattr(func, "name", None)) else ""
        assert not name.startswith(WAITING), name
        made = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, made))
        return made


def replay(operations: list[Operation]) -> None:
    """The same operations on the same tensors, results written where they were the first time.

    No Python of the step runs.
    """
    for func, args, kwargs, made in operations:
        repeated = func(*args, **kwargs)
        for old, new in zip(tree_leaves(made), tree_leaves(repeated), strict=True):
            if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():  # a view is where it was
                old.copy_(new)


def record_on_cpu() -> Record:
    """For `PagedEngine(recorder=...)`.

    Warms up once, as on a GPU, where recording computes nothing; here it computes once more.
    """

    def record(step: Step) -> Step:
        step()
        with Tape() as tape:
            logits = step()

        def again() -> torch.Tensor:
            replay(tape.operations)
            return logits

        return again

    return record
