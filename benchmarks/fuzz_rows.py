"""Read fuzzed rows with every reader of rows: `python benchmarks/fuzz_rows.py --rows 100000`.

Prints a JSON summary: rows, how many each reader accepted, and its maximum CPU milliseconds for one row. Ends with the
exception at the first row that a reader neither accepts nor refuses by file and line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fuzzed_rows import list_readers, try_line, write_line


def main() -> None:
    """Fuzz, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        readers = list_readers(folder)
        taken, slowest = dict.fromkeys(readers, 0), dict.fromkeys(readers, 0.0)
        for number in range(options.rows):
            line = write_line(Random(options.seed * 2**32 + number))
            for reader, each in try_line(line, folder / "rows.jsonl", readers).items():
                taken[reader] += each is not None
                slowest[reader] = max(slowest[reader], 1000 * (each or 0.0))
    print(json.dumps({"rows": options.rows, "seed": options.seed, "taken": taken, "slowest_ms": slowest}, indent=1))


if __name__ == "__main__":
    main()
