"""Says why a run does not learn: rules on its record, and the findings they return."""
