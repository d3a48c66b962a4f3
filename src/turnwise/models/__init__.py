"""Hugging Face causal language models, run through their own modules with one registered attention function.

Engines and training share it: the sampler's cached attention and the trainer's packed attention are two plans for the
same function and the same parameters.
"""
