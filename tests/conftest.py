"""Settings every test runs under: one thread per process, no GPU, no network look-ups, no deadline for generated
examples."""

import os
import signal

# Before torch is imported anywhere: workers of a parallel test run must not fight over cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Exactness holds on the CPU: `model.device = "auto"` must not find a GPU, unless CUDA_VISIBLE_DEVICES names one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# Tests press Ctrl-C; started in the background of a script they would ignore it, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from hypothesis import settings  # noqa: E402

settings.register_profile("turnwise", deadline=None, max_examples=50)
settings.load_profile("turnwise")
