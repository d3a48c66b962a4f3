"""Determines which tokens a grammar allows next (optional extra `guided`: llguidance).

A `Grammar` becomes a `Guide`: one automaton per request, advanced token by token. The engine gives tokens that are not
allowed probability 0 and records log-probabilities of the others, renormalised; it also records those under the whole
distribution, which a trainer without the grammar computes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from turnwise.core.errors import EngineError, GrammarError, boundary
from turnwise.core.types import BoolArray, Grammar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NO_TOKEN = "NoExtensionBias"
"""llguidance's name for a grammar that allows neither a next token nor the end."""


class Guide:
    """The position of one completion in its grammar."""

    def __init__(self, matcher: Any, end_token_id: int, stop_token_ids: Sequence[int], vocab_size: int) -> None:
        self._matcher = matcher
        self._end = end_token_id
        self._stops = list(stop_token_ids)
        self._vocab_size = vocab_size

    def allowed(self) -> BoolArray:
        """`[V]` mask of tokens that may come next. Where the text may end, they include the request's stop tokens
        (without any, the tokenizer's end token).

        All False if the grammar allows no token. Raises GrammarError if the grammar turns out too large to follow.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.zeros(self._vocab_size, dtype=np.bool_)
        if self._matcher.is_error():
            reason = _first_line(self._matcher.get_error())
            if reason == NO_TOKEN:
                return mask
            raise GrammarError(f"cannot compile the grammar: {reason}")
        allowed = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
        mask[: len(allowed)] = allowed
        mask[self._end] = False
        if self._matcher.is_accepting():
            mask[self._stops or [self._end]] = True
        return mask

    def advance(self, token: int) -> bool:
        """Advance by the sampled token. Returns True if it is the tokenizer's end token, which completes the text."""
        if not self._matcher.consume_token(token):
            raise EngineError(f"the grammar does not allow token {token}: {_first_line(self._matcher.get_error())}")
        return token == self._end


class GrammarCompiler:
    """Compiles grammars for one tokenizer and keeps them, so the members of a group share the work."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, vocab_size: int) -> None:
        """`vocab_size` is the model's, which may be larger than the tokenizer's: tokens beyond that are never allowed.

        The tokenizer is read when the first grammar is compiled.
        """
        self._source = tokenizer
        self._tokenizer: Any = None
        self._vocab_size = vocab_size
        self._compiled: dict[Grammar, Any] = {}

    def start(self, grammar: Grammar, stop_token_ids: Sequence[int]) -> Guide:
        """Return a guide at the beginning of a completion.

        Raises GrammarError when the grammar is wrong or no text satisfies it, EngineError when llguidance is missing or
        cannot read the tokenizer."""
        if grammar not in self._compiled:
            self._compiled[grammar] = self._compile(grammar)
        return Guide(self._compiled[grammar].deep_copy(), self._tokenizer.eos_token, stop_token_ids, self._vocab_size)

    def _compile(self, grammar: Grammar) -> Any:
        with boundary(EngineError, "guided sampling needs the extra `guided`: pip install 'turnwise[guided]'"):
            from llguidance import LLMatcher
            from llguidance.hf import from_tokenizer
        if self._tokenizer is None:
            with boundary(
                EngineError, "guided sampling needs a tokenizer of the `tokenizers` library with an end token"
            ):
                self._tokenizer = from_tokenizer(self._source)
        readers: dict[str, Any] = {
            "json_schema": lambda text: LLMatcher.grammar_from_json_schema(json.loads(text)),
            "regex": LLMatcher.grammar_from_regex,
            "lark": LLMatcher.grammar_from_lark,
        }
        with boundary(GrammarError, f"cannot read the {grammar.kind} {grammar.text[:100]!r}"):
            matcher = LLMatcher(self._tokenizer, readers[grammar.kind](grammar.text), log_level=0)
        if matcher.is_error():
            raise GrammarError(
                f"the {grammar.kind} {grammar.text[:100]!r} was rejected: {_first_line(matcher.get_error())}"
            )
        return matcher


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0]
