"""Resource types. Each folder has plug-ins, and their drivers: for OpenStack, and simulated.

``base`` is the interface that plug-ins implement. ``fencing`` prevents a manager from changing the
cloud after it has lost the claim on its event. ``loader`` loads plug-ins and drivers by their entry
points. ``openstack`` has the code that several drivers share.

The methods of plug-ins are documented in the class ResourcePlugin, those of drivers in Protocols
such as HostCloud.
"""
