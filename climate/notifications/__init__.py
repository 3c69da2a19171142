"""Telling the world: publishing over oslo.messaging, and listening to it."""
