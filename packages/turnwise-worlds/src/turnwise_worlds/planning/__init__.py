"""Search over the futures of a state: forkable environments, a policy that proposes, a value function that judges."""
