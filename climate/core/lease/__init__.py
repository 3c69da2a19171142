"""A lease: its model, states, event schedule, changes, and its JSON forms in Blazar's protocols."""
