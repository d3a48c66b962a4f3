"""The recipe's switch for guided tool calls: what a reply may be, which renderers can, and who is refused."""

import pytest
from transformers import PreTrainedTokenizerBase

from turnwise.config.load import load_config
from turnwise.core.errors import ConfigError
from turnwise.core.types import ToolSpec
from turnwise.engines.guided import GrammarCompiler, Guide
from turnwise.rendering.call_grammar import build_call_grammar
from turnwise.rendering.chat import ChatRenderer
from turnwise.rendering.tokenizer import QWEN3_SPECIAL_TOKENS, train_tokenizer
from turnwise.runs.build import build_reply_grammar, check_grammar

SEARCH = ToolSpec(
    name="search",
    description="",
    parameters={
        "type": "object",
        "properties": {"k": {"type": "integer"}},
        "required": ["k"],
        "additionalProperties": False,
    },
)
CHAT = ["renderer.kind=chat", 'model.path="somewhere"', "train.lr=1e-6"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return train_tokenizer(
        ['{"name": "search", "arguments": {"k": 3}} and text\n'] * 20,
        vocab_size=330,
        special_tokens=QWEN3_SPECIAL_TOKENS,
    )


def follow(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[Guide | None, str]:
    """The guide after `text`, or None and what was read before a token that is not allowed."""
    pytest.importorskip("llguidance")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    guide = GrammarCompiler(tokenizer, vocab_size=len(tokenizer)).start(build_reply_grammar([SEARCH]), [end])
    ids = tokenizer.encode(text, add_special_tokens=False)
    for place, token in enumerate(ids):
        if not guide.allowed()[token]:
            return None, tokenizer.decode(ids[:place])
        guide.advance(token)
    assert guide.allowed()[end] == (not text.endswith("<tool_call>\n")), "a reply may end wherever no call is open"
    return guide, text


CALL = '<tool_call>\n{"name": "search", "arguments": {"k": 3}}\n</tool_call>'


@pytest.mark.parametrize(
    "text", ["", "the answer is 3 < 4", f"<think>\nis 3 < 4 ?\n</think>\n\nyes {CALL}", f"{CALL}\n{CALL}"]
)
def test_a_reply_may_think_and_say_anything_and_call_or_not(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    guide, read = follow(tokenizer, text)
    assert guide is not None, f"not allowed after {read!r}"


@pytest.mark.parametrize(
    ("text", "stops_in"),
    [
        (CALL.replace("search", "find"), '"name": "'),
        (CALL.replace('"k"', '"j"'), '"arguments": {"'),
        (CALL.replace("3", '"x"'), '"k": '),
        ("<tool_call>\nsearch\n</tool_call>", "<tool_call>"),
        (f"{CALL}<|endoftext|>", "</tool_call>"),
    ],
)
def test_what_begins_as_a_call_is_one(tokenizer: PreTrainedTokenizerBase, text: str, stops_in: str) -> None:
    guide, read = follow(tokenizer, text)
    assert guide is None
    assert read.rstrip().endswith(stops_in.rstrip())


def test_the_switch_is_known_to_recipes() -> None:
    config = load_config([], [*CHAT, "evaluate.grammar=calls", "rollout.grammar=calls"])
    assert (config.rollout.grammar, config.evaluate.grammar) == ("calls", "calls")
    free = load_config([], ['model.path="somewhere"', "train.lr=1e-6"])
    assert (free.rollout.grammar, free.evaluate.grammar) == ("none", "none")


@pytest.mark.parametrize("section", ["rollout", "evaluate"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["renderer.kind=tags"], "renderer.kind='tags': its calls contain free text"),
        (["renderer.kind=calls"], "renderer.kind='calls': there is no grammar"),
        (["renderer.name=auto"], "renderer.name='auto' may write calls in a different format than qwen3"),
        (["engine.kind=local"], "needs engine.kind='paged' or 'workers', not 'local'"),
    ],
)
def test_who_cannot_is_refused_with_the_reason(section: str, changes: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=f"{section}.grammar='calls'.*{words}"):
        load_config([], [*CHAT, *changes, f"{section}.grammar=calls"])


def test_an_environment_without_tools_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ConfigError, match="the environment has no tool"):
        check_grammar([], ChatRenderer(tokenizer), tokenizer, vocab_size=len(tokenizer))


def test_reasoning_needs_tags_that_are_tokens() -> None:
    with pytest.raises(ValueError, match="reasoning=True needs special_tokens=True"):
        build_call_grammar([SEARCH], special_tokens=False, reasoning=True)
    with pytest.raises(ValueError, match="min_calls=3, max_calls=2"):
        build_call_grammar([SEARCH], special_tokens=True, min_calls=3, max_calls=2)


def test_truncated_attempts_train_where_leaving_them_out_has_no_meaning() -> None:
    with pytest.raises(ConfigError, match=r"train_truncated=false .*train.algorithm='dpo' uses no credit method"):
        load_config([], ['model.path="somewhere"', "rollout.train_truncated=false", "train.algorithm=dpo"])
