"""Transport of notifications: publish them with oslo.messaging, listen to them, send webhooks.

Only this folder imports oslo.messaging.
"""
