"""The base of every config section, and options that name a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler


class Section(BaseModel):
    """A frozen table of options that refuses unknown keys, numbers in strings, and numbers that are not finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


@dataclass(frozen=True, slots=True)
class OneOf:
    """Says, in an `Annotated[str, ...]`, that an option is one of the names of a table."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The check of these names, with the words of a `Literal`."""
        return handler.generate_schema(Literal.__getitem__(self.names))
