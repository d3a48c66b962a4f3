"""Train all recipes with several voices, and print one table, that of docs/voices.md.

    python benchmarks/voices.py train [--output runs/voices] [--seeds 0 1 2] [--only memory_chunks relay]
    python benchmarks/voices.py table RUN [RUN ...]

See `arms.py` for how runs are made and what the table shows. An arm may start from a checkpoint of another one with the
same seed. Other figures are printed by the commands listed with the arms."""

from __future__ import annotations

from pathlib import Path

from arms import Arm, run_arms

JUDGE = "roles.judge=frozen:{judge}/checkpoints/step_000020"
WARM_PROPOSER = ("model.path={proposer_search}/checkpoints/step_000000", "model.config={}", "sft.steps=0")
NO_LEAD = "credit.options={scale=2.0,decay=0.997,lead=0}"
ARMS = (
    Arm(name="memory_chunks", recipes=("memory/chunks",)),
    Arm(
        name="memory_chunks_last",
        recipes=("memory/chunks",),
        overrides=("credit.method=turn_discount", "credit.options={gamma=0.0}"),
    ),
    Arm(name="memory_operations", recipes=("memory/operations",)),
    Arm(name="memory_rolling", recipes=("memory/rolling",)),
    Arm(name="memory_fold", recipes=("memory/fold",)),
    Arm(name="delegate_search", recipes=("delegate/search",)),
    Arm(
        name="delegate_one",
        recipes=("delegate/search",),
        overrides=("environment.args.agents=one", "train.steps=40", 'evaluate.controls={search_off={search="off"}}'),
    ),
    Arm(name="reflection_retry", recipes=("reflection/retry",)),
    Arm(name="reflection_score", recipes=("reflection/score",)),
    Arm(
        name="reflection_naive",
        recipes=("reflection/score", "reflection/naive"),
        overrides=("model.path={reflection_score}/checkpoints/step_000000",),
    ),
    Arm(
        name="reflection_stage1",
        recipes=("reflection/score", "reflection/stage1"),
        overrides=("model.path={reflection_score}/checkpoints/step_000000",),
    ),
    Arm(
        name="reflection_stage2",
        recipes=("reflection/score", "reflection/stage2"),
        overrides=("model.path={reflection_stage1}/checkpoints/step_000020",),
    ),
    Arm(name="planning_countdown", recipes=("planning/countdown",), then=("search",)),
    Arm(name="planning_plan", recipes=("planning/plan",)),
    Arm(name="kuhn", recipes=("games/kuhn",), then=("exploitability",)),
    Arm(
        name="kuhn_fixed",
        recipes=("games/kuhn",),
        overrides=("roles.player1=scripted:uniform",),
        then=("exploitability",),
    ),
    Arm(
        name="kuhn_past",
        recipes=("games/kuhn",),
        overrides=(
            "environment.args.opponent=true",
            "roles.opponent=past:uniform",
            "rollout.tasks_per_step=12",
            "rollout.group_size=16",
        ),
        then=("exploitability",),
    ),
    Arm(name="leduc", recipes=("games/leduc",), then=("exploitability",)),
    Arm(name="tictactoe", recipes=("games/tictactoe",), then=("exploitability",)),
    Arm(name="nim", recipes=("games/nim",), then=("exploitability",)),
    Arm(name="negotiation", recipes=("games/negotiation",)),
    Arm(name="negotiation_selfish", recipes=("games/negotiation",), overrides=("environment.args.prosocial=0",)),
    Arm(name="proposer_search", recipes=("proposer/search",)),
    Arm(
        name="proposer_uniform",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "roles.proposer=scripted:uniform", NO_LEAD),
    ),
    Arm(
        name="proposer_prior",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "roles.proposer=scripted:prior", NO_LEAD),
    ),
    Arm(
        name="proposer_learnability",
        recipes=("proposer/search",),
        overrides=(*WARM_PROPOSER, "environment.args.pay=learnability", "credit.method=grpo", "credit.options={}"),
    ),
    Arm(name="proposer_programs", recipes=("proposer/programs",)),
    Arm(name="relay", recipes=("teams/relay",)),
    Arm(name="judge", recipes=("teams/judge",)),
    Arm(name="debate", recipes=("teams/debate",), overrides=(JUDGE,)),
    Arm(name="consultancy", recipes=("teams/debate",), overrides=(JUDGE, "environment.args.protocol=consultancy")),
    Arm(name="debate_unverified", recipes=("teams/debate",), overrides=(JUDGE, "environment.args.verify=false")),
)


if __name__ == "__main__":
    run_arms(ARMS, output=Path("runs/voices"), description=__doc__)
