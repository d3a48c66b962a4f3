"""Every threshold of the rules, and where it comes from: docs/diagnosis.md says the same in its table.

"Seed 0" are the planted faults and healthy runs of seed 0 in `benchmarks/diagnosis.py`, on which the thresholds were
chosen; seeds 1 and 2 were looked at afterwards.
"""

from __future__ import annotations

DEVIATIONS = 3.0
"""Standard errors from which a change counts, as in `pipeline/drift.py`: 0.3% of no change for one look."""
LEAST_CHANGE = 0.08
"""Least change of a success or a reward that counts; less is within what healthy runs wander (seed 0)."""

CHANCE = 0.05
"""p-value, Holm's over kinds of task, below which the same tasks fare otherwise not by chance."""

LEAST_MOVED = 0.01
"""Share of weights that a step changes, as in `training/resolution.py`: below it the steps train nothing."""
LEAST_SERVED = 0.05
"""Share of weights that change in the format of the model. A healthy bfloat16 run with float32 masters changes most of
them in a step of 1e-3 and a tenth in one of 1e-5."""
LEAST_PATH = 0.001
"""Sum of the relative updates of a run from which a policy can have moved. One step of AdamW at 1e-6 moves weights of
0.02 by at most 5e-5 of their size, and such runs are trained for hundreds of steps; seed 0's healthy runs sum to above
0.02."""
LARGE_UPDATE = 0.03
"""Relative length of one update from which the rate is too high. It is 0.001 to 0.005 in healthy runs (seed 0), and
0.001 is the rule of thumb for training from random weights."""
LARGE_STEP = 0.05
"""The same for all updates of one RL step together: 0.004 in healthy runs with four, 0.015 in one with six that learned
to 0.94, 0.11 and 0.13 in two with sixteen that collapsed (seed 0)."""
GAP_NATS = 0.05
"""Mean distance of sampler and trainer, same weights. In float32 it is below 1e-5; bfloat16 engines of large models are
reported at 0.005 to 0.03 (verl, prime-rl, TRL)."""
STALE_VERSIONS = 3.0
"""Mean age of trained tokens. Published asynchronous runs use at most 1 to 4 with a correction (docs/staleness.md)."""
CLIPPED = 0.25
"""Share of clipped tokens. PPO and GRPO are reported at 0.001 to 0.2, our healthy runs are below 0.05 (seed 0)."""
KL_NATS = 0.5
"""Divergence from the reference per token, mean of the last steps. Published runs with a penalty stay below 0.1; tiny
models that learn reach 0.1 to 0.3 (seed 0)."""
ENTROPY_LEFT = 0.2
"""Share of the entropy of the first steps below which it has collapsed."""
ENTROPY_FALLEN, MORE_COPIES = 0.85, 0.1
"""The same where the share of groups of copies rises by the second: a policy that begins near 0 cannot fall far
(planted penalty of seed 0: 0.062 to 0.048 nats, copies 0.30 to 0.45)."""
ENTROPY_GROWN = 3.0
"""Factor by which it has grown too much."""
GUESSING_NATS = 1.0
"""Entropy per token of a policy that does not know the format: instruction-tuned models sample with 0.2 to 0.7."""

NO_SIGNAL = 0.75
"""Share of groups without signal. DAPO reports that half is common; at three quarters a batch is a quarter of one."""
AGREED = 0.7
"""The same where tasks are neither too easy nor too hard. With a success of p, groups of G attempts of independent
chances agree in p^G + (1-p)^G of cases: 0.7 for p = 0.18 and G = 2, 0.2 for G = 8."""
ALL_SOLVED, NONE_SOLVED = 0.9, 0.05
"""Success from which tasks are too easy, and up to which they are too hard."""
MOSTLY_SOLVED = 0.6
"""Share of groups that all members solve, from which agreement comes from the tasks and not from small groups: two
members with a success of 0.75 agree on it in 0.56 of cases."""
SOLVED = 0.8
"""Success in training from which it need not rise to be more than held-out tasks show."""
ALIKE = 0.5
"""Share of groups, of those that are not solved by all, whose members are identical."""
LEAST_PAIRS = 30
"""Fewest pairs of identical attempts that show noise."""
PAID_APART = 0.1
"""Share of identical attempts with different rewards: 0 for a reward that is a function of the attempt."""
TRUTH_ORDER = 0.75
"""`rollout/truth_order` below which a reward leads away from the truth, as in `pipeline/truth_metrics.py`."""

MALFORMED = 0.3
"""Share of replies that are no action."""
CUT, NEARLY_ALL_CUT, WHOLE_SUCCEED = 0.3, 0.8, 0.1
"""Share of trajectories that a limit ends, from which it matters; below the second it is to blame only if the others
succeed at least so often."""
LENGTH_FACTOR = 1.4
"""Factor by which replies become longer or shorter; 1.1 to 1.3 in healthy runs of seed 0, with success."""
LENGTH_COSINE, LENGTH_LEAD = 0.6, 0.3
"""Cosine of credit and length from which credit follows the length, and by how much it exceeds that of credit and
truth: where success takes more replies, both are large."""
RAISED = 0.1
"""Share of a tool's calls in which its own code raised."""
FAILED = 0.9
"""Share of failed calls from which the tool is to blame and not its arguments."""
LEAST_CALLS = 20
LEAST_TURNS = 40
"""Fewest turns that are compared with credit."""
CREDIT_COSINE = 0.1
"""Cosine of credit and outcomes over turns; 1 for outcome credit in groups, 0 for credit that knows nothing."""
WIDE = 0.1
"""Half-width of an interval from which an evaluation is too small: one in ten tasks."""
