"""Samplers: which task of the training split is drawn next, from what the policy earned on those before."""
