"""The pages of the wiki."""

from __future__ import annotations

from urllib.parse import quote

from turnwise_worlds.web.site.layout import lay_out
from turnwise_worlds.web.site.markup import Content, bullets, join, link, tag
from turnwise_worlds.web.site.state import Article, State


def wiki_page(state: State) -> str:
    """Write the list of all articles."""
    links = (_link(article.title) for article in state.site.articles)
    return lay_out(state, "Wiki", bullets(*links))


def article_page(state: State, article: Article) -> str:
    """Write an article."""
    terse = state.site.style == "terse"
    facts: list[Content] = []
    for relation, target in article.facts:
        there = _link(target) if target in state.site.articles_by_title else target
        before = f"{relation} " if terse else f"The {relation} of {article.title} is "
        facts.append(tag("p", join(before, there, None if terse else ".")))
    return lay_out(state, article.title, *facts)


def _link(title: str) -> Content:
    return link(title, f"/wiki/{quote(title, safe='')}")
