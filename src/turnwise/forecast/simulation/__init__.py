"""Simulate engines, tools, judges, trainer and publication by discrete events: schedules on other machines."""
