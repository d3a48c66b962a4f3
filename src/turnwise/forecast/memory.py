"""Predict the peak memory of a recipe's engine and trainer from its numbers alone, without torch.

Counted is what lives at the same time: what stays (the models of `building/copies.py` with their moments, packed
weights, key-value cache, staged files, libraries of further processes) and what a phase adds: sampling, a training
step, the publication of a version. In one process only one phase runs at a time; where rollouts go on during a step, or
other processes sample, sampling adds to the others.

On a CPU a training step takes more than its arrays, because the C library keeps the freed blocks of a backward pass
(`forecast/activations.py`). `benchmarks/memory.py` compares the prediction with processes.

On a GPU ("cuda") the plan is that of the GPU with most: with ranks the trainer's, which also holds the policy that the
engine samples from. Not counted: what torch's allocator rounds up and keeps, the work space of kernels (attention
without a fused kernel holds a matrix of tokens by tokens), and the CUDA context, usually some hundred MiB."""

from __future__ import annotations

from dataclasses import dataclass, replace

from turnwise.forecast.activations import count_training
from turnwise.forecast.copies import Copies
from turnwise.forecast.held import Model, Precision, Shapes, find_precision, list_models, read_shapes
from turnwise.forecast.sampling_memory import plan_engine
from turnwise.forecast.settings import ForecastSettings
from turnwise.models.shape import ModelShape

WORKER_BYTES = 260 << 20
"""Interpreter and libraries of one engine worker or rank, without what it shares with other processes: measured."""
GUEST_BYTES = 600 << 20
"""Interpreter and libraries of one process of vLLM, without weights and cache: measured."""
PLAYER_BYTES = 950 << 20
"""Interpreter, libraries and environments of one rollout process, without weights, cache and sampling: measured with
the search recipe."""
LIBRARY_BYTES = 400 << 20
"""Interpreter and libraries of the trainer's process; not part of a `MemoryPlan`."""
STAGED_VERSIONS = 2
"""Versions of the weights that lie as files for other processes (`models/staging.py`); one more while it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Predicted memory in bytes."""

    models: tuple[tuple[str, int], ...]
    """Name and weights of every model and copy: of the policy, of the served copy that engines sample from, of
    reference, implicit reward model, critic, teacher, of ranks' rows, of other processes."""
    optimizer: int
    """Gradients and two AdamW moments of the trained parameters, an adapter's where there is one, and a float32 copy of
    trained weights of a half format."""
    packed: int
    """The engines' packed or joined copies of weights, one per worker; 0 if they run the model's modules."""
    cache: int
    """Keys and values, and states of recurrent layers, of all engines."""
    staged: int
    """Files in shared memory from which other processes read weights."""
    libraries: int
    """Interpreters and libraries of engine workers, ranks and rollout processes; 0 if all share a process."""
    sampling: int
    """Further memory while all engines sample, at most."""
    training: int
    """Further memory in a training step besides gradients, at most: activations, logits, what a step keeps to be taken
    back, and the layer that ranks have put together."""
    publishing: int
    """Further memory while a version is given to other processes, at most."""
    gradients: int
    """The part of `optimizer` that only a training step holds."""
    checkpoint: int
    """Bytes of one checkpoint on disk."""
    is_overlapped: bool
    """Whether sampling adds to the other phases instead of taking turns with them."""

    @property
    def weights(self) -> int:
        """Of all models together."""
        return sum(size for _, size in self.models)

    @property
    def peak(self) -> int:
        """The most that engine and trainer take together."""
        stays = self.weights + self.optimizer - self.gradients
        stays += self.packed + self.cache + self.staged + self.libraries
        phases = (self.gradients + self.training, self.publishing)
        return stays + (self.sampling + max(phases) if self.is_overlapped else max(self.sampling, *phases))


