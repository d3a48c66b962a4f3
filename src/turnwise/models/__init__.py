"""Hugging Face causal language models run through their own modules, with one registered attention function.

Below engines and training because both use it: the sampler's cached attention and the trainer's packed attention are
two plans handed to the same function of the same parameters."""
