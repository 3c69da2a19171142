"""Resource types. Each folder has plug-ins, drivers for OpenStack and simulated drivers.

``base`` is the interface that plug-ins implement. ``fencing`` prevents a manager from changing the
cloud after it has lost the claim on its event. ``loader`` loads plug-ins and drivers by their entry
points. ``openstack`` has the code that several drivers share. An interface documents the methods of
plug-ins and drivers: ResourcePlugin, or a Protocol such as HostCloud.
"""
