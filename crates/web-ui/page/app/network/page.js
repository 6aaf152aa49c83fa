// SPDX-License-Identifier: Apache-2.0
// The network page: the DHCP networks, the usage of their ranges, and the DHCP leases.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { ErrorNotice, FetchResult, useFetch } from "../fetching.js";
import { KeyValueList, Panel, Table } from "../machine/panel.js";
import { useObservable } from "../observable.js";
import { EmptyState, PageFrame, RefreshButton, SearchField } from "../page_parts.js";
import { href, route, setQuery } from "../route.js";
import { count } from "../sizes.js";
import { countdown, date, useEverySecond } from "../times.js";
import { inNetwork, rangeUsage } from "./addresses.js";

const MAX_LEASES = 500;
const DEFAULT_LEASE_TIME_S = 3600;
const MODES = {
  off: "DHCP requests are ignored.",
  proxy: "Proxy DHCP: boots enrolled machines; another server assigns addresses.",
  reserve: "Assigns addresses to enrolled machines.",
  discover: "Assigns addresses to all machines, and boots the agent on unknown ones.",
};
/** The badge and the label of each lease state. */
const LEASE_STATES = {
  leased: ["good", "leased"],
  expired: ["", "expired"],
  conflict: ["warn", "in use by another host"],
};

export function NetworkPage() {
  const { query } = useObservable(route);
  const dhcp = useFetch(() => get("/v1/ferrite/dhcp"), []);
  useEverySecond();
  return html`<${PageFrame} title="Network" note="DHCP" tools=${html`<${RefreshButton} onClick=${dhcp.reload} />`}>
    <${FetchResult} result=${dhcp}>${({ enabled, error, networks, leases }) => html`
      ${error && html`<${ErrorNotice} message=${error} />`}
      ${
        networks.length === 0
          ? html`<${NoNetworks} enabled=${enabled} />`
          : html`<div class="network-panels">${networks.map((network) => html`<${NetworkPanel} key=${`${network.interface} ${network.address}`} network=${network} leases=${leases} />`)}</div>
          <${LeasesPanel} leases=${leases} search=${query.get("q") ?? ""} includeExpired=${query.get("expired") === "1"} />`
      }`}<//><//>`;
}

/** @param {{ enabled: boolean }} props */
function NoNetworks({ enabled }) {
  return html`<${EmptyState} title="DHCP is not configured"><p>${
    enabled
      ? html`There are no <code>[[dhcp.networks]]</code> in the configuration. Example:`
      : html`Boot services are disabled (<code>boot.enabled</code>).`
  }</p>${enabled && html`<pre class="plan sample">${SAMPLE_CONFIGURATION}</pre>`}<//>`;
}

const SAMPLE_CONFIGURATION = `[[dhcp.networks]]
interface = "eth1"
address = "10.0.0.1/24"
mode = "discover"
ranges = ["10.0.0.100-10.0.0.199"]`;

/** @param {{ network: any, leases: any }} props */
function NetworkPanel({ network, leases }) {
  const { total, used } = useMemo(() => rangeUsage(network, leases), [network, leases]);
  const share = total > 0 ? used / total : 0;
  const active = leases.filter(
    ({ state, address }) => state === "leased" && inNetwork(address, network.address),
  );
  const title = network.interface
    ? `${network.interface}: ${network.address}`
    : `${network.address}, through relays`;
  return html`<${Panel} title=${title} icon="network" actions=${html`<span class="badge">${network.mode}</span>`}>
    <p class="quiet">${MODES[network.mode] ?? network.mode}</p>
    ${
      total > 0 &&
      html`<div><div class="progress" aria-hidden="true">
      <i class=${share > 0.9 ? "bad" : ""} style=${{ flexGrow: share }}></i>
      <i class="remaining" style=${{ flexGrow: 1 - share }}></i></div>
      <p class="quiet number">${`${count(used, "address", "addresses")} of ${total.toLocaleString("en")} in use`}</p></div>`
    }
    <${KeyValueList} pairs=${[
      ["Ranges", network.ranges.join(", ")],
      ["Gateway", network.gateway],
      ["Name servers", network.dns.join(", ")],
      ["Time servers", network.ntp.join(", ")],
      ["Domain", network.domain],
      ["MTU", network.mtu],
      ["Lease time", `${network.lease_time ?? DEFAULT_LEASE_TIME_S} s`],
      ["TFTP server", network.tftp_server],
      ["Reservations", reservations(network.hosts)],
      ["Active leases", active.length],
    ]} /><//>`;
}

/** @param {Record<string, string>} hosts */
const reservations = (hosts) =>
  Object.entries(hosts)
    .map(([mac, address]) => `${mac}: ${address}`)
    .join(", ");

/** @param {{ leases: any, search: string, includeExpired: boolean }} props */
function LeasesPanel({ leases, search, includeExpired }) {
  const needle = search.trim().toLowerCase();
  const matches = leases.filter(({ address, client, node_name: name, state }) => {
    if (state === "expired" && !includeExpired) return false;
    return `${address} ${client} ${name ?? ""}`.toLowerCase().includes(needle);
  });
  const onToggle = (event) => setQuery({ expired: event.currentTarget.checked ? "1" : null });
  return html`<${Panel} title="DHCP leases" icon="list" flush
    actions=${html`<span class="quiet number">${matches.length.toLocaleString("en")}</span>
      <${SearchField} value=${search} label="Search leases" placeholder="address, MAC, machine…" />
      <label class="check"><input type="checkbox" checked=${includeExpired} onChange=${onToggle} /> include expired</label>`}>
    ${
      matches.length === 0
        ? html`<div class="empty"><p>${needle ? "No matching leases." : "No leases yet."}</p></div>`
        : html`<${Table} label="Leases" rows=${matches.slice(0, MAX_LEASES)} keyOf=${({ address }) => address} columns=${LEASE_COLUMNS} />`
    }<//>`;
}

const LEASE_COLUMNS = [
  ["Address", ({ address }) => html`<code><strong>${address}</strong></code>`],
  ["Client", ({ client }) => html`<code>${client}</code>`],
  ["Machine", (lease) => leaseMachine(lease)],
  [
    "State",
    ({ state }) => {
      const [kind, label] = LEASE_STATES[state] ?? ["", state];
      return html`<span class="badge ${kind}">${label}</span>`;
    },
  ],
  ["Expires in", (lease) => leaseExpiry(lease), "nowrap"],
];

function leaseMachine({ node_uuid: uuid, node_name: name, mac }) {
  if (uuid) return html`<a href=${href(`machines/${name ?? uuid}`)}>${name ?? uuid}</a>`;
  return mac
    ? html`<a class="quiet" href=${href("sightings", { q: mac })}>unknown machine</a>`
    : "";
}

function leaseExpiry({ state, expires_at: expiry }) {
  const timestamp = Date.parse(expiry);
  if (state === "expired") return html`<span class="faint">expired ${date(timestamp)}</span>`;
  return html`<span class="number" title=${date(timestamp)}>${countdown(timestamp) ?? "expired"}</span>`;
}
