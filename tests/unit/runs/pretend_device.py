"""A device that is not there: it computes on the CPU and refuses what a GPU would refuse.

Its tensors say that they are on `DEVICE`. An operation that mixes them with tensors of the CPU raises (but for single
numbers, as on a GPU), and so do kernels that exist for the CPU only and looking at memory (`.numpy()`). Stricter than
CUDA in one point: an index on the CPU is refused too. It does not model how another device rounds, how fast it is, or
which dtypes its kernels lack.

Registering a device is for a whole process and must come before the first backward pass, so what uses it runs in a
process of its own: `pretend_checks.py`."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)
aten = torch.ops.aten
MOVES = (aten._to_copy, aten.to, aten.copy_)
"""The only operations that may read one device and write the other."""
CPU_ONLY = ("mkldnn", "quantized", "onednn")


class Mixed(RuntimeError):
    """What a GPU would have refused."""


class There(torch.Tensor):
    """A tensor on `DEVICE` around one on the CPU."""

    on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "There":
        about: dict[str, Any] = {
            "strides": inner.stride(),
            "storage_offset": inner.storage_offset(),
            "dtype": inner.dtype,
        }
        with torch.inference_mode(inner.is_inference()):
            tensor = torch.Tensor._make_wrapper_subclass(cls, inner.size(), device=DEVICE, **about)  # type: ignore[attr-defined]
        tensor.on_cpu = inner
        return tensor  # type: ignore[no-any-return]

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return f"There({self.on_cpu})"

    def tolist(self) -> Any:
        """As anywhere: copied to Python."""
        return self.on_cpu.detach().tolist()

    def storage(self) -> Any:
        """For code that asks which tensors share memory, as saving a checkpoint does."""
        return self.on_cpu.storage()

    def untyped_storage(self) -> torch.UntypedStorage:
        """See `storage`."""
        return self.on_cpu.untyped_storage()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return run(func, args, dict(kwargs or {}))


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation, computed on the CPU. Raises Mixed."""
    flat, structure = _pytree.tree_flatten((args, kwargs))
    tensors = [each for each in flat if isinstance(each, torch.Tensor)]
    there = any(isinstance(each, There) for each in tensors)
    moves = func.overloadpacket in MOVES
    if there and not moves:
        if any(name in str(func) for name in CPU_ONLY):
            raise Mixed(f"{func} is for the CPU, its tensors are on {DEVICE}")
        if any(not isinstance(each, There) and each.dim() for each in tensors):
            raise Mixed(
                f"{func} of tensors on {DEVICE} and on the CPU: "
                f"{[(each.device, tuple(each.shape)) for each in tensors]}"
            )
    if func is aten.copy_.default:
        there = isinstance(args[0], There)
    inner = [each.on_cpu if isinstance(each, There) else each for each in flat]
    for place, each in enumerate(flat):
        if isinstance(each, torch.device):
            there, inner[place] = each.type == NAME, torch.device("cpu")
    if moves and func.overloadpacket is not aten.copy_ and isinstance(args[0], There) != there:
        inner[0] = inner[0].clone()  # so that the two share no memory
    inner_args, inner_kwargs = _pytree.tree_unflatten(inner, structure)
    given = {id(own): each for own, each in zip(inner, flat, strict=True) if isinstance(each, There)}

    def wrap(out: Any) -> Any:
        if not isinstance(out, torch.Tensor):
            return out
        # What changes in place stays the tensor it was.
        return given[id(out)] if id(out) in given else There(out) if there else out

    return _pytree.tree_map(wrap, func(*inner_args, **inner_kwargs))


class _OnThread(TorchDispatchMode):
    """`Pretending` on one thread: torch keeps modes for each."""

    def __enter__(self) -> Any:
        torch._C._set_only_lift_cpu_tensors(True)  # or torch.tensor(..., device=) would look for memory there
        return super().__enter__()

    def __exit__(self, *cause: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(False)
        super().__exit__(*cause)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return run(func, args, dict(kwargs or {}))


class Pretending(_OnThread):
    """While it is entered, tensors can be made on and moved to `DEVICE`, also by what is given to a pool of threads."""

    def __enter__(self) -> Any:
        self._submit = submit = ThreadPoolExecutor.submit

        def submit_there(pool: ThreadPoolExecutor, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            def compute() -> Any:
                with _OnThread():
                    return work(*args, **kwargs)

            return submit(pool, compute)

        ThreadPoolExecutor.submit = submit_there  # type: ignore[assignment, method-assign]
        return super().__enter__()

    def __exit__(self, *cause: Any) -> None:
        ThreadPoolExecutor.submit = self._submit  # type: ignore[method-assign]
        super().__exit__(*cause)


def is_refused(operation: Callable[[], object], *, cause: type[Exception] = Mixed) -> bool:
    """Whether it raises."""
    try:
        operation()
    except cause:
        return True
    return False


def check_the_device() -> dict[str, bool]:
    """That it would notice."""
    here = torch.ones(3)
    there = here.to(DEVICE)
    index = torch.tensor([0, 1])
    return {
        "adding": is_refused(lambda: there + here),
        "indexing": is_refused(lambda: there[index]),
        "scattering": is_refused(lambda: there.index_copy_(0, index, torch.ones(2))),
        "mkldnn": is_refused(lambda: torch.ops.mkldnn._linear_pointwise(there, there, None, "none", [], "")),
        "numpy": is_refused(there.numpy, cause=(RuntimeError, TypeError)),  # type: ignore[arg-type]
        "single numbers pass": not is_refused(lambda: there * torch.tensor(2.0)),
        "the same device passes": bool(((there + torch.ones(3, device=DEVICE)).cpu() == 2).all()),
    }
