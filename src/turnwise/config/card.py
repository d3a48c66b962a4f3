"""What the card of a recipe is about."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section


class CardSection(Section):
    """What `turnwise card` says a number of this recipe stands for."""

    ability: str = ""
    """What success on the held-out tasks shows, in a few words: "finding facts by searching twice"."""
    number: str = Field("success", min_length=1)
    """The one number that is reported: "success", "reward", or the name of a part of the reward."""
    over: list[str] = Field(default_factory=list)
    """Recipes that this one is laid over, in order, when it is named alone: those of its card."""
