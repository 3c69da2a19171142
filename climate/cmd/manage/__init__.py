"""The commands of climate-manage: ``audit``, ``limits`` and ``encrypt-secrets``."""
