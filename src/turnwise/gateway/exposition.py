"""The counts of a gateway in the text format that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GAUGES = ("open_sessions", "open_calls", "waiting_replies")
MEANINGS = {
    "requests": "Answered requests by how they found their place: continued, branched or opened.",
    "reasons": "Answered requests that continued no reply, by reason.",
    "refused_rewrites": "Requests refused for rewriting their conversation, by reason.",
    "tokens": "Tokens of prompts, those of them that no earlier request had, and sampled tokens.",
    "notes": "Requests by what else is worth knowing.",
}
PLACES = {"continued": "requests", "branched": "requests", "opened": "requests"}
PLACES |= {"prompt_tokens": "tokens", "new_prompt_tokens": "tokens", "sampled_tokens": "tokens"}


def write_exposition(counts: Mapping[str, int], seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Return the counts and durations as text. Names are those of `/metrics` as JSON."""
    rows: dict[str, list[str]] = {}
    for name, value in counts.items():
        first, slash, reason = name.partition("/")
        if name in GAUGES:
            rows[f"turnwise_gateway_{name}"] = [f"turnwise_gateway_{name} {value}"]
            continue
        family = {"reason": "reasons", "refused": "refused_rewrites"}.get(first) if slash else None
        family, label = (family, reason) if family else (PLACES.get(name, "notes"), name.removesuffix("_tokens"))
        rows.setdefault(f"turnwise_gateway_{family}_total", []).append(
            f'turnwise_gateway_{family}_total{{kind="{label}"}} {value}'
        )
    lines = []
    for name, values in sorted(rows.items()):
        family = name.removeprefix("turnwise_gateway_").removesuffix("_total")
        is_counter = name.endswith("_total")
        lines.append(f"# HELP {name} {MEANINGS.get(family, 'At this moment.')}")
        lines += [f"# TYPE {name} {'counter' if is_counter else 'gauge'}", *values]
    for kind, spent in seconds.items():
        name = f"turnwise_gateway_{kind}_seconds"
        lines += [f"# HELP {name} Seconds from a request to its {kind.replace('_', ' ')}.", f"# TYPE {name} summary"]
        lines += [f"{name}_count {spent['count']:g}", f"{name}_sum {spent['sum']:.6f}"]
    return "\n".join([*lines, ""])


def wants_text(accept: Any) -> bool:
    """Whether an Accept header asks for the text format: JSON is the default."""
    return any(word in str(accept or "") for word in ("text/plain", "openmetrics"))
