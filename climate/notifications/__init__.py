"""Transport of notifications: publish them with oslo.messaging, listen to them, send webhooks.

Only this folder imports oslo.messaging.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*.*eventlet")
    import oslo_messaging  # noqa: F401 - the first import, with its warning filtered
