"""The check at start: this renderer, with this tokenizer and tool set, only ever appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import IntArray, Message, ToolCall, ToolSpec, text_message, to_ids

_PROBE = 'naïve  "quotes" \n\ttabs — 你好 🙂 </information> <|im_end|>'
"""Odd on purpose: whitespace, other scripts, and text that looks like control tokens."""


def check_prefix_stable(
    renderer: Renderer, decode: Callable[[Sequence[int]], str], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> None:
    """Prove on a probe conversation that replies read back as they were written and that observations only append.

    Two things are checked. A reply that is encoded and parsed is the same reply. And where the renderer can render a whole
    conversation at once (it has `render_all`), the ids of that rendering begin with the ids the rollout would have built turn
    by turn; a template that rewrites history is caught here instead of in training.

    Raises RenderError naming the first differing token and the remedy.
    """
    prompt = renderer.open(messages, tools)
    name = tools[0].name if tools else "search"
    call = text_message("assistant", "", tool_calls=(ToolCall(id="call_0", name=name, arguments='{"query": "probe"}'),))
    reply = renderer.encode_reply(call)
    parsed = renderer.parse(prompt, reply)
    if [c.name for c in parsed.tool_calls] != [name] or parsed.tool_errors:
        raise RenderError(
            f"a call of tool {name!r} does not survive encoding and parsing: got {parsed.tool_calls or parsed.tool_errors} from "
            f"{decode(reply.tolist())!r}; the renderer does not fit this tokenizer, choose another renderer.kind or renderer.name"
        )
    observation = text_message("tool", _PROBE, tool_call_id=parsed.tool_calls[0].id, name=name)
    appended = renderer.extend(prompt, reply, [observation], tools)
    incremental = to_ids(np.concatenate([prompt, reply, appended]))
    render_all = getattr(renderer, "render_all", None)
    if render_all is not None:
        whole = render_all([*messages, call, observation], tools)
        _compare(incremental, whole, decode)
        answered = to_ids(np.concatenate([incremental, renderer.encode_reply(text_message("assistant", "done"))]))
        _compare(answered, render_all([*messages, call, observation, text_message("assistant", "done"), text_message("user", "more")], tools), decode, prefix=True)


def _compare(built: IntArray, whole: IntArray, decode: Callable[[Sequence[int]], str], *, prefix: bool = False) -> None:
    """Raise RenderError at the first token where a whole rendering differs from what the turns added up to."""
    if prefix:
        whole = whole[: len(built)]
    for index in range(max(len(built), len(whole))):
        left = int(built[index]) if index < len(built) else None
        right = int(whole[index]) if index < len(whole) else None
        if left != right:
            shown = [None if token is None else decode([token]) for token in (left, right)]
            raise RenderError(
                f"the renderer is not prefix-stable: at token {index} the turns gave {left} ({shown[0]!r}) and a full rendering gives "
                f"{right} ({shown[1]!r}); use a renderer that keeps history as it was (renderer.name), or renderer.kind='tags'"
            )
