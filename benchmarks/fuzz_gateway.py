"""Send fuzzed requests to a gateway, hang up on it, and play odd programs: `python benchmarks/fuzz_gateway.py`.

Requests of every protocol are damaged and sent without a network, 100 to a session, whose captured tokens are then
compared with those that its engine sampled. Hang-ups leave at any event of a stream, within the request's body, while a
reply is sampled or before an answer; then the same bytes are sent again. Sessions (`--sessions`) are those of programs
that branch, retry, hang up, spell calls anew and drop reasoning; each is converted to a trajectory and to samples,
which have the token ids and log-probabilities that the engine sampled. Prints a JSON summary. Ends with the exception
at the first answer that is neither whole nor a refusal of its protocol below 500, or at a token that was lost or
changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "gateway"))

from fuzzed_requests import OPENINGS, Fuzzer, Recorder, check_captured, send
from fuzzed_sessions import play_sessions
from gateway_world import serve

from turnwise.gateway.http import Application
from turnwise.gateway.sampling import Limits

PER_SESSION = 100


async def fuzz(num_requests: int, random: Random) -> dict[str, Any]:
    """Send fuzzed requests; returns counts of answers, and the slowest one."""
    served = serve(wrap=Recorder, limits=Limits(max_context=20_000, max_reply_tokens=100))
    engine: Any = served.policy.engine
    fuzzer, statuses, slowest_ms, num_tokens = Fuzzer(served, random), Counter[str](), 0.0, 0
    for begun in range(0, num_requests, PER_SESSION):
        session = await fuzzer.open()
        for _ in range(min(PER_SESSION, num_requests - begun)):
            started = time.process_time()
            answer = await fuzzer.send()
            slowest_ms = max(slowest_ms, 1000 * (time.process_time() - started))
            statuses[str(answer.status)] += 1
        num_tokens += check_captured(engine, session)
        await served.gateway.end(session.name)
    return {"statuses": dict(sorted(statuses.items())), "slowest_cpu_ms": round(slowest_ms), "captured": num_tokens}


async def hang_up(num_times: int, random: Random) -> dict[str, Any]:
    """Hang up at random events; returns how often at which, and the tokens captured."""
    served = serve(wrap=Recorder)
    engine: Any = served.policy.engine
    application, places, num_tokens = Application(served.gateway), Counter[str](), 0
    for _ in range(num_times):
        access = served.gateway.open()
        session = served.gateway.sessions[access.name]
        path = random.choice(sorted(OPENINGS))
        body = json.dumps({**OPENINGS[path], "stream": random.random() < 0.8}).encode()
        headers = {"authorization": f"Bearer {access.key}"}
        leaves_after = random.choice((-1, 0, *range(1, 16)))
        answer = await send(application, f"/v1/{path}", body, headers, leaves_after=leaves_after)
        await asyncio.gather(*session.tasks)
        last = answer.parts[-1].decode() if answer.parts else ""
        places[f"{path} {name_place(last, leaves_after)}"] += 1
        has_left = len(answer.parts) <= leaves_after or leaves_after <= 0
        assert len(session.forest.replies) == (leaves_after >= 0), "a hang-up ended what was being sampled"
        assert has_left or not session.undelivered, "an answer was received whole and counts as undelivered"
        again = await send(application, f"/v1/{path}", body, headers)
        assert (again.status, session.undelivered) == (200, []), "the same bytes again got no answer"
        num_tokens += check_captured(engine, session)
        await served.gateway.end(access.name)
    return {"places": dict(sorted(places.items())), "kinds": len(places), "captured": num_tokens}


def name_place(last: str, leaves_after: int) -> str:
    """Return the name of the event after which a client left."""
    if leaves_after < 0:
        return "within the request"
    if not last:
        return "before the answer"
    if last.startswith("event: "):
        return last.partition("\n")[0].removeprefix("event: ")
    return "data" if last.startswith("data: {") else "[DONE]" if last.startswith("data: [") else "whole answer"


def main() -> None:
    """Fuzz, hang up, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--hang-ups", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=10_000)
    options = parser.parse_args()
    fuzzed = asyncio.run(fuzz(options.requests, Random(options.seed)))
    hung = asyncio.run(hang_up(options.hang_ups, Random(options.seed + 1)))
    began = time.process_time()
    played = asyncio.run(play_sessions(options.sessions, Random(options.seed + 2)))
    played["cpu_seconds"] = round(time.process_time() - began)
    told = {"requests": options.requests, **fuzzed, "hang_ups": options.hang_ups, "hung": hung, "played": played}
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
