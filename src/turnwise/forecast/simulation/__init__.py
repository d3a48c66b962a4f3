"""Discrete events of engines, tools, judges, trainer and publication: what a schedule would do on other machines."""
