"""Exports a run's renderer as a chat template for servers, which then render a conversation as the policy saw it in
training.

To the tokenizer's template it adds the run's system message for requests without one, the renderer's explanation of the
run's tools and its texts for calls and results, and the renderer's date. The renderers of running text ("tags",
"calls") get a template of their own. Differences that text cannot express remain: control tokens that a message spells
out, observations that are cut, and tokens that join the end of a prompt to a reply.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from turnwise.core.errors import RenderError
from turnwise.core.protocols import Renderer
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.rendering.calls import CallsRenderer
from turnwise.rendering.chat_template import DATE, PLAIN_TEMPLATE, define_date
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.template import TemplateRenderer
from turnwise.rendering.tokenizer import find_opening_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def build_serving_template(
    tokenizer: PreTrainedTokenizerBase, renderer: Renderer, *, system: str | None, tools: Sequence[ToolSpec]
) -> str | dict[str, str] | None:
    """Build the chat template with which a server writes a conversation as `renderer` does; None if the tokenizer has
    none and the renderer does not use one.

    `system` is the system message for requests without one; None adds none. `tools` are those of the run: a template
    that cannot describe tools itself describes these, and refuses others. For a tokenizer with several named templates,
    each is completed.
    """
    first = "{{ bos_token }}" if find_opening_ids(tokenizer) else ""
    before = "" if system is None else _write_default(system)
    if isinstance(renderer, TagRenderer | CallsRenderer):
        return before + first + _write_running_text(renderer if isinstance(renderer, TagRenderer) else renderer.tags)
    own: str | Mapping[str, str] | None = tokenizer.chat_template
    if isinstance(renderer, TemplateRenderer):
        own = own or first + PLAIN_TEMPLATE
        if not renderer.has_native_tools:
            before += _write_messages(renderer, tools)
    if own is None:
        return None
    if isinstance(own, str):
        return before + _fix_date(own)
    return {name: before + _fix_date(text) for name, text in own.items()}


def _fix_date(template: str) -> str:
    return (define_date(DATE) if "strftime_now" in template else "") + template


def _quote(text: str) -> str:
    """Return a text as a Jinja literal."""
    # JSON's escapes are Python's, which Jinja reads. Braces and percent signs could end a tag of the template.
    return json.dumps(text).replace("{", "\\u007b").replace("}", "\\u007d").replace("%", "\\u0025")


def _write_default(system: str) -> str:
    """Put the run's system message before messages that have none."""
    message = f"{{'role': 'system', 'content': {_quote(system)}}}"
    return (
        "{%- if messages and messages[0].role not in ('system', 'developer') -%}"
        f"{{%- set messages = [{message}] + messages -%}}{{%- endif -%}}"
    )


_MESSAGES = (
    "{%- set tw = namespace(chat=[], system='', between='\\n\\n', reply=[], names=[]) -%}"
    "{%- for m in messages if m.role in ('system', 'developer') -%}"
    "{%- set tw.system = tw.system ~ ('\\n\\n' if tw.system else '') ~ m.content -%}{%- endfor -%}"
    "{%- for t in tools or [] -%}{%- set tw.names = tw.names + [(t.function or t).name] -%}{%- endfor -%}"
    "{%- if tw.names and tw.names != @NAMES@ -%}{{- raise_exception(@REFUSAL@) -}}{%- endif -%}"
    "{%- if tw.names -%}"
    "{%- set tw.system = tw.system ~ ('\\n\\n' if tw.system else '') ~ @EXPLANATION@ -%}{%- endif -%}"
    "{%- set tools = none -%}"
    "{%- if tw.system -%}{%- set tw.chat = [{'role': @SYSTEM@, 'content': tw.system}] -%}{%- endif -%}"
    "{%- for m in messages if m.role not in ('system', 'developer') -%}"
    "{%- if m.role == 'assistant' -%}"
    "{%- set tw.reply = [m.content | trim] if (m.content or '') | trim else [] -%}"
    "{%- for c in m.tool_calls or [] -%}{%- set f = c.function or c -%}"
    "{%- set arguments = f.arguments if f.arguments is string else f.arguments | tojson -%}@CALL@{%- endfor -%}"
    "{%- set thought = m.reasoning_content | trim if m.reasoning_content else '' -%}"
    "{%- set thought = '<think>\\n' ~ thought ~ '\\n</think>\\n\\n' if thought else '' -%}"
    "{%- set tw.chat = tw.chat + [{'role': 'assistant', 'content': thought ~ (tw.reply | join('\\n'))}] -%}"
    "{%- set tw.between = '\\n' -%}"
    "{%- elif m.role == 'tool' and @TOOL@ -%}{%- set tw.chat = tw.chat + [m] -%}"
    "{%- else -%}{%- set said = @BEFORE@ ~ m.content ~ @AFTER@ if m.role == 'tool' else m.content -%}"
    "{%- if tw.chat and tw.chat[-1].role == 'user' -%}"
    "{%- set tw.chat = tw.chat[:-1] + [{'role': 'user', 'content': tw.chat[-1].content ~ tw.between ~ said}] -%}"
    "{%- else -%}{%- set tw.chat = tw.chat + [{'role': 'user', 'content': said}] -%}{%- endif -%}"
    "{%- endif -%}{%- endfor -%}{%- set messages = tw.chat -%}"
)
"""The messages that `TemplateRenderer` passes to the model's own template: the system texts and the explanation in one
message, calls and results as text, results of several calls in one message."""


