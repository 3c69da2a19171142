"""The route table of v1: the same routes as Blazar."""

from climate.api import discovery
from climate.api.route import Route
from climate.api.v1 import floatingips, hosts, leases, networks

ROUTES = [
    Route("GET", "/v1", discovery.version_1),
    Route("GET", "/v1/", discovery.version_1),
    Route("GET", "/v1/leases", leases.index, "leases:get"),
    Route("POST", "/v1/leases", leases.create, "leases:post"),
    Route("GET", "/v1/leases/<lease_id>", leases.show, "leases:get"),
    Route("PUT", "/v1/leases/<lease_id>", leases.update, "leases:put"),
    Route("DELETE", "/v1/leases/<lease_id>", leases.delete, "leases:delete"),
    Route("GET", "/v1/plugins", leases.plugins, "plugins:get"),
    Route("GET", "/v1/os-hosts", hosts.index, "oshosts:get"),
    Route("POST", "/v1/os-hosts", hosts.create, "oshosts:post"),
    Route("GET", "/v1/os-hosts/allocations", hosts.allocations, "oshosts:get_allocations"),
    Route("GET", "/v1/os-hosts/properties", hosts.properties, "oshosts:get_resource_properties"),
    Route(
        "PATCH",
        "/v1/os-hosts/properties/<name>",
        hosts.update_property,
        "oshosts:update_resource_properties",
    ),
    Route("GET", "/v1/os-hosts/<host_id>", hosts.show, "oshosts:get"),
    Route("PUT", "/v1/os-hosts/<host_id>", hosts.update, "oshosts:put"),
    Route("DELETE", "/v1/os-hosts/<host_id>", hosts.delete, "oshosts:delete"),
    Route("GET", "/v1/os-hosts/<host_id>/allocation", hosts.allocation, "oshosts:get_allocations"),
    Route("GET", "/v1/floatingips", floatingips.index, "floatingips:get"),
    Route("POST", "/v1/floatingips", floatingips.create, "floatingips:post"),
    Route("GET", "/v1/floatingips/<floatingip_id>", floatingips.show, "floatingips:get"),
    Route("DELETE", "/v1/floatingips/<floatingip_id>", floatingips.delete, "floatingips:delete"),
    Route("GET", "/v1/networks", networks.index, "networks:get"),
    Route("POST", "/v1/networks", networks.create, "networks:post"),
    Route("GET", "/v1/networks/<network_id>", networks.show, "networks:get"),
    Route("DELETE", "/v1/networks/<network_id>", networks.delete, "networks:delete"),
]
