"""Search over the futures of a state: environments that fork, a policy that proposes, a value function that judges."""
