"""What a scripted model writes becomes candidates, or nothing."""

import asyncio

import pytest

from turnwise.core.types import text_message
from turnwise.engines.scripted import ScriptedEngine
from turnwise.rendering.tags import TagRenderer
from turnwise.rendering.tokenizer import TAG_SPECIAL_TOKENS, train_tokenizer
from turnwise_swe.bugs.edits.source import Source, apply
from turnwise_swe.bugs.writers import (
    HINTS,
    ask_engine,
    mirror_prompt,
    modify_prompt,
    parse_block,
    parse_file,
    parse_function,
    rewrite_prompt,
)

TEXT = '''class C:
    @property
    def size(self):
        """How many."""
        return len(self.items)

    async def take(self, count, *, last=False):
        # a comment
        if last:
            return self.items[-count:]
        return self.items[:count]


def short(x): return x
'''
SOURCE = Source.parse("m.py", TEXT.encode())


def fenced(code: str) -> str:
    return f"Here it is:\n\n```python\n{code}```\nThe bug is in the slice.\n"


def test_prompts_show_what_they_should() -> None:
    prompt = modify_prompt(SOURCE, "C.take", seed=0)
    assert "```python\nasync def take(self, count, *, last=False):\n    # a comment\n    if last:\n" in prompt
    assert sum(hint in prompt for hint in HINTS) == 3
    assert prompt != modify_prompt(SOURCE, "C.take", seed=1)
    prompt = rewrite_prompt(SOURCE, "C.size")
    assert '        """How many."""\n        ...  # to be written\n\n    async def take' in prompt
    assert "len(self.items)" not in prompt
    prompt = mirror_prompt("-old\n+new", "m.py", SOURCE.content)
    assert "```diff\n-old\n+new\n```" in prompt
    assert TEXT in prompt


def test_a_reply_replaces_the_body_and_nothing_else() -> None:
    reply = fenced(
        "async def take(self, count, *, last=False):\n    if last:\n        return self.items[count:]\n    return 1\n"
    )
    candidate = parse_function(reply, SOURCE, "C.take", "lm_modify")
    assert candidate is not None
    # The comment stands before the first statement, outside the replaced block.
    assert apply(SOURCE.content, candidate.replacements).decode() == TEXT.replace(
        "if last:\n            return self.items[-count:]\n        return self.items[:count]",
        "if last:\n            return self.items[count:]\n        return 1",
    )
    assert (candidate.kind, candidate.qualified_name, candidate.screened) == ("lm_modify", "C.take", True)


def test_the_docstring_and_the_decorators_stay_the_original_ones() -> None:
    reply = 'def size(self):\n    """The bug is here."""\n    return 0\n'
    candidate = parse_function(reply, SOURCE, "C.size", "lm_rewrite")
    assert candidate is not None
    assert apply(SOURCE.content, candidate.replacements).decode() == TEXT.replace("len(self.items)", "0")


@pytest.mark.parametrize(
    "reply",
    [
        "I cannot do that.",
        fenced("def size(self):\n    return (\n"),
        fenced("def other(self):\n    return 0\n"),
        fenced("def size(self, more):\n    return 0\n"),
        fenced("async def size(self):\n    return 0\n"),
        fenced("def size(self):\n    return len(self.items)\n"),
        fenced("def size(self):\n    break\n"),
        fenced('def size(self):\n    """Only a text."""\n'),
        fenced("def size(self):\n    return 0\ndef size(self):\n    return 1\n"),
    ],
    ids=["prose", "cut", "other name", "signature", "async", "unchanged", "does not compile", "empty", "twice"],
)
def test_other_replies_hold_no_candidate(reply: str) -> None:
    assert parse_function(reply, SOURCE, "C.size", "lm_modify") is None


def test_functions_on_one_line_are_left_alone() -> None:
    assert parse_function("def short(x):\n    return 1\n", SOURCE, "short", "lm_modify") is None


def test_the_longest_block_counts_and_none_is_all_of_it() -> None:
    assert parse_block("```\na\n```\ntext\n  ```py\n  b = 1\n  c = 2\n  ```\n") == "b = 1\nc = 2\n"
    assert parse_block("a = 1") == "a = 1\n"


def test_a_file_that_undoes_a_change_names_the_functions_it_changes() -> None:
    result = parse_file(fenced(TEXT.replace("[-count:]", "[count:]")), SOURCE)
    assert result == (TEXT.replace("[-count:]", "[count:]").encode(), ("m.py::C.take",))
    assert parse_file(fenced(TEXT), SOURCE) is None
    assert parse_file(fenced("class C:\n    pass\n"), SOURCE) is None


def test_an_engine_is_asked_in_a_conversation_of_its_own() -> None:
    tokenizer = train_tokenizer([TEXT] * 5, vocab_size=400, special_tokens=TAG_SPECIAL_TOKENS)
    renderer = TagRenderer(tokenizer)
    reply = "def size(self):\n    return 0\n"
    engine = ScriptedEngine(renderer, [reply])
    ask = ask_engine(engine, renderer, max_tokens=200, seed=3)

    async def ask_thrice() -> list[str]:
        return [await ask(prompt) for prompt in ("first", "second", "first")]

    replies = asyncio.run(ask_thrice())
    assert [parse_block(text) for text in replies] == [reply] * 3
    sessions = [session for session, *_ in engine.requests]
    assert sessions[0] == sessions[2] != sessions[1]  # released in between: the script began anew each time
    prompt_ids, params = engine.requests[0][1:]
    assert prompt_ids.tolist() == renderer.open([text_message("user", "first")], []).tolist()
    assert params.max_tokens == 200
    assert params.seed == engine.requests[2][2].seed != engine.requests[1][2].seed
