"""The resource types that climate can reserve.

The folder of a resource type has its plug-ins, a driver for OpenStack, and a simulated driver.
The folder ``openstack`` contains the code that several drivers share.

``base`` defines the interface of plug-ins. ``fencing`` prevents a manager from changing the cloud
for an event that another manager may have claimed. ``loader`` loads plug-ins and drivers by their
entry points.

The methods of plug-ins are documented in the class ResourcePlugin, those of drivers in Protocols
such as HostCloud.
"""
