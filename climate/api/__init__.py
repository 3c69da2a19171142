"""HTTP: identity, policy, validation and representation; the decisions are made below."""