def _write_messages(renderer: TemplateRenderer, tools: Sequence[ToolSpec]) -> str:
    names = ", ".join(tool.name for tool in tools) or "none"
    refusal = f"the policy was trained with these tools, in this order: {names}; describe others in a system message"
    before, after = renderer.result_marks
    values = {
        "NAMES": "[" + ", ".join(_quote(tool.name) for tool in tools) + "]",
        "REFUSAL": _quote(refusal),
        "EXPLANATION": _quote(renderer.explain(tools)),
        "SYSTEM": _quote("system" if renderer.has_system else "user"),
        "CALL": _write_call(renderer),
        "TOOL": "true" if renderer.has_tool_role else "false",
        "BEFORE": _quote(before),
        "AFTER": _quote(after),
    }
    text = _MESSAGES
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _write_call(renderer: TemplateRenderer) -> str:
    """Return template code for a call in the format: the text around a name and an object of arguments; a refusal if
    the format takes the object apart."""
    name, arguments = "zq_name", '{"zq_key": "zq_value"}'
    try:
        written = renderer.write_call_text(ToolCall(id="call_0", name=name, arguments=arguments))
    except RenderError:
        written = ""
    if written.count(name) != 1 or written.count(arguments) != 1 or written.index(name) > written.index(arguments):
        return "{{- raise_exception('write the calls of a reply as text in its content, as the policy wrote them') -}}"
    head, rest = written.split(name)
    middle, tail = rest.split(arguments)
    return (
        f"{{%- set tw.reply = tw.reply + [{_quote(head)} ~ f.name ~ {_quote(middle)} ~ arguments ~ {_quote(tail)}] -%}}"
    )


def _write_running_text(renderer: TagRenderer) -> str:
    """Return template code for running text: the texts of the opening separated by blank lines; a reply's text as it
    was sampled; results in their tags.

    Calls are part of a reply's text: a server must not leave out special tokens, since tags are special tokens.
    """
    form = renderer.format
    opening, closing = f"<{form.observation}>", f"</{form.observation}>"
    if renderer.has_tag_tokens:
        said, around = "m.content | trim", ("' ' ~ ", "")
        result = f"{_quote(opening)} ~ (' ' if said else '') ~ said ~ {_quote(closing)}"
    else:
        said = "m.content | trim" + "".join(f" | replace({_quote(tag)}, {_quote(tag[1:-1])})" for tag in form.tags)
        around = ("'\\n' ~ ", " ~ '\\n'")
        gaps = form.gaps
        result = f"{_quote(gaps[0] + opening + gaps[1])} ~ said ~ {_quote(gaps[2] + closing + gaps[3])}"
    ended = " or ".join(f"reply.endswith({_quote(end)})" for end in form.ends)
    return (
        "{%- set tw = namespace(replied=false) -%}{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
        "{%- set tw.replied = true -%}{%- if m.tool_calls -%}"
        "{{- raise_exception('write the calls of a reply as text in its content, as the policy wrote them') -}}"
        "{%- endif -%}{%- set reply = m.content or '' -%}{{- reply -}}"
        f"{{%- if not ({ended}) -%}}{{{{- eos_token -}}}}{{%- endif -%}}"
        f"{{%- elif m.role == 'tool' -%}}{{%- set said = {said} -%}}{{{{- {result} -}}}}"
        f"{{%- elif tw.replied -%}}{{{{- {around[0]}(m.content | trim){around[1]} -}}}}"
        "{%- else -%}{{- ('' if loop.first else '\\n\\n') ~ m.content -}}{%- endif -%}{%- endfor -%}"
    )
