from tests.support.event_queue import add_hosts  # noqa: F401
