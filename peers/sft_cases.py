"""Token ids and loss masks that TRL's supervised trainer gives conversations. Runs in .venv-peers only.

    .venv-peers/bin/python -m peers.sft_cases            writes tests/agreement/sft_masks.json
    .venv-peers/bin/python -m peers.sft_cases --check    recomputes and compares with the committed file

The trainer prepares a data set on an object without a model: `assistant_only_loss` for messages,
with TRL's training template of a family where it has one, and `completion_only_loss` for prompts with completions.
Tokenizers are made from nothing (tests/chat_families.py)."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import trl  # noqa: E402
from chat_families import FAMILIES, SAMPLE, build_tokenizer  # noqa: E402
from datasets import Dataset, disable_progress_bars  # noqa: E402
from transformers import PreTrainedTokenizerBase  # noqa: E402
from trl.trainer.sft_trainer import SFTTrainer  # noqa: E402

from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer  # noqa: E402

FILE = ROOT / "tests" / "agreement" / "sft_masks.json"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
OWN_QWEN3 = "qwen3"
"""The tokenizer of Qwen3's tokens, whose template is TRL's own."""

MARKED = {
    "ChatML (Yi, Dolphin)": (
        r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
        r"{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
        r"{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "Mistral Nemo": (
        r"{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
        r"{% else %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
    ),
    "Zephyr (TinyLlama)": (
        r"{% for m in messages %}{{ '<|' + m.role + '|>\n' }}{% if m.role == 'assistant' %}"
        r"{% generation %}{{ m.content + eos_token }}{% endgeneration %}{{ '\n' }}"
        r"{% else %}{{ m.content + eos_token + '\n' }}{% endif %}{% endfor %}"
        r"{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
}
"""Marks of what is generated for templates that TRL has none for, in the shape of tests/chat_families.py."""
TRAINING = {
    OWN_QWEN3: "qwen3_training.jinja",
    "Llama 3": "llama3_training.jinja",
    "Gemma 2": "gemma_training.jinja",
}
"""TRL's own templates with marks."""

SYSTEM = {"role": "system", "content": "Be brief."}
TURNS = [
    {"role": "user", "content": "Who wrote Blue Lantern?"},
    {"role": "assistant", "content": "Mira Tolen wrote it.", "reasoning_content": "a book"},
    {"role": "user", "content": "naïve  “quotes”\n\n\tand 你好 🙂"},
    {"role": "assistant", "content": "So be it:\n\n1. yes", "reasoning_content": "odd text"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "é", "reasoning_content": "the end"},
]
CALL = {"type": "function", "id": "call_0", "function": {"name": "search", "arguments": {"query": "Blue Lantern"}}}
AGENT = [
    {"role": "user", "content": "Who wrote Blue Lantern?"},
    {"role": "assistant", "content": "", "reasoning_content": "look it up", "tool_calls": [CALL]},
    {"role": "tool", "content": "Mira Tolen", "tool_call_id": "call_0", "name": "search"},
    {"role": "assistant", "content": "Mira Tolen.", "reasoning_content": "there it is"},
]
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = {"type": "function", "function": {"name": "search", "description": "Look it up.", "parameters": SCHEMA}}


def list_rows(family: str) -> list[dict[str, Any]]:
    """The conversations a family is tried with: what its template can hold."""
    if family == OWN_QWEN3:  # thoughts of earlier turns stay in TRL's template and go in Qwen3's
        return [
            {"messages": [SYSTEM, *TURNS[:2]]},
            {"messages": [SYSTEM, *AGENT], "tools": [TOOL]},
            {"messages": AGENT, "tools": [TOOL]},
            {"prompt": [SYSTEM, TURNS[0]], "completion": [TURNS[1]]},
        ]
    turns = [{key: value for key, value in turn.items() if key != "reasoning_content"} for turn in TURNS]
    own = next(each for each in FAMILIES if each.name == family)
    opened = [[SYSTEM]] if own.system else []
    return [
        *({"messages": [*head, *turns[:count]]} for head in [[], *opened] for count in (2, 4, 6)),
        *({"prompt": [*head, *turns[: count - 1]], "completion": [turns[count - 1]]} for head in [[], *opened]
          for count in (2, 4)),
    ]  # fmt: skip


def make_tokenizer(family: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a family, with a template that marks what is generated."""
    if family == OWN_QWEN3:
        tokenizer = train_tokenizer(SAMPLE, vocab_size=400, special_tokens=QWEN3_SPECIAL_TOKENS)
    else:
        tokenizer = build_tokenizer(next(each for each in FAMILIES if each.name == family))
    name = TRAINING.get(family)
    tokenizer.chat_template = (TEMPLATES / name).read_text(encoding="utf-8") if name else MARKED[family]
    return tokenizer


def prepare(tokenizer: PreTrainedTokenizerBase, row: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Token ids and loss mask of a row, by TRL."""
    trainer = object.__new__(SFTTrainer)
    trainer._tokenizer, trainer.chat_template, trainer.completion_only_loss = tokenizer, None, "prompt" in row
    arguments = SimpleNamespace(
        dataset_num_proc=None,
        dataset_text_field="text",
        assistant_only_loss="messages" in row,
        max_length=None,
        shuffle_dataset=False,
    )
    spelled = {key: json.dumps(value) if key == "tools" else value for key, value in row.items()}
    prepared = trainer._prepare_dataset(Dataset.from_list([spelled]), tokenizer, arguments, False, None, "train")
    ids, labels = list(prepared[0]["input_ids"]), prepared[0]["labels"]
    return ids, [int(label != -100) for label in labels]


def compute_cases() -> list[dict[str, Any]]:
    """Every row of every family."""
    cases = []
    for family in (*TRAINING, *MARKED):
        tokenizer = make_tokenizer(family)
        for row in list_rows(family):
            ids, mask = prepare(tokenizer, row)
            cases.append({"family": family, "row": row, "ids": ids, "mask": mask})
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, or with --check compare."""
    parser = argparse.ArgumentParser(description="Loss masks of TRL's supervised trainer for the agreement test.")
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    check = parser.parse_args(arguments).check
    disable_progress_bars()
    found = {"trl": importlib.metadata.version("trl"), "cases": compute_cases()}
    if check:
        same = json.loads(FILE.read_text(encoding="utf-8")) == json.loads(json.dumps(found))
        sys.stdout.write(f"{len(found['cases'])} masks agree\n" if same else f"{FILE.name} differs\n")
        return not same
    text = ",\n".join(json.dumps(case, ensure_ascii=False) for case in found["cases"])
    FILE.write_text(f'{{"trl": {json.dumps(found["trl"])}, "cases": [\n{text}\n]}}\n', encoding="utf-8")
    sys.stdout.write(f"{len(found['cases'])} masks, {FILE.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
