"""A section of the report: which step was best."""

from turnwise.reporting.installed import Reported, Section


def draw(reported: Reported) -> str:
    """A sentence as HTML; "" before the first RL step."""
    steps = [row for row in reported.metrics if row["phase"] == "train" and "rollout/reward" in row]
    if not steps:
        return ""
    best = max(steps, key=lambda row: row["rollout/reward"])
    return f"<p>Step {best['step']} had the highest reward in training, {best['rollout/reward']:.3f}.</p>"


BEST_STEP = Section(title="The best step", draw=draw)
