"""A reward model as a folder: layers and tokenizer as a Hugging Face directory, the head, and how it was made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from turnwise.batching.collate import Packing
from turnwise.core.errors import ConfigError
from turnwise.models.build import load_model
from turnwise.models.folders import model_writer, save_tokenizer
from turnwise.models.lora import copy_model
from turnwise.rendering.tokenizer import load_tokenizer
from turnwise.training.critic import build_critic
from turnwise_rewards.reward_models.model import RewardModel

FACTS, HEAD = "reward_model.json", "value_head.safetensors"
KINDS = ("outcome", "process")
MICRO_BATCH_TOKENS = 8192


def save_reward_model(model: RewardModel, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the model to a new folder, complete or not at all; `facts` (JSON values) say how it was made.

    Raises ConfigError if the folder exists and is not empty, StoreError if the disk refuses."""
    whole = copy_model(model.critic.policy)
    whole.base_model.load_state_dict(model.critic.module["backbone"].state_dict())
    with model_writer(folder) as temporary:
        whole.save_pretrained(temporary)
        save_tokenizer(model.tokenizer, temporary)
        head = {name: tensor.detach().cpu().contiguous() for name, tensor in model.critic.head.state_dict().items()}
        save_file(head, temporary / HEAD)
        text = json.dumps({"format": 1, "kind": model.kind, **facts}, indent=1)
        (temporary / FACTS).write_text(text + "\n", encoding="utf-8")


def load_reward_model(
    path: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    source: str,
    device: torch.device | str = "cpu",
    micro_batch_tokens: int = MICRO_BATCH_TOKENS,
) -> RewardModel:
    """Load a model for scoring, on `device`. `source` says in errors which option names `path`.

    Raises ConfigError for a folder that is no reward model, weights that are not finite or do not fit, and a model that
    reads other tokens than those of `tokenizer`."""
    folder = Path(os.path.expanduser(path))
    where = f"{source}={path!r}"
    facts = read_facts(folder, where)
    if load_tokenizer(folder).get_vocab() != tokenizer.get_vocab():
        raise ConfigError(
            f"{where} has another tokenizer than this run, whose token ids would mean other text to it; train a reward "
            "model on a run with this tokenizer, or set tokenizer.path to the reward model's folder"
        )
    policy = load_model(folder, device=device, source=source)
    critic = build_critic(policy, kind="head", lr=0.0, clip=None, coefficient=1.0, betas=(0.9, 0.999), weight_decay=0.0)
    try:
        critic.head.load_state_dict(load_file(folder / HEAD))
    except (OSError, SafetensorError, RuntimeError) as cause:
        line = str(cause).strip().splitlines()[0]
        raise ConfigError(f"{where}: {HEAD} cannot be read ({line}); train the reward model again") from None
    weights = [*policy.base_model.parameters(), *critic.head.parameters()]
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise ConfigError(f"{where} has weights that are not finite; train the reward model again")
    packing = Packing(micro_batch_tokens=micro_batch_tokens, shared_prefix=False)
    return RewardModel(kind=facts["kind"], critic=critic, tokenizer=tokenizer, packing=packing, name=where)


def read_facts(folder: Path, where: str) -> dict[str, Any]:
    """Read how a model was made. Raises ConfigError, in a message that begins with `where`, if the folder is no reward
    model."""
    remedy = "make one with `turnwise reward-model train RUN FOLDER`"
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(f"{where} is no reward model: it has no {FACTS}; {remedy}") from None
    except ValueError:
        raise ConfigError(f"{where}: {FACTS} is no JSON; {remedy}") from None
    if not isinstance(facts, dict) or facts.get("format") != 1 or facts.get("kind") not in KINDS:
        raise ConfigError(
            f"{where}: {FACTS} has no format 1 with a kind of {' or '.join(KINDS)}; it is of another version: {remedy}"
        )
    return facts
