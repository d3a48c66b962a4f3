"""Both ends of Verl-Tool's protocol: tasks over the tools of its servers, and environments whose tools are served."""
