"""What has been shown of a page so far: the overview, then a picture for every zoom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.core.pictures import Pixels
from turnwise.core.seeds import derive_seed
from turnwise_worlds.pages.arguments import PagesArguments
from turnwise_worlds.pages.page import Area, Page, draw, grey, make_page


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page and the areas of it that were shown. The controls of `PagesArguments` apply."""

    page: Page
    source: Page
    """The page that crops are cut from; another one in a control."""
    chosen: PagesArguments
    areas: tuple[Area, ...]
    """The whole page, then what each zoom showed."""

    @staticmethod
    def open(payload: Mapping[str, Any], chosen: PagesArguments) -> View:
        """Return the view of a task's page before any zoom."""
        kind, seed = payload["kind"], int(payload["seed"])
        page = make_page(kind, seed)
        source = make_page(kind, derive_seed(seed, "shuffled")) if chosen.crops == "shuffled" else page
        return View(page=page, source=source, chosen=chosen, areas=(Area(side=page.side),))

    @property
    def area(self) -> Area:
        """What the last picture shows."""
        return self.areas[-1]

    def draw(self) -> Pixels:
        """Draw the last picture."""
        is_first = len(self.areas) == 1
        if (self.chosen.overview if is_first else self.chosen.crops) == "grey":
            return grey()
        return draw(self.page if is_first else self.source, self.area)

    def zoom(self, row: int, column: int) -> View:
        """Return the view after a zoom into a part of the last picture, counted from 0; of the page, if the last
        picture shows a single cell. A page of one cell has no parts: the view stays."""
        base = self.area if self.area.side > 1 else self.areas[0]
        return replace(self, areas=(*self.areas, base.divide(row, column))) if base.side > 1 else self

    @property
    def target(self) -> tuple[tuple[int, int], ...]:
        """Parts of the last picture, or of the page, at which a zoom leads to a red cell that was not shown yet."""
        base = self.area if self.area.side > 1 else self.areas[0]
        cells = [cell for cell in self.page.marked if cell not in self.shown and base.contains(cell)]
        return tuple(base.find(cell) for cell in cells) if base.side > 1 else ()

    @property
    def shown(self) -> tuple[tuple[int, int], ...]:
        """Cells of which a crop was shown, in order."""
        return tuple((area.row, area.column) for area in self.areas[1:] if area.side == 1)

    @property
    def shown_digits(self) -> tuple[int, ...]:
        """The digits in these crops; none if they are grey."""
        return () if self.chosen.crops == "grey" else tuple(int(self.source.digits[cell]) for cell in self.shown)
