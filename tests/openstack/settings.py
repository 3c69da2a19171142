"""Options of the service under test, and the hosts that tests use."""

import os

from tests.openstack.accounts import Account

# The free pool's name matters to blazar-nova's filter, which must not see that of the other mode.
FREE_POOLS = {"blazar": "freepool", "tenancy": "climate-free"}
# Five empty hosts for the tests only.
HOSTS = os.environ.get("CLIMATE_TEST_LEASE_HOSTS", "fake04,fake05,fake06,fake07,fake08").split(",")
# A compute service with several nodes.
SERVICE = os.environ.get("CLIMATE_TEST_SERVICE", "multi01")
NODES = os.environ.get("CLIMATE_TEST_SERVICE_NODES", "bm-01,bm-02,bm-03").split(",")


def options(account: Account, isolation: str) -> dict[str, str]:
    """Return the options of a service that uses Nova, as group__option=value."""
    return {
        **{f"service_user__{name}": value for name, value in _user(account).items()},
        "nova__isolation": isolation,
        "nova__aggregate_freepool_name": FREE_POOLS[isolation],
        "physical:host__cloud": "nova",
    }


def identity(account: Account) -> dict[str, str]:
    """Return the options of a service that validates tokens with Keystone."""
    return {
        "api__auth_strategy": "keystone",
        **{f"keystone_authtoken__{name}": value for name, value in _user(account).items()},
    }


def _user(account: Account) -> dict[str, str]:
    given = account.environment
    return {
        "auth_type": "password",
        "auth_url": given["OS_AUTH_URL"],
        "username": given["OS_USERNAME"],
        "password": given["OS_PASSWORD"],
        "project_name": given["OS_PROJECT_NAME"],
        "user_domain_id": given.get("OS_USER_DOMAIN_ID", "default"),
        "project_domain_id": given.get("OS_PROJECT_DOMAIN_ID", "default"),
    }
