"""TRL's own GRPOTrainer plays and trains a family of ours, with a model whose replies are written in advance."""

import os
import re
from pathlib import Path
from typing import Any

import torch
from played_games import need
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from turnwise.rendering.tokenizer import train_tokenizer
from turnwise.testing.notes import NotesFamily
from turnwise_adapters.as_trl import to_trl, to_trl_rows

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")


def write_call(name: str, argument: str, value: str) -> str:
    """A reply that calls a tool, as Qwen3's template writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"{argument}": "{value}"}}}}\n</tool_call><|im_end|>'


class ScriptedModel(Qwen3ForCausalLM):  # type: ignore[misc]  # transformers has no types
    """A real model whose replies are written: search the note, then answer with the code in every second row."""

    tokenizer: PreTrainedTokenizerBase

    @torch.no_grad()
    def generate(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        """The prompts with a reply each, padded on the right."""
        replies = []
        for row, ids in enumerate(input_ids):
            text = self.tokenizer.decode(ids)
            calls = text.count("<tool_response>")
            if calls == 2:
                reply = "Done.<|im_end|>"
            elif calls == 1:
                code = re.findall(r"<tool_response>\s*code (\d)", text)[0] if row % 2 else "none"
                reply = write_call("answer", "text", f"<answer> {code} </answer>")
            else:
                reply = write_call("search", "query", re.findall(r"start (\w+)", text)[-1])
            replies.append(self.tokenizer(reply).input_ids)
        width = max(map(len, replies))
        padded = [reply + [self.tokenizer.pad_token_id] * (width - len(reply)) for reply in replies]
        return torch.cat([input_ids, torch.tensor(padded)], 1)


def test_grpo_trainer_plays_rewards_and_trains(tmp_path: Path) -> None:
    trl = need("trl", "trl")
    datasets = need("datasets", "trl")
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    tokenizer = make_tokenizer(template.read_text(encoding="utf-8"))
    model = ScriptedModel(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
        )
    )
    model.tokenizer = tokenizer
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(to_trl_rows(8)),
        environment_factory=to_trl(NotesFamily(linked=0.0)),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=512,
            max_steps=2,
            learning_rate=1e-2,
            report_to=[],
            use_cpu=True,
            logging_steps=1,
        ),
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["reward"] for entry in steps] == [0.5, 0.5], "two of four replies name the code"
    # Every row searches once and answers once.
    assert [entry["tools/call_frequency"] for entry in steps] == [2.0, 2.0]
    assert [entry["tools/failure_frequency"] for entry in steps] == [0.0, 0.0]
    assert any(not torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


def make_tokenizer(template: str) -> PreTrainedTokenizerBase:
    """Bytes, the control tokens of Qwen3, and TRL's copy of its template."""
    tokenizer = train_tokenizer([], vocab_size=300, special_tokens=TOKENS)
    tokenizer.chat_template, tokenizer.eos_token = template, "<|im_end|>"
    return tokenizer
