"""Theorems that are proved tactic by tactic: a kernel of our own checks every proof, and Metamath checks it again."""
