"""Train the recipes of web pages, proofs, houses and bodies, audit them, and print one table, that of docs/worlds.md.

    python benchmarks/worlds.py train [--output runs/worlds] [--seeds 0 1 2] [--only web_shop proofs_tiny]
    python benchmarks/worlds.py table RUN [RUN ...]

See `arms.py` for how runs are made and what the table shows. `make system` and the extras web and bodies install what
the recipes start; `text_worlds_crafter` needs the package crafter."""

from __future__ import annotations

from pathlib import Path

from arms import Arm, run_arms

RECIPES = (
    *("web/shop", "web/miniwob", "proofs/tiny", "proofs/coq", "houses/house", "push/tiny", "push/picture"),
    "text_worlds/crafter",
)
ARMS = tuple(Arm(name=recipe.replace("/", "_"), recipes=(recipe,), then=("audit",)) for recipe in RECIPES)

if __name__ == "__main__":
    run_arms(ARMS, output=Path("runs/worlds"), description=__doc__)
