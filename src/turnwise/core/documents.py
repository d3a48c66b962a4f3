"""Documents of continual pre-training: texts, conversations or token ids, every token of which trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document: exactly one of `text`, `token_ids` and `messages` is not empty."""

    id: str
    """Names it in the run's records; not necessarily unique."""
    text: str = ""
    """Plain text, in which a spelled-out control token is characters."""
    token_ids: tuple[int, ...] = ()
    """Tokens of the run's own tokenizer."""
    messages: tuple[Message, ...] = ()
    """A conversation, which the run's renderer writes as a rollout would; it may end with any role."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that `messages` are about."""

    def __post_init__(self) -> None:
        if sum(map(bool, (self.text, self.token_ids, self.messages))) != 1:
            raise ValueError(f"document {self.id!r} must have exactly one of text, token_ids and messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentContext:
    """What a builder of documents may use of a run."""

    family: EnvironmentFamily
    seed: int


DocumentBuilder = Callable[..., Iterable[Document]]
"""Called with a `DocumentContext` and the recipe's `cpt.args`. Equal arguments must give equal documents: a run that
goes on and an audit build them again."""
