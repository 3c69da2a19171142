"""Telling the world: publishing over oslo.messaging, and listening to it.

oslo.messaging imports eventlet whenever oslo.service has it installed, which is always, and
whichever backend is chosen. Nothing here uses it or is patched by it, so nobody need be warned.
"""

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*.*eventlet")
    import oslo_messaging  # noqa: F401 - imported here first, to be found by the modules below
