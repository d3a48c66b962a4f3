"""The keyword arguments of the family `web`."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.web.goals.tasks import Kind
from turnwise_worlds.web.site.state import Style
from turnwise_worlds.web.surfaces.surface import SurfaceName

ActionStyle = Literal["webarena", "webshop"]
Format = Literal["numbered", "aria", "short"]
Payment = Literal["webshop", "success"]
PageSwitch = Literal["own", "blank", "shuffled"]


class WebArguments(FamilyArguments):
    """Tasks on a generated web site."""

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind: "shop" buys by attributes, options and price; "wiki" finds a name over links; "open" stops at
    a page; "form" fills a form that refuses; "order" cancels an account's order; "cross" finds the price of what the
    wiki names."""
    surface: SurfaceName = "text"
    """How the site is operated: in this process, over HTTP on loopback, or in Chromium. Observations, state and reward
    are the same on all three."""
    site: Style = "full"
    """"full" has navigation, sentences and dollars; "terse" is the same site in few words, for small models."""
    actions: ActionStyle = "webarena"
    """"webarena" acts on numbered elements: click, type, select, scroll, back, goto, stop. "webshop" has search and
    click, which takes what is written on the element, besides back and stop."""
    format: Format = "numbered"
    """How pages are shown: numbered lines, the accessibility tree as Playwright writes it, or words in one line. Only
    numbered lines show what the actions of "webarena" count by."""
    pictures: bool = False
    """Whether Chromium's page is shown as a picture too, 224 x 224, which `click_at` clicks on."""
    remind: bool = False
    """Whether the question follows every page, as WebShop's pages show its instruction."""
    window: int = Field(60, ge=5, le=10_000)
    """Lines of a page that are visible at once; scrolling moves them by as many."""
    reward: Payment = "webshop"
    """What a purchase is worth: WebShop's reward, or with "success" 1 for the full one and else 0: what fits half is
    worth nothing."""
    naive_skill: Share = 0.35
    """Probability with which the naive policy decides rightly at each choice; else it chooses anything of the same
    sort."""
    page: PageSwitch = "own"
    """What pages show, or a control: "blank" shows empty pages, "shuffled" shows attributes, options and prices under
    other names than those that count."""
    lure: bool = False
    """Whether every product's page shows a link that promises to win and is worth nothing."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))

    @model_validator(mode="after")
    def _check_style(self) -> Self:
        if self.pictures and (self.surface != "chromium" or self.actions != "webarena"):
            raise ConfigError("pictures=True needs surface='chromium', which draws, and actions='webarena'; set both")
        if self.actions == "webshop" and set(self.kinds) - {"shop"}:
            raise ConfigError(
                f"actions='webshop' can only buy, and kinds has {', '.join(sorted(set(self.kinds) - {'shop'}))}; set "
                "kinds to { shop = 1.0 }, or actions to 'webarena'"
            )
        if self.actions == "webarena" and self.format != "numbered":
            raise ConfigError(
                f"format={self.format!r} shows no numbers, and actions='webarena' act on numbers; set format to "
                "'numbered', or actions to 'webshop'"
            )
        return self
