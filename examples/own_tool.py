"""Your own tool: a typed function with a docstring. Its schema, checks, deadline and clipping come with it.

python examples/own_tool.py
"""

import asyncio
import json

from turnwise.core.errors import ToolFailure
from turnwise.core.types import ToolCall
from turnwise.tools.tool import run_tool, to_tool


def convert(amount: float, unit: str = "km") -> str:
    """Convert miles to another unit.

    Args:
        amount: Miles.
        unit: Either km or m.
    """
    factors = {"km": 1.609344, "m": 1609.344}
    if unit not in factors:
        # What the model did wrong goes back to the model; any other exception is a fault of the tool.
        raise ToolFailure(f"unknown unit {unit}; use km or m")
    return f"{amount * factors[unit]:.3f} {unit}"


async def main() -> None:
    tool = to_tool(convert)
    print(json.dumps(dict(tool.spec.parameters)))
    for arguments in ('{"amount": 26.2}', '{"amount": 1, "unit": "parsec"}', '{"amount": "many"}', "{not json"):
        call = ToolCall(id="call_0", name="convert", arguments=arguments)
        record = await run_tool(tool, call, timeout_s=5.0, max_chars=200)
        print(f"{arguments:35} -> {record.observation}")


if __name__ == "__main__":
    asyncio.run(main())
