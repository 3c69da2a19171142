"""Calendar feeds: create and revoke them, and serve them as iCalendar files."""
