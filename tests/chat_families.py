"""Chat templates in the shapes of known families, and tokenizers with their control tokens.

Each template is short and written for these tests: it puts a family's control tokens where that family has them, and
has its quirks (no system role, alternation, trimming, a date, thoughts that are dropped).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from turnwise.rendering.tokenizer import train_tokenizer

SAMPLE = ["Who wrote Blue Lantern? Mira Tolen wrote it. search query name arguments User Assistant"] * 20


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family's template, and what the renderer is expected to find in it."""

    name: str
    template: str
    tokens: tuple[str, ...]
    """Control tokens; the first ends a sequence."""
    bos: str = ""
    """Empty if there is none."""
    system: bool = True
    """Whether the template has system messages that stay where they are."""
    results: Literal["tool", "user"] = "user"
    """The role of a tool's results."""
    native: bool = False
    """Whether the template explains tools and writes calls itself, in the hermes format."""
    end: str = ""
    """The token that ends a reply; empty: the first of `tokens`."""
    differs: Literal["", "end", "thought"] = ""
    """How the turns differ from the template's own rendering: an end that it leaves out, a thought that it drops."""
    refused: str = ""
    """Part of the refusal; empty if the template can be extended."""


def build_tokenizer(family: Family) -> PreTrainedTokenizerBase:
    """A small tokenizer with the family's control tokens and template."""
    tokens = tuple(dict.fromkeys((*family.tokens, *([family.bos] if family.bos else []))))
    tokenizer = train_tokenizer(SAMPLE, vocab_size=256 + len(tokens) + 60, special_tokens=tokens)
    if family.bos:
        tokenizer.bos_token = family.bos
    tokenizer.chat_template = family.template
    return tokenizer


def build_sentencepiece_tokenizer(family: Family) -> PreTrainedTokenizerBase:
    """A tokenizer that writes `▁` for a space and puts one before every text and after every control token, as Llama
    2's does; unlike there, a token may hold spaces inside."""
    tokens = tuple(dict.fromkeys((*family.tokens, *([family.bos] if family.bos else []))))
    bytes_as_tokens = [f"<0x{value:02X}>" for value in range(256)]
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300 + len(tokens),
        special_tokens=["<unk>", *tokens],
        initial_alphabet=[chr(code) for code in (10, *range(33, 127), 0x2581)],
        show_progress=False,
    )
    backend.train_from_iterator(SAMPLE, trainer)
    model = json.loads(backend.to_str())
    for token in bytes_as_tokens:
        model["model"]["vocab"].setdefault(token, len(model["model"]["vocab"]))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(model)), eos_token=tokens[0], unk_token="<unk>"
    )
    if family.bos:
        tokenizer.bos_token = family.bos
    tokenizer.chat_template = family.template
    return tokenizer


def loop(body: str, prompt: str, *, before: str = "") -> str:
    """A template that writes `before`, then `body` for every message `m`, then `prompt` where a reply is asked for."""
    return f"{before}{{% for m in messages %}}{body}{{% endfor %}}{{% if add_generation_prompt %}}{prompt}{{% endif %}}"


