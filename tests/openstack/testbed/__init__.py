"""An OpenStack of this project's own on one machine: ``python -m tests.openstack.testbed up``.

Keystone, Placement, Glance, Nova, Neutron, Cinder and Heat are the real ones, from packages in one
virtual environment, on loopback and without containers; only the hypervisors, the switches and the
disks are fake. What runs outside of that environment is here and needs Python alone; what runs
inside it is in ``inside``.
"""
