"""Hugging Face causal language models, run through their own modules with one registered attention function.

Engines and training share that function: the sampler's cached attention and the trainer's packed attention are two
plans for it, with the same parameters.
"""
