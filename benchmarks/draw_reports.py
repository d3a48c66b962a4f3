"""Draw public bug reports of the field at random: `python benchmarks/draw_reports.py --seed 1 --draws 20`.

A share of faults among inputs that somebody chose says how well they chose. This draws the inputs instead: each draw is
a tracker and a word, and stands for the first report which the tracker's search gives for "TRACKER WORD bug" and which
is about something that Turnwise does on a CPU. Nothing here reads a tracker.

The words were written down before any search. `--skip` goes on where an earlier round ended, so that rounds of one seed
never overlap.
"""

import argparse
import random
from collections.abc import Iterator, Sequence

TRACKERS = (
    "verl-project/verl",
    "huggingface/trl",
    "NovaSky-AI/SkyRL",
    "PrimeIntellect-ai/prime-rl",
    "PrimeIntellect-ai/verifiers",
    "inclusionAI/AReaL",
    "THUDM/slime",
    "OpenRLHF/OpenRLHF",
    "vllm-project/vllm",
    "huggingface/transformers",
    "huggingface/peft",
    "SWE-bench/SWE-bench",
    "modelcontextprotocol/python-sdk",
    "ray-project/ray",
)

_TEXT = """
template padding timeout reward checkpoint tokenizer resume tool schema unicode config metric memory dataset
parquet jsonl column prompt system message role thinking reasoning argument call parser stop truncation length
mask advantage baseline group loss gradient clip ratio entropy temperature sampling logprobs seed determinism
shuffle batch microbatch accumulation epoch step optimizer scheduler warmup learning-rate weight-decay dtype
bfloat16 precision NaN overflow division zero negative empty missing duplicate order sort path directory
symlink permission space encoding newline escape quote regex number float boolean null list nested enum
default override environment-variable command-line option yaml log logging wandb tensorboard console progress
plot evaluation validation benchmark pass@k average variance grader verifier judge format answer math boxed
code execution sandbox docker container patch diff git repository test flaky image download cache offline
proxy network port socket server client session request retry cancel shutdown signal interrupt crash deadlock
hang leak thread process fork worker queue async concurrency race rate-limit adapter LoRA merge export save
load safetensors shard embedding vocabulary special-token eos bos chat multi-turn turn history context window
position cache-prefix streaming stream delta usage cost version upgrade import dependency install weights sync
stale rollout trajectory replay buffer filter curriculum reference KL critic value model config-file registry
callback hook plugin type annotation docstring date time clock disk quota compression archive upload hash
identifier name rename case whitespace
"""
WORDS = tuple(_TEXT.split())


def draws(seed: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of a tracker and a word for ever, none twice; the same for the same seed."""
    random_source = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    while len(seen) < len(TRACKERS) * len(WORDS):
        pair = random_source.choice(TRACKERS), random_source.choice(WORDS)
        if pair not in seen:
            seen.add(pair)
            yield pair


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the draws of a seed, one a line: its number, the tracker, the word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=20, help="how many to print")
    parser.add_argument("--skip", type=int, default=0, help="how many of the seed's first draws to leave out")
    given = parser.parse_args(arguments)
    for number, (tracker, word) in enumerate(draws(given.seed), start=1):
        if number > given.skip + given.draws:
            break
        if number > given.skip:
            print(f"{number}\t{tracker}\t{word}")


if __name__ == "__main__":
    main()
