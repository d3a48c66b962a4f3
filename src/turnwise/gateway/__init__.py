"""An endpoint for agents written with other people's clients: they talk to the policy by the protocols that they know.

Requests are matched by meaning with what a session has sampled, so that a conversation continues on its stored token
ids, and a sampled token is never tokenized again.
"""
