"""Resource types and their drivers: one folder per type with plug-in, real and simulated driver.

``base`` is the interface for plug-in authors. ``fencing`` stops a change of the cloud that comes
after the claim was lost. ``loader`` finds plug-ins by their entry points.
"""
