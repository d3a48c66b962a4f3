"""A tokenizer's chat template as a function from messages to text that gives the same text on every day.

If a tokenizer has no template, conversations are plain text with `User:` and `Assistant:` before the turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from turnwise.core.errors import RenderError, boundary
from turnwise.rendering.images import PICTURE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] | trim + '\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'] | trim + '\n\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] | trim + '\n\n' }}"
    "{% else %}{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""The template for checkpoints without one."""

DATE = datetime(2026, 1, 1)
"""The date that templates are told: a conversation that is rendered again must give the same tokens."""

ChatMessage = dict[str, Any]
_PROBE = "Who wrote Blue Lantern?"


class ChatTemplate:
    """Renders messages to text by the tokenizer's own template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raises RenderError for several templates of which none is the default."""
        named = tokenizer.chat_template
        if isinstance(named, dict) and "default" not in named:
            raise RenderError(
                f"the tokenizer has chat templates named {', '.join(map(repr, sorted(named)))} but none named "
                "'default'; copy the one to use to chat_template.jinja in the tokenizer's folder, or name it 'default' "
                "under chat_template in its tokenizer_config.json"
            )
        self._tokenizer = tokenizer
        self._reads_text = True
        self._reads_parts = False
        """Whether the template writes contents that are a text, and lists of parts."""
        if tokenizer.chat_template:
            self._reads_text, self._reads_parts = self._writes(_PROBE), self._writes([{"type": "text", "text": _PROBE}])

    def _writes(self, content: str | list[dict[str, str]]) -> bool:
        try:
            text = self.render([{"role": "user", "content": content}])
        except RenderError:
            return False
        return _PROBE in text and "'type'" not in text

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        date: datetime = DATE,
    ) -> str:
        """Return the text of the messages. Raises RenderError with the template's own words when it refuses them."""
        specs = [dict(tool) for tool in tools] or None
        with boundary(RenderError, "the chat template refuses the conversation"):
            has_template = bool(self._tokenizer.chat_template)
            template = self._tokenizer.get_chat_template(None, specs) if has_template else PLAIN_TEMPLATE
            text = self._tokenizer.apply_chat_template(
                [self._write(message) for message in messages],
                tools=specs,
                chat_template=define_date(date) + template if "strftime_now" in template else template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        return str(text)

    def _write(self, message: ChatMessage) -> ChatMessage:
        """Return a message as the template reads it: as a list of parts if it shows a picture, which the template then
        writes itself, or if it reads nothing else."""
        content = message.get("content")
        if not isinstance(content, str) or not self._reads_parts or (self._reads_text and PICTURE not in content):
            return message
        parts: list[dict[str, str]] = []
        for index, text in enumerate(content.split(PICTURE)):
            parts += [{"type": "image"}] * bool(index)
            parts += [{"type": "text", "text": text}] * bool(text)
        return {**message, "content": parts}


def define_date(date: datetime) -> str:
    """Return a macro that, put before a template, makes it use `date` in place of the clock."""
    codes = "".join(f" | replace('%{code}', '{date.strftime('%' + code)}')" for code in "aAbBdHIjmMpSyY")
    return "{% macro strftime_now(format) %}{{ format" + codes + " }}{% endmacro %}\n"