def plan_memory(settings: ForecastSettings, *, shapes: Shapes | None = None, device: str = "cpu") -> MemoryPlan | None:
    """Predict the memory of a recipe on `device`, "cpu" or "cuda"; None if the model's sizes are unknown.

    `shapes` None reads those in the models' own config.json. `train.micro_batch_tokens` = 0 counts as 16384, the most
    it may become.
    """
    shapes = shapes or read_shapes(settings)
    if shapes is None:
        return None
    players = settings.rollout.num_workers
    plan = _plan_run(settings, shapes, device)
    if not players:
        return plan
    each = _plan_run(_strip(settings), shapes, device)
    sent = _count_sent(settings, shapes)
    return replace(
        plan,
        models=(*plan.models, ("rollout processes", players * each.weights)),
        packed=plan.packed + players * each.packed,
        cache=plan.cache + players * each.cache,
        staged=plan.staged + STAGED_VERSIONS * sent * (device == "cpu"),
        libraries=plan.libraries + players * (PLAYER_BYTES + each.libraries) * (device == "cpu"),
        sampling=plan.sampling + players * each.sampling,
        publishing=plan.publishing + sent * (1 + players) * (device == "cpu"),
        is_overlapped=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Predicted bytes on the GPU of one rank, without an engine and the policy that it samples from."""

    states: int
    """Its rows of all models, their gradients and moments, and what a step keeps of them to be taken back."""
    gathered: int
    """The part of a model that is put together while it computes, and the part's gradient; 0 in one process."""
    activations: int
    """What a micro-batch keeps for the backward pass."""
    logits: int

    @property
    def peak(self) -> int:
        """All together, in the training step."""
        return self.states + self.gathered + self.activations + self.logits


def plan_rank(settings: ForecastSettings, shapes: Shapes, *, num_ranks: int) -> RankMemory:
    """The memory of each of `num_ranks` on GPUs; every one computes micro-batches of its own, so that activations do
    not depend on how many there are."""
    ranked = replace(settings, train=settings.train.model_copy(update={"ranks": num_ranks}))
    precision, has_rows = find_precision(ranked), num_ranks > 1
    models = list_models(ranked, shapes)
    weights = sum(model.rows if has_rows else model.whole for model in models)
    optimized = sum(_count_states(model, precision) for model in models)
    kept_back = sum(_count_snapshot(model, precision) for model in models if model.steps_back)
    gradients = max(model.trained for model in models) * precision.gradient
    activations = count_training(settings, shapes.policy, device="cuda", has_logits=False)
    return RankMemory(
        states=(weights + optimized + kept_back + gradients) // num_ranks,
        gathered=_count_gathered(ranked, shapes.policy, precision) if has_rows else 0,
        activations=activations,
        logits=count_training(settings, shapes.policy, device="cuda") - activations,
    )


def _plan_run(settings: ForecastSettings, shapes: Shapes, device: str) -> MemoryPlan:
    """Everything but rollout processes."""
    shape, precision, on_cpu = shapes.policy, find_precision(settings), device == "cpu"
    copies, kind = settings.copies, settings.engine_kind
    learners, ranks = copies.num_learners, settings.train.ranks
    footprint = kind.footprint(settings.engine.options)
    workers, guests = footprint.num_workers, learners * footprint.num_guests
    models = list_models(settings, shapes)
    held = _list_held(settings, shapes, models, on_cpu=on_cpu)
    if guests:
        held.append((f"processes of {kind.name}", guests * models[0].whole))
    # Rows that ranks keep in the memory of the CPU take none of a GPU's; on it they divide what they hold.
    is_away = settings.train.offload_to_cpu and not on_cpu
    share = 1 if on_cpu else ranks
    optimized = 0 if is_away else sum(_count_states(model, precision) for model in models) // share
    gradients = 0 if is_away else max(model.trained for model in models) * precision.gradient // share
    # What one learner's step takes back, and what all but the last one's may take back when a later one fails.
    kept_back = [(_count_snapshot(model, precision), model.steps_back) for model in models]
    snapshots = sum(size * (steps_back + learners - 1) for size, steps_back in kept_back)
    added = count_training(settings, shape, device=device) + (
        _count_gathered(settings, shape, precision) if ranks > 1 else 0
    )
    engine = plan_engine(settings, shape, device=device)
    engines = learners + copies.num_past
    others = [plan_engine(settings, shapes.frozen.get(path, shape), device=device) for path in copies.frozen]
    processes = (workers if workers > 1 else 0) + (learners * ranks if ranks > 1 else 0)
    is_staged = on_cpu and footprint.is_staged
    sent = _count_sent(settings, shapes)
    base = shape.num_parameters * precision.weight if copies.is_adapted else 0
    return MemoryPlan(
        models=tuple(held),
        optimizer=learners * optimized + gradients,
        packed=engines * engine.packed + sum(other.packed for other in others),
        cache=engines * engine.cache + sum(other.cache for other in others) + guests * footprint.guest_cache_bytes,
        staged=learners * (STAGED_VERSIONS * sent + base) if is_staged else 0,
        libraries=processes * WORKER_BYTES + guests * GUEST_BYTES if on_cpu else 0,
        sampling=engine.sampling,
        training=(ranks if on_cpu else 1) * added + (0 if is_away else snapshots // share),
        publishing=(sent if is_staged else 0) + guests * sent,
        gradients=gradients,
        checkpoint=learners
        * (sum(_count_snapshot(model, precision) for model in models) + (models[0].whole if ranks > 1 else 0)),
        is_overlapped=copies.has_served or processes > 0 or guests > 0,
    )


def _list_held(
    settings: ForecastSettings, shapes: Shapes, models: list[Model], *, on_cpu: bool
) -> list[tuple[str, int]]:
    """Name and weights of every model, those of the policy first."""
    shape, precision, copies = shapes.policy, find_precision(settings), settings.copies
    learners, ranks = copies.num_learners, settings.train.ranks
    base = shape.num_parameters * precision.weight
    adapter = models[0].whole - base  # of the policy, which has all its weights
    held = [("policy", learners * models[0].whole)]
    if copies.has_served:
        held.append(("served copy", learners * (adapter if copies.is_adapted else base)))
    if ranks == 1:
        held += [(model.name, learners * model.whole) for model in models[1:]]
    elif on_cpu or not settings.train.offload_to_cpu:
        share = 1 if on_cpu else ranks
        held += [(f"{model.name}, rows of ranks", learners * model.rows // share) for model in models]
    if copies.num_past:
        held.append(("snapshots that play roles", copies.num_past * models[0].whole))
    for path in copies.frozen:
        held.append((f"role or judge of {path}", shapes.frozen.get(path, shape).num_parameters * precision.weight))
    return held


def _count_states(model: Model, precision: Precision) -> int:
    """Bytes of moments and of the copy that the optimizer steps on."""
    return model.trained * (precision.moments + precision.master)


def _count_snapshot(model: Model, precision: Precision) -> int:
    """Bytes of a copy of trained weights and moments, in memory or on disk."""
    return model.trained * (precision.trained + precision.moments + precision.master)


def _count_gathered(settings: ForecastSettings, shape: ModelShape, precision: Precision) -> int:
    """Bytes of the part of a model that one rank has put together: a layer and the next one, or embedding and output
    layer, which are one part; and the gradient of that part before it is cut."""
    outside = shape.num_head * (1 if shape.tied else 2)
    layer = max(0, shape.num_parameters - outside) // shape.num_layers
    gradient = precision.weight + (precision.gradient if precision.gradient != precision.weight else 0)
    trained = 0 if settings.model.lora is not None else max(outside, layer)
    return (outside + 2 * layer) * precision.weight + trained * gradient


def _count_sent(settings: ForecastSettings, shapes: Shapes) -> int:
    """Bytes of a version of the weights as it is given to other processes: all, or those of the adapter."""
    policy = list_models(settings, shapes)[0]
    base = shapes.policy.num_parameters * find_precision(settings).weight
    return policy.whole - base if settings.model.lora is not None else base


def _strip(settings: ForecastSettings) -> ForecastSettings:
    """What one rollout process runs: an engine for its share of the conversations, and engines of its own for roles
    that do not learn."""
    share = -(-settings.engine.max_concurrency // settings.rollout.num_workers)
    return replace(
        settings,
        engine=settings.engine.model_copy(update={"max_concurrency": share}),
        rollout=settings.rollout.model_copy(update={"num_workers": 0}),
        train=settings.train.model_copy(update={"ranks": 1}),
        copies=Copies(is_adapted=settings.copies.is_adapted, frozen=settings.copies.frozen),
    )
