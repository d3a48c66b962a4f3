"""What an audit of a run needs, from its recipe and its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.audit.audit import AuditReport, run_audit
from turnwise.audit.documents import AuditedDocuments
from turnwise.audit.materials import AuditMaterials
from turnwise.audit.pictures import FixedPictures
from turnwise.building.audited import read_audit_settings
from turnwise.building.curriculum import build_curriculum
from turnwise.building.families import build_family
from turnwise.building.trainer import build_packing
from turnwise.config.roles import list_learners
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.pictures import Pictures
from turnwise.core.protocols import EnvironmentFamily, Renderer
from turnwise.core.types import Sample
from turnwise.models.checksums import compute_checksums, join_sums
from turnwise.models.threads import set_threads
from turnwise.pictures.store import open_pictures
from turnwise.runs.build import find_device, load_checkpoint
from turnwise.runs.data_files import list_data_files
from turnwise.runs.documents import load_library
from turnwise.runs.evaluate import load_run
from turnwise.runs.layouts import let_see
from turnwise.runs.pretraining import find_order_seed
from turnwise.runs.renderer import build_renderer, load_checkpoint_tokenizer, resolve_renderer
from turnwise.runs.sft import first_rl_task
from turnwise.store.checkpoint_folder import latest_checkpoint, policy_folder
from turnwise.training.forward import score_exact, score_logprobs


def audit_run(run: Path, *, replay_tools: bool = False, device: str | None = None) -> AuditReport:
    """Audit a finished or running run; `device` None scores on the run's own. Raises what `run_audit` raises, and
    ConfigError if the device is unavailable."""
    folder, config = load_run(run, device=device)
    find_device(config)
    set_threads(config.train.num_threads)
    return run_audit(folder.path, build_materials(folder.path, config), replay_tools=replay_tools)


def build_materials(run: Path, config: RunConfig) -> AuditMaterials:
    """The objects of the recipe; models are loaded one at a time, when they are asked for."""
    checkpoint, family = latest_checkpoint(run), build_family(config)
    pictures = FixedPictures(open_pictures(run))
    models = _LastModel(config, pictures)

    def score(path: Path, samples: Sequence[Sample]) -> Sequence[NDArray[Any]]:
        return score_logprobs(models.load(path), samples, config.rollout.temperature, **build_packing(config))

    def score_in_float32(path: Path, samples: Sequence[Sample]) -> Sequence[NDArray[Any]]:
        return score_exact(models.load(path), samples, config.rollout.temperature, **build_packing(config))

    def sum_weights(path: Path) -> Mapping[str, int]:
        names = ("", *list_learners(config.roles))
        return join_sums({name: compute_checksums(models.load(policy_folder(path, name))) for name in names})

    renderer = None if checkpoint is None else _build_renderer(config, family, checkpoint, pictures)
    return AuditMaterials(
        settings=read_audit_settings(config),
        family=family,
        data_files=list_data_files(family),
        documents=_make_documents(config, family, renderer, checkpoint),
        pictures=pictures,
        renderer=renderer,
        score=score,
        score_exact=score_in_float32,
        sum_weights=sum_weights,
        num_started=config.rollout.group_size + config.schedule.overdraw,
        max_staleness=config.schedule.max_staleness,
        cuts_late=config.schedule.late == "cut",
        build_curriculum=lambda: build_curriculum(config),
        first_task=first_rl_task(config),
    )


def _build_renderer(config: RunConfig, family: EnvironmentFamily, checkpoint: Path, pictures: Pictures) -> Renderer:
    tokenizer = load_checkpoint_tokenizer(config, checkpoint)
    return build_renderer(config, resolve_renderer(config, family, tokenizer), tokenizer, checkpoint, pictures)


def _make_documents(
    config: RunConfig, family: EnvironmentFamily, renderer: Renderer | None, checkpoint: Path | None
) -> AuditedDocuments | None:
    """The documents of continual pre-training, read or built again; None for a recipe without it."""
    cpt, library, missing = config.cpt, None, "the run has no checkpoint, and so no tokenizer"
    if not cpt.steps:
        return None
    if renderer is not None and checkpoint is not None:
        try:
            library = load_library(config, family, renderer, load_checkpoint_tokenizer(config, checkpoint))
        except (ConfigError, DataError) as cause:
            missing = str(cause)
    return AuditedDocuments(
        steps=cpt.steps,
        batch_tokens=cpt.batch_tokens,
        max_tokens=cpt.max_tokens,
        packing=cpt.packing,
        seed=find_order_seed(config),
        token_ids=None if library is None else library.token_ids,
        missing=missing,
    )


class _LastModel:
    """Keeps the model that was loaded last."""

    def __init__(self, config: RunConfig, pictures: Pictures) -> None:
        self._config = config
        self._pictures = pictures
        self._last: tuple[Path, PreTrainedModel] | None = None

    def load(self, path: Path) -> PreTrainedModel:
        """The model of a checkpoint folder."""
        if self._last is None or self._last[0] != path:
            tokenizer = load_checkpoint_tokenizer(self._config, path)
            model = load_checkpoint(self._config, path, tokenizer)
            self._last = path, let_see(self._config, model, tokenizer, self._pictures)
        return self._last[1]
