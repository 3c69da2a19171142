"""A testbed with OpenStack on one machine: ``python -m tests.openstack.testbed up``."""
