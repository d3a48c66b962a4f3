"""TRL's side of `benchmarks/step.py`: `GRPOTrainer` with `tools=`, on CPU, step by step, in the protocol of
`benchmarks/step_side.py`.

    PYTHONPATH=benchmarks .venv-peers/bin/python peers/trl_step.py

Settings: `model` (a Hugging Face folder), `recipe` (the TOML both sides read), `seed`, `steps`, `max_completion_tokens`
(after the prompt, tool answers included), `rows` (sequences per forward and backward pass). The tokenizer gets TRL's
own template for Qwen3, and `<|im_end|>` as its end token, as Qwen3's has it."""

from __future__ import annotations

import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import step_world
import torch
import trl
from datasets import Dataset
from step_side import Side, Stopwatch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Turns(TrainerCallback):  # type: ignore[misc]
    """Waits for its turn where a step begins, writes a row where it ends."""

    def __init__(self, side: Side, watch: Stopwatch) -> None:
        self._side = side
        self._watch = watch
        self._started = self._processor_s = 0.0
        self.row: dict[str, Any] = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before generation."""
        if self._side.read() is None:
            raise SystemExit(0)
        self._watch.seconds.clear()
        self._started, self._processor_s = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After the optimizer."""
        total = time.perf_counter() - self._started
        spent = {"seconds": total, "processor_seconds": time.process_time() - self._processor_s}
        self._side.write({"step": state.global_step, **spent, "phases": self._watch.split(total), **self.row})


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The folder's tokenizer as TRL's tools need it."""
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    return tokenizer


def build_tools(watch: Stopwatch) -> list[Callable[..., object]]:
    """The world's functions without the type they return, which would stand in the prompt: Turnwise shows parameters
    only."""
    tools = [watch.timed(function, "tools") for function in step_world.TOOLS]
    for tool in tools:
        tool.__annotations__ = {name: hint for name, hint in tool.__annotations__.items() if name != "return"}
    return tools


def build_dataset(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> Dataset:
    """The run's questions, in Turnwise's order."""
    questions = [
        step_world.build_question(1000 + settings["seed"], index)
        for index in range(settings["steps"] * recipe["rollout"]["tasks_per_step"])
    ]
    prompts = [
        [{"role": "system", "content": step_world.SYSTEM}, {"role": "user", "content": question["text"]}]
        for question in questions
    ]
    return Dataset.from_dict({"prompt": prompts, "answer": [question["answer"] for question in questions]})


def build_arguments(recipe: Mapping[str, Any], settings: Mapping[str, Any], output: str) -> GRPOConfig:
    """The recipe in TRL's names. Everything that would slow TRL down for nothing on a CPU (checkpointing of
    activations) is off."""
    rollout, train = recipe["rollout"], recipe["train"]
    batch = rollout["tasks_per_step"] * rollout["group_size"]
    rows = settings["rows"]
    return GRPOConfig(
        output_dir=output,
        seed=settings["seed"],
        max_steps=settings["steps"],
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=batch // rows,
        num_generations=rollout["group_size"],
        max_completion_length=settings["max_completion_tokens"],
        max_tool_calling_iterations=rollout["max_turns"] - 1,
        temperature=1.0,
        learning_rate=train["lr"],
        lr_scheduler_type="constant",
        adam_beta1=0.9,
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        epsilon=recipe["loss"]["options"]["clip_low"],
        beta=0.0,
        loss_type="dapo",
        scale_rewards="group",
        shuffle_dataset=False,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def run(side: Side, settings: Mapping[str, Any], output: str) -> None:
    """Train, a step at a time."""
    recipe = tomllib.loads(Path(settings["recipe"]).read_text(encoding="utf-8"))
    watch = Stopwatch()
    watch.wrap_torch()
    turns = Turns(side, watch)

    def reward(prompts: list[Any], completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        with watch.phase("reward"):
            replies = [
                [m["content"] for m in messages if m["role"] == "assistant" and m.get("content")]
                for messages in completions
            ]
            finished = [
                messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls") for messages in completions
            ]
            judged = zip(replies, finished, answer, strict=True)
            rewards = [step_world.compute_reward(texts if done else (), right) for texts, done, right in judged]
        turns.row["reward"] = sum(rewards) / len(rewards)
        return rewards

    tokenizer = load_tokenizer(settings["model"])
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32, local_files_only=True),
        reward_funcs=reward,
        args=build_arguments(recipe, settings, output),
        train_dataset=build_dataset(recipe, settings),
        processing_class=tokenizer,
        tools=build_tools(watch),
        callbacks=[turns],
    )
    generate = trainer._generate

    def count_tokens(prompts: list[Any]) -> Any:
        with watch.phase("messages"):
            outputs = generate(prompts)
        prompt_ids, completion_ids, tool_mask, completions = outputs[:4]
        sampled = sum(map(sum, tool_mask))
        turns.row["tokens"] = {
            "context": sum(map(len, prompt_ids)) + sum(map(len, completion_ids)) - sampled,
            "sampled": sampled,
        }
        turns.row["tool_calls"] = sum(m["role"] == "tool" for messages in completions for m in messages) / len(
            completions
        )
        return outputs

    trainer._generate = count_tokens
    watch.wrap(trainer, "_generate_single_turn", "generation")
    watch.wrap(trainer, "_get_per_token_logps_and_entropies", "forward")
    watch.wrap(trainer, "compute_loss", "forward")
    prompts = trainer._tokenize_prompts(list(trainer.train_dataset["prompt"]))[0]
    side.write({"ready": True, "prompts": [list(ids) for ids in prompts], "version": trl.__version__})
    trainer.train()


def main() -> None:
    """See the module's docstring."""
    side = Side()
    settings = side.read()
    if settings is None:
        raise SystemExit("the first line of standard input must hold the settings")
    with tempfile.TemporaryDirectory() as output:
        run(side, settings, output)


if __name__ == "__main__":
    main()
