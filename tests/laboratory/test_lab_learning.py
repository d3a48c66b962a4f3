"""Training in the laboratory, its summary, and the benchmark's command line at a tiny scale."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from laboratory.arms import ARMS, NUM_GROUPS
from laboratory.experiment import QUICK, run_arm, summarise_learning
from laboratory.learning import NUM_HELD, Learning, choose_learning_rate, compute_cost, run_learning
from laboratory.worlds import build_key_door, build_late_decisive

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "credit.py"


def build_run(success: list[float], tokens_per_step: int = 100) -> Learning:
    points = tuple(index * tokens_per_step for index in range(len(success)))
    return Learning(num_tokens=points, success=tuple(success), num_tasks=2 * (len(success) - 1))


def test_the_target_must_be_held() -> None:
    assert build_run([0.1, 0.95, 0.5, 0.95, 0.95, 0.95, 0.95]).tokens_to_target is None
    # Held from point 3 to point 7: reached at point 3.
    assert build_run([0.1, 0.95, 0.5, 0.9, 0.95, 0.95, 0.95, 0.95]).tokens_to_target == 300
    assert compute_cost(build_run([0.1, 0.2]), 1000) == pytest.approx(1800.0)


def test_exact_values_teach_a_small_world_and_repeat_by_seed() -> None:
    world, arm = build_key_door(length=3, max_turns=8), ARMS["vine, exact values"]
    first = run_learning(world, arm, learning_rate=2.0, seed=0, token_budget=30_000)
    assert first.tokens_to_target is not None
    assert first.success[-1] >= 0.9
    assert first == run_learning(world, arm, learning_rate=2.0, seed=0, token_budget=30_000)
    assert first != run_learning(world, arm, learning_rate=2.0, seed=1, token_budget=30_000)
    assert first.num_tasks == NUM_GROUPS * (len(first.success) - 1)


def test_the_budget_ends_a_run() -> None:
    run = run_learning(build_key_door(), ARMS["pass_at_k"], learning_rate=1.0, seed=0, token_budget=2000)
    assert run.tokens_to_target is None
    assert 2000 <= run.num_tokens[-1] < 2000 + 16 * 16 * 3


def test_tuning_takes_the_cheaper_step() -> None:
    world = build_late_decisive(num_turns=2)
    # A step of 0.001 cannot get anywhere within the budget.
    assert choose_learning_rate(world, ARMS["grpo"], grid=(0.001, 2.0), seeds=(1000,), token_budget=10_000) == 2.0


def test_summary_of_runs() -> None:
    reached, other = build_run([0.1, 0.5, *[0.95] * NUM_HELD]), build_run([0.1, *[0.95] * NUM_HELD])
    summary = summarise_learning([reached, other], 1000)
    assert summary["tokens"] == [200, 100]
    assert summary["tokens_mean"][0] == pytest.approx(math.sqrt(200 * 100))
    assert summary["num_reached"] == 2
    # Of 1,000 tokens: after 1 token both are at 0.1, at the end both at 0.95.
    assert summary["curve"]["success"][0] == pytest.approx(0.1)
    assert summary["curve"]["success"][-1] == pytest.approx(0.95)
    partly = summarise_learning([reached, build_run([0.1, 0.3])], 1000)
    assert partly["tokens"] == [200, None]
    assert partly["tokens_mean"] is None
    assert partly["num_reached"] == 1


def test_one_arm_gives_plain_data() -> None:
    curve = run_arm(build_late_decisive(num_turns=3), ARMS["turn_gae"], replace(QUICK, budget_steps=10))
    assert json.loads(json.dumps(curve)) == curve
    assert curve["arm"] == "turn_gae"
    assert -1 <= curve["quality"]["0.5"]["correlation"][0] <= 1
    assert curve["quality"]["0.5"]["tokens_per_batch"] > 0
    assert len(curve["small_step"]["tokens"]) == QUICK.num_seeds


def test_the_benchmark_prints_json_and_writes_tables(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--quick", "--worlds", "late_decisive", "--methods", "grpo", "turn_gae"]
    done = subprocess.run(
        [*command, "--tables", str(tmp_path / "tables.md")], capture_output=True, text=True, check=True
    )
    results = json.loads(done.stdout)
    assert [arm["arm"] for arm in results["arms"]] == ["grpo", "turn_gae"]
    table = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert table.startswith("### late_decisive")
    assert {line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ")} == {
        "| method",
        "| grpo",
        "| turn_gae",
    }
    (tmp_path / "results.json").write_text(done.stdout, encoding="utf-8")
    pytest.importorskip("matplotlib")
    read_command = [sys.executable, str(BENCHMARK), "--read", str(tmp_path / "results.json"), "--plots", str(tmp_path)]
    subprocess.run(read_command, check=True, capture_output=True)
    assert (tmp_path / "credit_late_decisive.png").stat().st_size > 10_000