ALTERNATE = (
    "{% set ns = namespace(i=0) %}{% for m in messages %}{% if m.role != 'system' %}"
    "{% if (m.role == 'user') != (ns.i % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}"
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('system role not supported') }}{% endif %}"
CHATML = r"{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
CHATML_PROMPT = r"{{ '<|im_start|>assistant\n' }}"
CHATML_TOKENS = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
QWEN_TOKENS = (*CHATML_TOKENS, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LAST_USER = (
    "{% set last = namespace(user=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
)

QWEN_TOOLS = (
    r"{% if tools %}{{ '<|im_start|>system\n' }}"
    r"{{ messages[0].content if messages[0].role == 'system' else 'You help.' }}"
    r"{{ '\n\nTools:' }}{% for t in tools %}{{ '\n' + (t | tojson) }}{% endfor %}{{ '<|im_end|>\n' }}"
    r"{% elif messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}"
    r"{% else %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}"
)
HERMES_CALLS = (
    r"{% for c in m.tool_calls %}{{ '' if loop.first and not m.content else '\n' }}"
    r"""{{ '<tool_call>\n{"name": ' + (c.function.name | tojson) + ', "arguments": ' }}"""
    r"{{ (c.function.arguments | tojson) + '}\n</tool_call>' }}{% endfor %}"
)
QWEN_RESULTS = (
    r"{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    r"{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    r"{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
)
QWEN25 = (
    r"{% if m.role == 'user' %}" + CHATML + r"{% elif m.role == 'assistant' %}"
    r"{{ '<|im_start|>assistant\n' + m.content }}{% if m.tool_calls %}" + HERMES_CALLS + r"{% endif %}"
    r"{{ '<|im_end|>\n' }}{% elif m.role == 'tool' %}" + QWEN_RESULTS + r"{% endif %}"
)
QWEN3 = QWEN25.replace(
    r"{{ '<|im_start|>assistant\n' + m.content }}",
    r"{{ '<|im_start|>assistant\n' }}"
    r"{{ m.content.split('</think>')[-1].lstrip('\n') if loop.index0 < last.user else m.content }}",
)
SMOLLM3 = (
    r"{% set system = messages[0].content if messages[0].role == 'system' else 'You help.' %}"
    r"{{ '<|im_start|>system\n## Metadata\n\nToday Date: ' + strftime_now('%d %B %Y') + '\n\n## Instructions\n\n' }}"
    r"{{ system + '\n\n<|im_end|>\n' }}"
)
LLAMA2 = (
    r"{% if m.role == 'user' %}"
    r"{% if loop.index0 == offset and offset %}{% set text = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
    r"{% else %}{% set text = '' %}{% endif %}"
    r"{{ bos_token + '[INST] ' + text + m.content.strip() + ' [/INST]' }}"
    r"{% elif m.role == 'assistant' %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}"
)
LLAMA3 = r"{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}"
LLAMA3_PROMPT = r"{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
LLAMA3_TOKENS = ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>", "<|eom_id|>")
LLAMA32 = (
    r"{% if m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\n\n' + (m.content | tojson) }}"
    r"{{ '<|eot_id|>' }}{% elif m.role != 'system' %}" + LLAMA3 + r"{% endif %}"
)
LLAMA32_SYSTEM = (
    r"{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + strftime_now('%d %b %Y') }}"
    r"{{ '\n\n' + (messages[0].content | trim if messages[0].role == 'system' else '') + '<|eot_id|>' }}"
)
MISTRAL3 = (
    r"{% if m.role == 'user' %}{{ '[INST] ' }}"
    r"{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}"
    r"{{ m.content + '[/INST]' }}{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
    r"{% elif m.role == 'tool' %}{{ raise_exception('tool call ids must have nine characters') }}{% endif %}"
)
NEMO = MISTRAL3.replace("'[INST] '", "'[INST]'").replace("' ' + m.content", "m.content")
MISTRAL7 = (
    r"{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
    r"{% elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
    r"{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
    r"{% else %}{{ m.content + eos_token }}{% endif %}"
)
GEMMA = (
    r"{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    r"{{ m.content | trim + '<end_of_turn>\n' }}"
)
GEMMA3 = (
    r"{% if m.role != 'system' %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    r"{{ messages[0].content + '\n\n' if loop.index0 == 1 and messages[0].role == 'system' else '' }}"
    r"{{ m.content | trim + '<end_of_turn>\n' }}{% endif %}"
)
DEEPSEEK3 = (
    r"{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    r"{% else %}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}{% endif %}"
)
R1 = DEEPSEEK3.replace("' + m.content + '<｜end", "' + m.content.split('</think>')[-1] + '<｜end")
DEEPSEEK_TOKENS = ("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>")
COMMAND = (
    r"{{ '<|START_OF_TURN_TOKEN|>' }}{% if m.role == 'user' %}{{ '<|USER_TOKEN|>' + m.content.strip() }}"
    r"{% elif m.role == 'system' %}{{ '<|SYSTEM_TOKEN|>' + m.content }}"
    r"{% else %}{{ '<|CHATBOT_TOKEN|>' + m.content.strip() }}{% endif %}{{ '<|END_OF_TURN_TOKEN|>' }}"
)
GRANITE = (
    r"{{ '<|start_of_role|>' + ('tool_response' if m.role == 'tool' else m.role) + '<|end_of_role|>' }}"
    r"{{ m.content + '<|end_of_text|>\n' }}"
)
GRANITE_SYSTEM = (
    r"{% if messages[0].role != 'system' %}{{ '<|start_of_role|>system<|end_of_role|>Today is ' }}"
    r"{{ strftime_now('%B %d, %Y') + '.<|end_of_text|>\n' }}{% endif %}"
)
KIMI = (
    r"{{ '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' }}"
    r"{{ ('## Return of ' + (m.tool_call_id or '') + '\n' if m.role == 'tool' else '') + m.content + '<|im_end|>' }}"
).replace("'<|im_' + m.role", "'<|im_' + ('system' if m.role == 'tool' else m.role)")
GPT_OSS = (
    r"{{ '<|start|>' + m.role }}{{ '<|channel|>final' if m.role == 'assistant' else '' }}"
    r"{{ '<|message|>' + m.content + '<|end|>' }}"
)
PLAIN_TURNS = (
    r"{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}"
    r"{% else %}{{ 'Assistant: ' + m.content + END }}{% endif %}"
)
ALPACA = (
    r"{% if m.role == 'system' %}{{ m.content + '\n\n' }}"
    r"{% elif m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n\n' }}"
    r"{% else %}{{ '### Response:\n' + m.content + '\n\n' }}{% endif %}"
)
ZEPHYR = r"{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}"
MINIMAX = (
    r"{{ ']~b]' + {'system': 'system', 'user': 'user', 'assistant': 'ai', 'tool': 'tool'}[m.role] + '\n' }}"
    r"{{ ('<response>' + m.content + '</response>' if m.role == 'tool' else m.content) + '[e~[\n' }}"
)

FAMILIES: tuple[Family, ...] = (
    Family(name="ChatML (Yi, Dolphin)", tokens=CHATML_TOKENS, template=loop(CHATML, CHATML_PROMPT)),
    Family(
        name="SmolLM2",
        tokens=CHATML_TOKENS,
        template=loop(
            CHATML,
            CHATML_PROMPT,
            before=r"{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}",
        ),
    ),
    Family(
        name="InternLM2",
        tokens=CHATML_TOKENS,
        bos="<s>",
        template=loop(CHATML, CHATML_PROMPT, before="{{ bos_token }}"),
    ),
    Family(
        name="Qwen2.5",
        tokens=QWEN_TOKENS,
        template=loop(QWEN25, CHATML_PROMPT, before=QWEN_TOOLS),
        results="tool",
        native=True,
    ),
    Family(
        name="Hermes 3",
        tokens=("<|im_end|>", "<|im_start|>"),
        template=loop(QWEN25, CHATML_PROMPT, before=QWEN_TOOLS),
        results="tool",
        native=True,
    ),
    Family(
        name="Qwen3 (thinking)",
        tokens=(*QWEN_TOKENS, "<think>", "</think>"),
        template=loop(QWEN3, CHATML_PROMPT, before=QWEN_TOOLS + LAST_USER),
        results="tool",
        native=True,
    ),
    Family(
        name="SmolLM3",
        tokens=(*CHATML_TOKENS, "<think>", "</think>"),
        template=loop("{% if m.role != 'system' %}" + CHATML + "{% endif %}", CHATML_PROMPT, before=SMOLLM3),
    ),
    Family(
        name="Llama 2",
        tokens=("</s>",),
        bos="<s>",
        template=loop(LLAMA2, "", before=ALTERNATE + "{% set offset = 1 if messages[0].role == 'system' else 0 %}"),
    ),
    Family(
        name="Llama 3",
        tokens=LLAMA3_TOKENS,
        bos="<|begin_of_text|>",
        template=loop(LLAMA3, LLAMA3_PROMPT, before="{{ bos_token }}"),
    ),
    Family(
        name="Llama 3.2 (date)",
        tokens=LLAMA3_TOKENS,
        bos="<|begin_of_text|>",
        template=loop(LLAMA32, LLAMA3_PROMPT, before=LLAMA32_SYSTEM),
    ),
    Family(
        name="Mistral 7B v0.1",
        tokens=("</s>",),
        bos="<s>",
        system=False,
        template=loop(
            r"{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
            r"{% else %}{{ m.content + eos_token }}{% endif %}",
            "",
            before="{{ bos_token }}" + ALTERNATE + NO_SYSTEM,
        ),
    ),
    Family(
        name="Mistral 7B v0.3",
        tokens=("</s>", "[INST]", "[/INST]"),
        bos="<s>",
        system=False,
        template=loop(MISTRAL3, "", before="{{ bos_token }}"),
    ),
    Family(
        name="Mistral Nemo",
        tokens=("</s>", "[INST]", "[/INST]"),
        bos="<s>",
        system=False,
        template=loop(NEMO, "", before="{{ bos_token }}"),
    ),
    Family(
        name="Mistral Small 3",
        tokens=(
            "</s>",
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
        ),
        bos="<s>",
        results="tool",
        template=loop(MISTRAL7, "", before="{{ bos_token }}"),
    ),
    Family(
        name="Gemma 2",
        tokens=("<eos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        end="<end_of_turn>",
        system=False,
        template=loop(GEMMA, r"{{ '<start_of_turn>model\n' }}", before="{{ bos_token }}" + NO_SYSTEM + ALTERNATE),
    ),
    Family(
        name="Gemma 3",
        tokens=("<eos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>",
        end="<end_of_turn>",
        template=loop(GEMMA3, r"{{ '<start_of_turn>model\n' }}", before="{{ bos_token }}" + ALTERNATE),
    ),
    Family(
        name="Phi-3",
        tokens=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        end="<|end|>",
        template=loop(r"{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}", r"{{ '<|assistant|>\n' }}"),
    ),
    Family(
        name="Phi-4",
        tokens=("<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        end="<|im_end|>",
        template=loop(
            "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}",
            "{{ '<|im_start|>assistant<|im_sep|>' }}",
        ),
    ),
    Family(
        name="Zephyr (TinyLlama)",
        tokens=("</s>",),
        bos="<s>",
        template=loop(ZEPHYR, r"{{ '<|assistant|>\n' }}"),
    ),
    Family(
        name="StableLM 2",
        tokens=("<|endoftext|>",),
        template=loop(ZEPHYR, r"{{ '<|assistant|>\n' }}"),
    ),
    Family(
        name="OLMo 2",
        tokens=("<|endoftext|>",),
        bos="<|endoftext|>",
        template=loop(
            r"{{ '<|' + m.role + '|>\n' + m.content + (eos_token if m.role == 'assistant' else '') + '\n' }}",
            r"{{ '<|assistant|>\n' }}",
            before="{{ bos_token }}",
        ),
    ),
    Family(
        name="Vicuna",
        tokens=("</s>",),
        bos="<s>",
        template=loop(
            "{% if m.role == 'system' %}{{ m.content + ' ' }}"
            "{% elif m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}"
            "{% else %}{{ 'ASSISTANT: ' + m.content + eos_token }}{% endif %}",
            "{{ 'ASSISTANT:' }}",
        ),
    ),
    Family(
        name="Alpaca",
        tokens=("</s>",),
        template=loop(ALPACA, r"{{ '### Response:\n' }}"),
        differs="end",
    ),
    Family(
        name="Falcon",
        tokens=("<|endoftext|>",),
        template=loop(PLAIN_TURNS.replace("END", r"'\n\n'"), "{{ 'Assistant:' }}"),
        differs="end",
    ),
    Family(
        name="DeepSeek-V2",
        tokens=DEEPSEEK_TOKENS[:1],
        bos="<｜begin▁of▁sentence｜>",
        template=loop(PLAIN_TURNS.replace("END", "eos_token"), "{{ 'Assistant:' }}", before="{{ bos_token }}"),
    ),
    Family(
        name="DeepSeek-V3",
        tokens=DEEPSEEK_TOKENS,
        bos="<｜begin▁of▁sentence｜>",
        template=loop(DEEPSEEK3, "{{ '<｜Assistant｜>' }}", before="{{ bos_token }}"),
    ),
    Family(
        name="DeepSeek-R1 (thinking)",
        tokens=DEEPSEEK_TOKENS,
        bos="<｜begin▁of▁sentence｜>",
        template=loop(R1, r"{{ '<｜Assistant｜><think>\n' }}", before="{{ bos_token }}"),
        differs="thought",
    ),
    Family(
        name="Command R",
        tokens=(
            *("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"),
            *("<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
        ),
        bos="<BOS_TOKEN>",
        template=loop(COMMAND, "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}", before="{{ bos_token }}"),
    ),
    Family(
        name="Granite 3 (date)",
        tokens=("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"),
        results="tool",
        template=loop(GRANITE, "{{ '<|start_of_role|>assistant<|end_of_role|>' }}", before=GRANITE_SYSTEM),
    ),
    Family(
        name="GLM-4",
        tokens=("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        end="<|user|>",
        template=loop(
            r"{{ '<|' + ('observation' if m.role == 'tool' else m.role) + '|>\n' + m.content }}",
            r"{{ '<|assistant|>\n' }}",
            before="{{ '[gMASK]<sop>' }}",
        ),
    ),
    Family(
        name="MiniMax-M2",
        tokens=("[e~[", "]~!b[", "]~b]"),
        results="tool",
        template=loop(MINIMAX, r"{{ ']~b]ai\n' }}", before="{{ ']~!b[' }}"),
    ),
    Family(
        name="Kimi K2",
        tokens=("<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
        template=loop(KIMI, "{{ '<|im_assistant|>assistant<|im_middle|>' }}"),
    ),
    Family(
        name="gpt-oss (channels)",
        tokens=("<|return|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>"),
        template=loop(GPT_OSS, "{{ '<|start|>assistant' }}"),
        refused=r"'<|channel|>final<|message|>'",
    ),
    Family(
        name="(keeps the last two turns only)",
        tokens=CHATML_TOKENS,
        template=loop(CHATML, CHATML_PROMPT).replace("messages %}", "messages[-4:] %}", 1),
        refused="rewrites earlier turns",
    ),
    Family(
        name="(numbers its turns backwards)",
        tokens=CHATML_TOKENS,
        template=loop(CHATML.replace("m.role +", "m.role + (loop.revindex | string) +"), CHATML_PROMPT),
        refused="rewrites earlier turns",
    ),
    Family(
        name="(one question, one answer)",
        tokens=CHATML_TOKENS,
        template=loop(
            CHATML,
            CHATML_PROMPT,
            before="{% if messages | length > 2 %}{{ raise_exception('one turn only') }}{% endif %}",
        ),
        refused="one turn only",
    ),
)
"""The matrix; names in parentheses are templates of no family that cannot be extended."""
