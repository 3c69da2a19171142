// How to use what a lease holds: commands and values from the details of its reservations. Pure.

import { typeTitle } from "./words.js";

/**
 * @param {object} reservation of a lease
 * @returns {{title: string, items: {label: string, text: string}[], hint: string}}
 */
export function usage(reservation) {
  const make = TYPES[reservation.resource_type] || plain;
  const { items, hint = "" } = make(reservation);
  return { title: typeTitle(reservation.resource_type), items, hint };
}

const TYPES = {
  "physical:host": ({ id }) => ({
    hint: "Boot servers on the hosts with this scheduler hint.",
    items: [{ label: "scheduler hint", text: `--hint reservation=${id}` }],
  }),
  "virtual:instance": instances,
  "flavor:instance": instances,
  "virtual:floatingip": ({ details, params }) => {
    const addresses = Object.entries(details.floatingips || {});
    return {
      hint: addresses.length ? "The floating IPs belong to your project."
        : "The addresses become floating IPs of your project at the start.",
      items: addresses.length
        ? addresses.map(([address]) => ({ label: `address ${address}`, text: address }))
        : [{ label: "network", text: params.network_id }],
    };
  },
  "virtual:network": ({ details, params }) => {
    const networks = Object.entries(details.networks || {});
    return {
      hint: networks.length ? "The network belongs to your project." : "climate creates the network at the start.",
      items: networks.length
        ? networks.map(([segment, id]) => ({ label: `network on ${segment}`, text: id }))
        : [{ label: "network name", text: params.network_name }],
    };
  },
  "virtual:volume": ({ details, params }) => {
    const volumes = listed(details.volumes);
    const type = details.reserved_type || "";
    return {
      hint: volumes.length ? "The volumes belong to your project." : "Create volumes of this type.",
      items: [
        ...(type ? [{ label: "volume type",
          text: `openstack volume create --type ${type} --size ${params.size} NAME` }] : []),
        ...volumes.map((id) => ({ label: "volume", text: id })),
      ],
    };
  },
  "virtual:stack": ({ details }) => ({
    hint: "The stack belongs to your project.",
    items: details.stack_id ? [{ label: "stack", text: `openstack stack show ${details.stack_id}` }] : [],
  }),
};

function instances({ id, details }) {
  const group = details.server_group_id ? ` --hint group=${details.server_group_id}` : "";
  return {
    hint: "Boot servers with this flavor. It exists as long as the lease runs.",
    items: [
      { label: "flavor", text: `--flavor ${details.flavor_id || id}${group}` },
      ...listed(details.servers).map((server) => ({ label: "server", text: server })),
    ],
  };
}

function plain({ details }) {
  const items = Object.entries(details).filter(([, value]) => value !== null && value !== "");
  return { items: items.map(([label, value]) =>
    ({ label, text: typeof value === "string" ? value : JSON.stringify(value) })) };
}

/** The ids of a list, or of the values of an object. */
function listed(value) {
  const items = Array.isArray(value) ? value : Object.values(value || {});
  return items.map((item) => (typeof item === "string" ? item : item.id || JSON.stringify(item)));
}
