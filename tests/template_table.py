"""Play a conversation with tools in every family's chat template and compare it with the template's own rendering.

    python tests/template_table.py

prints the table of docs/renderers.md. `test_template_families.py` asserts what it prints.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from chat_families import FAMILIES, Family, build_tokenizer
from transformers import PreTrainedTokenizerBase

from turnwise.core.errors import RenderError
from turnwise.core.types import Message, ToolCall, ToolSpec, text_message, to_ids
from turnwise.rendering.call_texts import CALL_TEXTS
from turnwise.rendering.chat_template import DATE
from turnwise.rendering.template import TemplateRenderer

TOOL = ToolSpec(
    name="search",
    description="Search the library.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
DESCRIBED = "search(query: string): Search the library."
"""The line of the system message, written by hand."""
SPEC = {
    "type": "function",
    "function": {"name": TOOL.name, "description": TOOL.description, "parameters": dict(TOOL.parameters)},
}
SYSTEM, QUESTION, NUM_TURNS = "Be brief.", "Who wrote Blue Lantern?", 5


@dataclass(frozen=True, kw_only=True)
class Played:
    """A conversation of five calls, their results and a last question for a reply."""

    ids: list[int]
    """Built turn by turn."""
    template_ids: list[int]
    """The chat template's own rendering of the whole conversation, from plain messages."""
    renderer: TemplateRenderer
    tokenizer: PreTrainedTokenizerBase


def write_call(number: int) -> ToolCall:
    """The call of a turn."""
    arguments = json.dumps({"query": f'Blue "Lantern" {number} é'}, ensure_ascii=False)
    return ToolCall(id=f"call_{number}", name="search", arguments=arguments)


def say_result(number: int) -> str:
    """What the tool answers in a turn."""
    return f"Mira Tolen, page {number}.\nSee also: 你好"


def play(family: Family, calls: str = "hermes", tokenizer: PreTrainedTokenizerBase | None = None) -> Played:
    """Open, reply and extend five times. Raises RenderError when the family's template is refused."""
    tokenizer = tokenizer or build_tokenizer(family)
    renderer = TemplateRenderer(tokenizer, calls=calls)  # type: ignore[arg-type]
    built = renderer.open([text_message("system", SYSTEM), text_message("user", QUESTION)], [TOOL])
    for number in range(NUM_TURNS):
        reply = Message(role="assistant", content=(), tool_calls=(write_call(number),))
        reply_ids = renderer.encode_reply(reply)
        result = text_message("tool", say_result(number), tool_call_id=f"call_{number}", name="search")
        appended = renderer.extend(built, reply_ids, [result], [TOOL])
        built = to_ids(np.concatenate([built, reply_ids, appended]))
    template_ids = render_plainly(family, tokenizer, calls)
    return Played(ids=built.tolist(), template_ids=template_ids, renderer=renderer, tokenizer=tokenizer)


def render_plainly(family: Family, tokenizer: PreTrainedTokenizerBase, calls: str) -> list[int]:
    """The chat template's ids of the conversation that `play` builds, from messages that a user of it would write."""
    form, native = CALL_TEXTS[calls], family.native and calls == "hermes"
    system = SYSTEM + ("" if native else "\n\n" + form.describe([DESCRIBED], "search", ["query"]))
    chat: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    if not family.system:
        chat = [{"role": "user", "content": f"{system}\n\n{QUESTION}"}]
    for number in range(NUM_TURNS):
        call, result = write_call(number), say_result(number)
        function = {"name": call.name, "arguments": json.loads(call.arguments)}
        structured = {"content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
        chat.append({"role": "assistant", **(structured if native else {"content": form.write(call)})})
        if family.results == "tool":
            chat.append({"role": "tool", "content": result, "name": "search", "tool_call_id": call.id})
        else:
            chat.append({"role": "user", "content": form.result[0] + result + form.result[1]})
    # The template of the day the renderer lives in.
    dated = re.sub(r"strftime_now\('(.*?)'\)", lambda match: f"'{DATE.strftime(match[1])}'", family.template)
    return list(
        tokenizer.apply_chat_template(
            chat,
            chat_template=dated,
            tools=[SPEC] if native else None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
    )


def compare(family: Family, played: Played) -> str:
    """How the turns relate to the template's own rendering, in words; "differs" where they should not."""
    if played.ids == played.template_ids:
        return "same tokens"
    text, template_text = map(played.tokenizer.decode, (played.ids, played.template_ids))
    if text == template_text:
        return "same text"
    if family.differs == "end" and text.replace(family.end or family.tokens[0], "") == template_text:
        return f"the same text except for `{family.end or family.tokens[0]}`, added to replies"
    if family.differs == "thought":
        # The last <think> is the generation prompt of both.
        *turns, last = text.split("<think>\n</think>\n\n")
        if "".join(turns) + last == template_text:
            return "the same text except for `<think></think>`, kept in replies"
    return "differs"


def write_table() -> str:
    """The tables of docs/renderers.md."""
    rows = [
        "| family | system text | a tool's result | a reply ends with | the whole conversation, by the template |",
        "|---|---|---|---|---|",
    ]
    refused = ["| template | refused with |", "|---|---|"]
    for family in FAMILIES:
        try:
            played = play(family)
        except RenderError as cause:
            refused.append(_write_row(family.name, str(cause).split("; use renderer.kind")[0]))
            continue
        result = "the template's own format" if family.native else f"{family.results} message"
        system = "system message" if family.system else "first user message"
        end = f"`{family.end or family.tokens[0]}`"
        rows.append(_write_row(family.name, system, result, end, compare(family, played)))
    return "\n".join([*rows, "", *refused])


def _write_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(write_table())
