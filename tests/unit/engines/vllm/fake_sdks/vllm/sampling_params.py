"""Stands in for vLLM's module of that name."""

from enum import Enum


class RequestOutputKind(Enum):
    """How outputs are given."""

    DELTA = 1
