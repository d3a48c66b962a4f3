"""What goes wrong in a visit, told from the pages that its actions led to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.faults import GAVE_UP, Fault
from turnwise.core.types import Task, Trajectory
from turnwise_worlds.web.arguments import WebArguments
from turnwise_worlds.web.environment import open_visit
from turnwise_worlds.web.goals.purchase import Purchase, compare_types
from turnwise_worlds.web.page import Page
from turnwise_worlds.web.policies import Step, retrace
from turnwise_worlds.web.site.state import Line, Site

NEVER_SEARCHED = "never searched"
WRONG_SEARCH = "wrong search"
WRONG_THING = "wrong kind of thing"
WRONG_ATTRIBUTE = "wrong attribute"
TOO_DEAR = "too dear"
WRONG_OPTION = "wrong option"
NO_OPTION = "option not chosen"
NOT_USED = "opened and not bought"
PAGE_NOT_READ = "right page not read"
PAGE_NOT_USED = "read and not used"
WRONG_PAGE = "stopped at the wrong page"
NOT_DONE = "stopped before it was done"

NAMES: Mapping[str, str] = {
    NEVER_SEARCHED: "It bought or stopped without a search.",
    WRONG_SEARCH: "No search that it made lists a thing that fits.",
    WRONG_THING: "It bought a thing of another category.",
    WRONG_ATTRIBUTE: "It bought a thing that lacks an attribute that was asked for.",
    TOO_DEAR: "It bought a thing that costs more than was allowed.",
    WRONG_OPTION: "It bought a thing that fits, with another option than was asked for.",
    NO_OPTION: "It bought a thing that fits, without choosing an option that was asked for.",
    NOT_USED: "It had opened a thing that fits, and bought another or none.",
    PAGE_NOT_READ: "It answered otherwise, and had never been on a page that says the answer.",
    PAGE_NOT_USED: "It had been on a page that says the answer, and answered otherwise.",
    WRONG_PAGE: "It was to stop at a page, and stopped at another.",
    NOT_DONE: "It stopped while something that was asked for was not done.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shopping:
    """A visit of the shop, told from its pages."""

    site: Site
    goal: Purchase
    steps: Sequence[Step]

    def fits(self, product: int) -> bool:
        """Whether a product has the category, the attributes and a price that fit."""
        return self.misfit(product) is None

    def misfit(self, product: int) -> str | None:
        """What is wrong with a product; None if nothing is."""
        each, goal = self.site.products[product], self.goal
        if compare_types(self.site, goal.product, product) < 1.0:
            return WRONG_THING
        described = {*each.attributes, *f"{each.title} {each.description}".lower().split()}
        if not described.issuperset(goal.attributes):
            return WRONG_ATTRIBUTE
        return TOO_DEAR if each.price > goal.limit else None

    def listed(self) -> set[int]:
        """Products that search results showed."""
        pages = [step.page for step in self.steps if step.url.startswith("/search")]
        return {product for page in pages for product in _list_items(page)}

    def first_opened(self) -> int | None:
        """Turn in which a thing that fits was opened first; None if none was."""
        return next(
            (step.turn for step in self.steps if (item := _find_item(step.url)) is not None and self.fits(item)), None
        )


def find_web_fault(chosen: WebArguments, task: Task, trajectory: Trajectory) -> Fault | None:
    """Name what went wrong; None where a limit ended the visit and nothing more can be said."""
    visit = open_visit(chosen, task)
    steps = retrace(chosen, task, trajectory)
    last = len(trajectory.turns) - 1
    if visit.purchase is None:
        return None if trajectory.stop.is_truncated else _find_of_checks(task, visit.facts, trajectory, steps)
    shopping = _Shopping(site=visit.state.site, goal=visit.purchase, steps=steps)
    orders = steps[-1].state.orders[len(visit.state.orders) :] if steps else ()
    if orders:
        return _find_of_purchase(shopping, orders[0].lines[0], last)
    opened = shopping.first_opened()
    if trajectory.stop.is_truncated:
        return None
    if opened is not None:
        return Fault(name=NOT_USED, turn=last, detail=f"opened in turn {opened}, nothing was bought")
    return Fault(name=GAVE_UP, turn=last, detail="nothing was bought")


def _find_of_purchase(shopping: _Shopping, line: Line, last: int) -> Fault:
    product, goal = shopping.site.products[line.product], shopping.goal
    what = shopping.misfit(line.product)
    bought = f"bought {product.title} ({' '.join(product.attributes)}, {product.price})"
    wanted = f"asked for {' '.join(goal.attributes)}, at most {goal.limit}"
    if what is not None:
        into = next((step.turn for step in shopping.steps if _find_item(step.url) == line.product), last)
        opened = shopping.first_opened()
        if opened is not None:
            return Fault(name=NOT_USED, turn=into if into > opened else last, detail=f"{bought}; {wanted}")
        if not any(step.url.startswith("/search") for step in shopping.steps):
            return Fault(name=NEVER_SEARCHED, turn=into, detail=f"{bought}; {wanted}")
        if not any(map(shopping.fits, shopping.listed())):
            search = next(step.turn for step in shopping.steps if step.url.startswith("/search"))
            return Fault(name=WRONG_SEARCH, turn=search, detail=f"{bought}; {wanted}")
        return Fault(name=what, turn=into, detail=f"{bought}; {wanted}")
    options = dict(line.options)
    missed = next((name for name, _ in goal.options if name not in options), None)
    if missed is not None:
        return Fault(name=NO_OPTION, turn=last, detail=f"no {missed} was chosen")
    name, value = next((name, value) for name, value in goal.options if options[name] != value)
    chose = next((step.turn for step in shopping.steps if _is_ticked(step.page, name, options[name])), last)
    return Fault(name=WRONG_OPTION, turn=chose, detail=f"chose {options[name]}; asked for {value}")


def _find_of_checks(task: Task, facts: Sequence[str], trajectory: Trajectory, steps: Sequence[Step]) -> Fault:
    """Name what went wrong with a task that is judged by checks."""
    kind, last = task.payload["kind"], len(trajectory.turns) - 1
    if kind == "open":
        return Fault(
            name=WRONG_PAGE, turn=last, detail=f"stopped at {steps[-1].url if steps else '/'}; asked for {facts[3]}"
        )
    if kind in ("wiki", "cross"):
        reads = any(f" {facts[3]} " in f" {_words(step.page)} " for step in steps)
        return Fault(name=PAGE_NOT_USED if reads else PAGE_NOT_READ, turn=last, detail=f"needed {facts[3]!r}")
    return Fault(name=NOT_DONE, turn=last)


def _words(page: Page) -> str:
    text = " ".join(node.name for node in page.nodes)
    return " ".join("".join(each if each.isalnum() else " " for each in text).split())


def _find_item(url: str) -> int | None:
    """The product of an item's page; None for other pages."""
    head, _, tail = url.partition("/item/")
    number = tail.split("?")[0].split("/")[0]
    return int(number) if not head and number.isdigit() else None


def _list_items(page: Page) -> list[int]:
    return [item for node in page.nodes if (item := _find_item(node.target)) is not None]


def _is_ticked(page: Page, group: str, value: str) -> bool:
    return any(node.target == group and node.name == value and node.value for node in page.nodes)
