"""Export: what transformers loads from the folder scores, splits and ends exactly as the run's policy does."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from turnwise.building.families import build_family
from turnwise.config.load import dump_resolved, load_config, load_resolved
from turnwise.core.errors import CheckpointError, ConfigError, StoreError
from turnwise.core.protocols import Opening
from turnwise.core.types import text_message
from turnwise.rendering.tags import TagRenderer
from turnwise.runs.export import export_policy
from turnwise.runs.export_usage import check_served, complete_template, describe_usage, read_usage
from turnwise.runs.renderer import build_renderer, resolve_renderer
from turnwise.store.checkpoint_folder import checkpoint_writer
from turnwise.store.run_folder import RunFolder
from turnwise.testing import build_tiny_model, build_tiny_tokenizer, make_task
from turnwise.training.optimizer import build_optimizer
from turnwise.training.state import save_training_state

RECIPE = Path(__file__).parents[3] / "recipes" / "search_r1" / "tiny.toml"
TEXTS = ["What is the author of Blue Lantern ?", "The author is Mira Tolen ."]
IDS = torch.arange(5, 45).unsqueeze(0)


def make_run(path: Path, *, model=None, tokenizer=None, steps=(0, 3)) -> Path:
    """A run folder with checkpoints of a tiny policy and two evaluations."""
    folder = RunFolder.create(path)
    config = load_config([RECIPE], ["run.name=told"])
    folder.write_json("config.json", dump_resolved(config))
    tokenizer = tokenizer or build_tiny_tokenizer(TEXTS)
    for step in steps:
        policy = model or build_tiny_model(vocab_size=len(tokenizer), seed=step)
        optimizer = build_optimizer(policy, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)
        with checkpoint_writer(path, step) as out:
            save_training_state(out, policy, tokenizer, optimizer, {"step": step})
        row = {"kind": "all", "n": 50, "success": step / 4, "low": 0.0, "high": 1.0}
        name = f"heldout_{step:06d}"
        summary = {"name": name, "label": f"after {step}", "step": step, "rows": [row]}
        folder.write_json(f"evaluations/{name}.summary.json", summary)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return make_run(path)


@pytest.mark.parametrize(("dtype", "stored"), [(None, torch.float32), ("bfloat16", torch.bfloat16)])
def test_logits_are_those_of_the_policy_bit_for_bit(run, tmp_path, dtype, stored):
    folder = export_policy(run, tmp_path / "out", dtype=dtype)
    tokenizer = build_tiny_tokenizer(TEXTS)
    policy = build_tiny_model(vocab_size=len(tokenizer), seed=3)
    policy.config._attn_implementation = "eager"
    for parameter in policy.parameters():  # not the frequencies of the positions, which stay in float32
        parameter.data = parameter.data.to(stored)
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    assert loaded.dtype == stored
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, policy(IDS).logits)
    # Without rope_parameters a reader finds the same number under the name that transformers 4 had.
    table = json.loads((folder / "config.json").read_text())
    assert (table["rope_theta"], table["torch_dtype"]) == (100.0, str(stored).removeprefix("torch."))
    assert AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"] == 100.0


def test_tokens_template_and_ends_are_those_of_the_run(run, tmp_path):
    folder = export_policy(run, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = load_resolved(run / "config.json")
    tiny = build_tiny_tokenizer(TEXTS)
    renderer = build_renderer(config, resolve_renderer(config, build_family(config), tiny), tiny)
    messages = [("system", "You may search ."), ("user", TEXTS[0])]
    opening = renderer.open([text_message("system", messages[0][1]), text_message("user", messages[1][1])], ())
    written = [{"role": role, "content": text} for role, text in messages]
    ids = tokenizer.apply_chat_template(written, add_generation_prompt=True, return_dict=False)
    assert ids == opening.tolist()
    ends = AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id
    assert tokenizer.convert_ids_to_tokens(ends) == ["<|endoftext|>", "</search>", "</answer>"]


def test_the_card_and_the_usage_say_how_a_conversation_opens(run, tmp_path):
    folder = export_policy(run, tmp_path / "out")
    usage = json.loads((folder / "turnwise_usage.json").read_text())
    assert usage["check"] == "same: the chat template opens 3 training tasks with the tokens of the run"
    request = usage["request"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(request["messages"], add_generation_prompt=True, return_dict=False)
    assert ids == usage["prompt_token_ids"]
    assert tokenizer.decode(ids) == usage["prompt"]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["search"]
    assert tokenizer.convert_ids_to_tokens(request["stop_token_ids"]) == ["<|endoftext|>", "</search>", "</answer>"]
    card = (folder / "README.md").read_text()
    assert usage["prompt"] in card
    assert "Served against run: same" in card


class OpensOnce:
    """A family of one task that opens with a system message, and no more once it is told so."""

    def __init__(self, broken=False, own=False):
        self.broken, self.own = broken, own

    def task(self, split, index):
        if index >= 2:
            raise IndexError(index)
        return make_task(f"task {index}", environment="once")

    def build_environment(self, task):
        family = self

        class Environment:
            async def reset(self, task, seed):
                if family.broken:
                    raise OSError("data gone")
                text = f"You may search . {task.prompt[0].text if family.own else ''}"
                return Opening(messages=(text_message("system", text), *task.prompt), tools=())

            async def close(self):
                pass

        return Environment()


@pytest.mark.parametrize("own", [False, True])
def test_the_system_message_that_all_tasks_have_is_in_the_template(own):
    family: Any = OpensOnce(own=own)
    usage = read_usage(family)
    assert usage.system == (None if own else "You may search . ")
    assert len(usage.openings) == 2
    tokenizer = build_tiny_tokenizer(TEXTS)
    renderer = TagRenderer(tokenizer)
    complete_template(tokenizer, renderer, usage)
    assert check_served(tokenizer, renderer, usage).startswith("same: the chat template opens 2 training tasks")
    asked = [{"role": "user", "content": "task 0"}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    assert (ids == renderer.open(usage.openings[0].messages, ()).tolist()) is not own
    tokenizer.chat_template = "{{ messages[-1].content }}"
    assert check_served(tokenizer, renderer, usage).startswith("differs: at token 0 the chat template gives 'task 0'")


def test_an_environment_that_does_not_open_here_is_no_end_of_the_export():
    family: Any = OpensOnce(broken=True)
    usage = read_usage(family)
    check = check_served(build_tiny_tokenizer(TEXTS), TagRenderer(build_tiny_tokenizer(TEXTS)), usage)
    assert check.startswith("not checked: the environment cannot be opened here: ")
    assert "data gone" in check
    assert "does not say how a conversation opens" in describe_usage({"check": check}, usage)


def test_the_card_has_recipe_and_results_up_to_the_checkpoint(run, tmp_path):
    latest = (export_policy(run, tmp_path / "latest") / "README.md").read_text()
    assert "| after 3 | 3 | 50 | 75.0% [0.0, 100.0] |" in latest.replace("\u00a0", " ")
    folder = export_policy(run / "checkpoints" / "step_000000", tmp_path / "first")
    card = (folder / "README.md").read_text()
    assert "after 0" in card
    assert "after 3" not in card
    assert json.loads((folder / "turnwise_recipe.json").read_text())["run"]["name"] == "told"
    assert not (folder / "state.safetensors").exists()


def test_what_cannot_be_exported_is_named_and_nothing_is_written(run, tmp_path):
    with pytest.raises(StoreError, match="is not a run folder"):
        export_policy(tmp_path, tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*step_000009.* steps: 0, 3"):
        export_policy(run / "checkpoints" / "step_000009", tmp_path / "out")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        export_policy(make_run(tmp_path / "empty", steps=()), tmp_path / "out")
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    weights = damaged / "checkpoints" / "step_000003" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors has .* bytes instead of"):
        export_policy(damaged, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(ConfigError, match="already exists"):
        export_policy(run, tmp_path / "taken")
