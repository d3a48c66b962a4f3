"""Labelled questions to judges as tasks: a policy that learns them is a judge."""
