"""Environments of other packages, each as a family of text games."""
