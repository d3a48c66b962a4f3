"""Simulate engines, tools, judges, trainer and publication as discrete events: how a schedule would do on other
machines."""
