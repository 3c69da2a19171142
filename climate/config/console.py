"""The options of the web console."""

from oslo_config import cfg

CONSOLE: list[cfg.Opt] = [
    cfg.BoolOpt("enabled", default=True, help="Serve the web console at /console/."),
    cfg.StrOpt(
        "session_key_file",
        help="File with the Fernet keys of session cookies, a key per line. The first key encrypts,"
        " all decrypt; a changed file is read again. All API processes of a site need the same"
        " keys. Unset: beside an SQLite database; else no sign-in with keystone, and a random key"
        " per process with noauth.",
    ),
    cfg.IntOpt(
        "session_hours",
        default=12,
        min=1,
        max=720,
        help="Hours until a session ends. A session with keystone ends no later than its token.",
    ),
]
