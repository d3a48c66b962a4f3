"""Bugs that a language model writes, as SWE-smith's LM Modify, LM Rewrite and PR Mirror: prompts, and parsers of
replies. The texts of the prompts are our own.

A model is any asynchronous function from messages to a reply. What it writes is data here: it is compiled, never run
outside the sandbox, and screened and confirmed like any other candidate."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Awaitable, Callable

from turnwise.core.protocols import Engine, Renderer
from turnwise.core.seeds import derive_seed, rng
from turnwise.core.types import SamplingParams, Session, text_message
from turnwise_swe.bugs.candidates import Candidate, build_candidate
from turnwise_swe.bugs.edits.source import Function, Source, body_of, compiles, statement_start

Ask = Callable[[str], Awaitable[str]]
"""Sends one prompt to a model and returns its reply."""

HINTS = (
    "a boundary that is off by one",
    "a condition that misses one case",
    "a wrong default when something is absent",
    "an early return that comes too early",
    "a value that is updated in the wrong order",
    "two similar variables that are mixed up",
    "an error that is swallowed or of the wrong type",
    "a copy that should not share state, or the reverse",
    "a result that is right for common input only",
)
_NUM_HINTS = 3


def modify_prompt(source: Source, name: str, *, seed: int) -> str:
    """Ask for a subtle bug in one function, with three of the hints."""
    hints = rng(seed, "hints", source.path, name).sample(HINTS, _NUM_HINTS)
    return (
        f"Below is the function `{name}` of `{source.path}`. Rewrite it so that it has one subtle bug which its tests "
        "would notice, and which a reader could overlook. Keep its name, parameters and docstring. Write no comment "
        f"about the bug. Ideas: {'; '.join(hints)}.\n\n```python\n{_text_of(source, name)}\n```\n\n"
        "Answer with the whole function in one block of Python."
    ).replace("\\\n", "\n")


def rewrite_prompt(source: Source, name: str) -> str:
    """Ask to rewrite one function in a file where its body is left out. A wrong version is a bug."""
    node = source.scopes[name]
    start, end = source.start(body_of(node)[0]) if body_of(node) else source.end(node), source.end(node)
    file = source.content[:start] + b"...  # to be written" + source.content[end:]
    return (
        f"In the file below, `{source.path}`, the body of `{name}` is missing. Write the function from what the rest "
        f"of the file says.\n\n```python\n{file.decode()}\n```\n\n"
        "Answer with the whole function in one block of Python."
    )


def mirror_prompt(diff: str, path: str, content: bytes) -> str:
    """Ask to undo, in the present file, what a past change did."""
    return (
        f"A change was made to a project some time ago:\n\n```diff\n{diff}\n```\n\nThis is `{path}` today:\n\n"
        f"```python\n{content.decode()}\n```\n\nWrite the file as it would be without that change, and leave "
        "everything else as it is. Answer with the whole file in one block of Python."
    )


def parse_block(reply: str) -> str | None:
    """The longest fenced block of a reply, or all of it if it has no fence; None if it is not Python."""
    blocks = re.findall(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", reply, re.MULTILINE | re.DOTALL)
    text = textwrap.dedent(max(blocks, key=len) if blocks else reply).strip("\n") + "\n"
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return text


def parse_function(reply: str, source: Source, name: str, kind: str) -> Candidate | None:
    """The candidate in a reply that contains the function; None if the function is missing, has another signature or
    other decorators, or did not change. The original docstring is kept."""
    text, node = parse_block(reply), source.scopes[name]
    if text is None or not isinstance(node, Function):
        return None
    own = name.rsplit(".", 1)[-1]
    written = [item for item in ast.walk(ast.parse(text)) if isinstance(item, Function) and item.name == own]
    if len(written) != 1 or ast.dump(written[0].args) != ast.dump(node.args) or type(written[0]) is not type(node):
        return None
    reply_source = Source.parse("reply.py", text.encode())
    old, new = body_of(node), body_of(written[0])
    if not old or not new or new[0].lineno == written[0].lineno or old[0].lineno == node.lineno:
        return None
    start = reply_source.line_starts[reply_source.line_of(statement_start(reply_source, new[0])) - 1]
    body = reply_source.content[start : reply_source.end(new[-1])].decode()
    indentation = " " * old[0].col_offset
    indented = textwrap.indent(textwrap.dedent(body), indentation).encode()[len(indentation) :]
    return build_candidate(source, node, name, kind, (source.replace_block(old, indented),))


def parse_file(reply: str, source: Source) -> tuple[bytes, tuple[str, ...]] | None:
    """The file in a reply, and the functions of the present file that it changes, as "path::qualified name"; None if it
    is not Python, changes no function, or lacks one."""
    text = parse_block(reply)
    if text is None or not compiles(text.encode(), source.path):
        return None
    other = Source.parse(source.path, text.encode())
    if not set(source.scopes) <= set(other.scopes):
        return None
    changed = [
        name
        for name, node in source.scopes.items()
        if isinstance(node, Function) and ast.dump(node) != ast.dump(other.scopes[name])
    ]
    return (text.encode(), tuple(f"{source.path}::{name}" for name in changed)) if changed else None


def ask_engine(engine: Engine, renderer: Renderer, *, max_tokens: int, seed: int) -> Ask:
    """A model behind an engine. Each prompt is a separate conversation; equal prompts get equal replies."""

    async def ask(prompt: str) -> str:
        prompt_ids = renderer.open([text_message("user", prompt)], [])
        session = Session("bugs", str(derive_seed(seed, prompt)))
        params = SamplingParams(
            max_tokens=max_tokens,
            stop=renderer.stop,
            stop_token_ids=renderer.stop_token_ids,
            seed=derive_seed(seed, "reply", prompt),
        )
        try:
            completion = await engine.generate(prompt_ids, params, session=session)
        finally:
            await engine.release(session)
        return renderer.parse(prompt_ids, completion.token_ids).text

    return ask


def _text_of(source: Source, name: str) -> str:
    node = source.scopes[name]
    return textwrap.dedent(source.content[source.line_starts[node.lineno - 1] : source.end(node)].decode())
