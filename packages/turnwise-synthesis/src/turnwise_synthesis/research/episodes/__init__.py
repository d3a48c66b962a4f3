"""How an episode at the desk proceeds: led by the environment, or by the agent."""
