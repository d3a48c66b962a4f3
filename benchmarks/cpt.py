"""The seven arms of agentic continual pre-training, on the recipe pretraining/tiny:

    python benchmarks/cpt.py train                      # arms and seeds that are not there yet, then the table
    python benchmarks/cpt.py train --only fas fas_plain --seeds 0
    python benchmarks/cpt.py losses runs/cpt/*          # tokens, loss on documents, loss of the warm-up

    none             no continual pre-training
    passages         the same worlds' sentences and questions, without any action
    fas              first searches, and answers from passages
    fas_has          and episodes of the oracle, the naive and the random policy as choices with their outcome
    fas_has_weak     the same with the naive and the random policy alone: no second hop on purpose
    fas_plain        first-order actions, and the episodes of fas_has as they are
    fas_plain_weak   and those of fas_has_weak as they are

Every arm but the first trains at most the same number of tokens (cpt.steps times cpt.batch_tokens); `losses` prints how
many each one did train. The warm-up of `none` has the learning rate of recipes/search_r1/tiny.toml, as in the
prototype: half of it is for weights that have learned already."""

from __future__ import annotations

import sys
from pathlib import Path

from arms import Arm, run_arms

from turnwise.store.run_folder import RunFolder

RECIPE = "packages/turnwise-synthesis/src/turnwise_synthesis/recipes/pretraining/tiny.toml"
WEAK = 'cpt.args.policies=["naive","random"]'


def build_arm(name: str, *kinds: str, further: tuple[str, ...] = ()) -> Arm:
    """The arm with documents of these kinds."""
    listed = ",".join(f'"{kind}"' for kind in kinds)
    return Arm(name=name, recipes=(RECIPE,), overrides=(f"cpt.args.kinds=[{listed}]", *further))


ARMS = (
    Arm(
        name="none",
        recipes=(RECIPE,),
        overrides=("cpt.steps=0", "cpt.builder=", "cpt.args={}", "sft.lr=1e-2"),
    ),
    build_arm("passages", "passages"),
    build_arm("fas", "plan", "reason"),
    build_arm("fas_has", "plan", "reason", "has"),
    build_arm("fas_has_weak", "plan", "reason", "has", further=(WEAK,)),
    build_arm("fas_plain", "plan", "reason", "plain"),
    build_arm("fas_plain_weak", "plan", "reason", "plain", further=(WEAK,)),
)


def print_losses(runs: list[Path]) -> None:
    """Print a Markdown table of what each run trained on, and its losses at the start and the end of both phases."""
    print("| run | documents, tokens trained | loss on documents, first and last step | loss of the warm-up |")
    print("|---|---|---|---|")
    for run in runs:
        rows = RunFolder.open(run).read_metrics()
        cpt, sft = ([row for row in rows if row["phase"] == phase] for phase in ("cpt", "sft"))
        tokens = f"{sum(row['cpt/tokens'] for row in cpt):,.0f}"
        losses = [
            " → ".join(f"{row[name]:.3f}" for row in (own[0], own[-1])) if own else ""
            for own, name in ((cpt, "cpt/loss"), (sft, "sft/loss"))
        ]
        print(f"| {run.name} | {tokens} | {losses[0]} | {losses[1]} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["losses"]:
        print_losses([Path(name) for name in sys.argv[2:]])
    else:
        run_arms(ARMS, output=Path("runs/cpt"), description=__doc__)
