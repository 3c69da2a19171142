"""A lease: its model, states, event schedule, changes and Blazar's forms of it."""
