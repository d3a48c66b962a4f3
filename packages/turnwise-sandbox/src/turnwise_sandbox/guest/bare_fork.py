"""Runs code in plain forks without isolation, as the benchmark's lower bound. Only the benchmark uses it, with its own
code."""

from __future__ import annotations

import json
import os
import resource
import sys
import time


def main() -> None:
    """Run `python -m turnwise_sandbox.guest.bare_fork PROFILE COUNT CODE`: prints processor and elapsed seconds as
    JSON."""
    from turnwise_sandbox.zygote import preload

    profile, count, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    preload(profile)
    devnull = os.open("/dev/null", os.O_WRONLY)
    walls = []
    before_s = time.process_time()
    for _ in range(count):
        started = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os.dup2(devnull, 1)
            exec(compile(source, "<program>", "exec"), {"__name__": "__main__"})
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        walls.append(time.perf_counter() - started)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = time.process_time() - before_s + used.ru_utime + used.ru_stime
    sys.stdout.write(json.dumps({"cpu_s": cpu_s, "wall_s": walls}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
