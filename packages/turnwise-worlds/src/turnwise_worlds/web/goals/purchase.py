"""WebShop's reward: how well what was bought fits what was asked (Yao et al. 2022, arXiv:2207.01206, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

from turnwise_worlds.web.site.search import title_words
from turnwise_worlds.web.site.state import Line, Site

ALIKE = 0.85
"""Two words count as one if they are more alike than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Something to buy."""

    product: int
    """A product that fits; others may."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    limit: int
    """The highest price, in whole dollars."""


def reward_purchase(site: Site, goal: Purchase, line: Line) -> float:
    """Return the reward of one bought line, from 0 to 1.

    r = r_type (attributes that fit + options that fit + 1 if the price fits) / (attributes + options + 1).

    Deviations from the published code: `r_type` compares the words of titles, not the nouns that a tagger finds there,
    and one equal category stands for two equal steps of a path of categories; words are compared by
    `SequenceMatcher.ratio` > .85, not by thefuzz's `token_set_ratio` > 85; the price is that of the line, all counts.
    """
    product = site.products[line.product]
    described = f"{product.title} {product.description}".lower()
    attributes = sum(_has(each, product.attributes) or each in described for each in goal.attributes)
    options = sum(_has(value, [chosen for _, chosen in line.options]) for _, value in goal.options)
    price = product.price * line.count <= goal.limit
    share = (attributes + options + price) / (len(goal.attributes) + len(goal.options) + 1)
    return compare_types(site, goal.product, line.product) * share


def compare_types(site: Site, wanted: int, bought: int) -> float:
    """Return r_type: 1 for the same category or more than a fifth of the wanted title's words, else .5; .1 if less than
    a tenth of the words are there, 0 without any."""
    if site.products[wanted].category == site.products[bought].category:
        return 1.0
    words = title_words(site.products[wanted])
    share = len(words & title_words(site.products[bought])) / len(words)
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    return 1.0 if share > 0.2 else 0.5


def _has(wanted: str, there: Iterable[str]) -> bool:
    return any(SequenceMatcher(None, wanted.lower(), each.lower()).ratio() > ALIKE for each in there)
