"""New tasks near those that a policy fails: of the kinds it solves sometimes, with entities it has not seen."""
