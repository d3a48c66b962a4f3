"""A conversation that opens with replies in it has the tokens that it would have if they had been sampled."""

import json

from turnwise.core.types import Message, ToolCall, reply_message, text_message, to_ids
from turnwise.rendering.calls import CALLS_FORMAT, CallsRenderer
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import train_tokenizer

TEXTS = ["add a = 17 b = 17", "What is 17 + 17 ? 34"] * 40
USER = text_message("user", "What is 17 + 17 ?")


def made(name: str, **arguments: object) -> Message:
    return reply_message("", tool_calls=(ToolCall(id="call_1", name=name, arguments=json.dumps(arguments)),))


def check(renderer: TagRenderer | CallsRenderer, reply: Message, *after: Message) -> None:
    prompt = renderer.open([USER], ())
    sampled = renderer.encode_reply(reply)
    context = renderer.extend(prompt, sampled, after, ())
    assert renderer.open([USER, reply, *after], ()).tolist() == [*prompt, *sampled, *context]


def test_calls_and_their_results_are_written_as_they_were_sampled() -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=400, special_tokens=CALLS_FORMAT.special_tokens)
    result = text_message("tool", "34", tool_call_id="call_1", name="add")
    check(CallsRenderer(tokenizer), made("add", a=17, b=17), result)
    check(CallsRenderer(tokenizer), reply_message("<answer> 34 </answer>"), text_message("user", "And 18 + 18 ?"))


def test_the_same_holds_for_tags(tag_tokenizer) -> None:
    result = text_message("tool", "Mira Tolen", tool_call_id="call_1", name="search")
    check(TagRenderer(tag_tokenizer), made("search", query="Blue Lantern"), result)


def test_an_opening_without_replies_is_joined_by_blank_lines(tag_tokenizer) -> None:
    renderer = TagRenderer(tag_tokenizer)
    both = renderer.open([text_message("system", "Blue"), text_message("user", "Lantern")], ())
    assert both.tolist() == to_ids(renderer.open([text_message("user", "Blue\n\nLantern")], ())).tolist()
