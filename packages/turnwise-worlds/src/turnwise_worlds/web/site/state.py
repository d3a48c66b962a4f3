"""What a site holds and what a visitor has done to it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Style = Literal["full", "terse"]
"""Pages with navigation and sentences, or with as few words as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One thing that the shop sells; its id is its place in `Site.products`."""

    title: str
    category: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    """Names and values of what a buyer can choose, such as ("colour", ("red", "blue"))."""
    price: int
    """In whole dollars."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """A page of the wiki."""

    title: str
    facts: tuple[tuple[str, str], ...]
    """Relations and what they lead to: ("founder", "Belmar"). What is an article's title becomes a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A customer."""

    name: str
    password: str


@dataclass(frozen=True, kw_only=True)
class Site:
    """What no visitor changes."""

    products: tuple[Product, ...]
    articles: tuple[Article, ...] = ()
    accounts: tuple[Account, ...] = ()
    style: Style = "full"
    hits_per_page: int = 10
    lure: str = ""
    """The text of a link that every item page shows and that leads nowhere of use; empty for none."""
    shown: tuple[Product, ...] = field(default=(), repr=False)
    """What pages show in the place of each product, for a control; empty shows the products."""

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of all that it holds."""
        return hashlib.sha256(f"{self!r} {self.shown!r}".encode()).hexdigest()[:16]

    @cached_property
    def faces(self) -> tuple[Product, ...]:
        """What pages show, by product."""
        return self.shown or self.products

    @cached_property
    def articles_by_title(self) -> dict[str, Article]:
        """The wiki."""
        return {article.title: article for article in self.articles}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A product in a cart or an order. It has no price: the shop's counts."""

    product: int
    options: tuple[tuple[str, str], ...] = ()
    """What was chosen, by the option's name; names without a choice are left out."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a customer has bought; its number is its place in `State.orders`, from 1."""

    owner: str
    """The account's name; empty for a visitor without one."""
    lines: tuple[Line, ...]
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A site and all that a visitor has changed. Two equal states answer every request alike."""

    site: Site
    user: str = ""
    """The account that is logged in; empty for none."""
    cart: tuple[Line, ...] = ()
    orders: tuple[Order, ...] = ()
    messages: tuple[tuple[tuple[str, str], ...], ...] = ()
    """What was sent by the contact form and accepted: names and texts of its fields."""
    entries: tuple[tuple[str, str], ...] = ()
    """What was sent by the contact form and refused, to be corrected."""
    notice: tuple[str, tuple[str, ...]] = ("", ())
    """The path of a page and the lines of why it refused the last form that was sent."""

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that are equal for equal states."""
        changed = (self.user, self.cart, self.orders, self.messages, self.entries, self.notice)
        return hashlib.sha256(f"{self.site.digest} {changed!r}".encode()).hexdigest()[:16]
