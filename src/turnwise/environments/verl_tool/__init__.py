"""Verl-Tool's protocol at both ends: tasks over the tools of its servers, and environments whose tools are served."""
