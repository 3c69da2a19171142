"""Operations in the v2 API: which managers run, and which events are overdue."""
