"""Operations in the v2 API: managers and overdue work."""
