// SPDX-License-Identifier: Apache-2.0
// The networks on which DHCP is answered, how full their ranges are, and who has which address.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { Answer, useAnswer } from "../loading.js";
import { Icon } from "../icons.js";
import { Pairs, Panel, Table } from "../machine/panel.js";
import { href, route, setQuery } from "../route.js";
import { Find, Nothing, Sheet } from "../sections.js";
import { count } from "../sizes.js";
import { useSubject } from "../subject.js";
import { countdown, date, useSeconds } from "../times.js";
import { freeIn, inNetwork } from "./addresses.js";

const SHOWN = 500;
const MODES = { off: "answers nobody", proxy: "beside another DHCP server: boots enrolled machines, gives no addresses",
  reserve: "gives addresses to enrolled machines",
    discover: "gives addresses to unknown machines, too, and boots the agent on them" };
const STATES = { leased: ["good", "leased"], ended: ["", "ended"], taken: ["warn", "taken by somebody else"] };

export function NetworkPage() {
  const { query } = useSubject(route);
  const answer = useAnswer(() => get("/v1/ferrite/dhcp"), []);
  useSeconds();
  return html`<${Sheet} title="Network" note="DHCP"
    tools=${html`<button class="button" onClick=${answer.again}><${Icon} name="refresh" /> Look again</button>`}>
    <${Answer} of=${answer}>${(data) => html`
      ${data.problem && html`<div class="notice bad"><${Icon} name="warning" /><span>${data.problem}</span></div>`}
      ${data.networks.length === 0 ? html`<${Nothing} title="DHCP is not answered here"><p>
        ${data.enabled ? html`The configuration names no <code>[[dhcp.networks]]</code>: machines get their addresses elsewhere.` : html`The boot services are switched off (<code>boot.enabled</code>).`}</p><//>`
        : html`<div class="network-panels">${data.networks.map((one) => html`<${Net} key=${`${one.interface} ${one.address}`}
          one=${one} leases=${data.leases} />`)}</div>
          <${Leases} leases=${data.leases} sought=${(query.get("q") ?? "").trim().toLowerCase()} text=${query.get("q") ?? ""}
            all=${query.get("ended") === "1"} />`}`}<//><//>`;
}

function Net({ one, leases }) {
  const { total, used } = useMemo(() => freeIn(one, leases), [one, leases]);
  const share = total > 0 ? used / total : 0;
  return html`<${Panel} title=${one.interface ? `${one.interface}: ${one.address}` : `${one.address}, through relays`}
    icon="network"
    actions=${html`<span class="badge">${one.mode}</span>`}>
    <p class="quiet">It ${MODES[one.mode] ?? one.mode}.</p>
    ${total > 0 && html`<div><div class="progress" aria-hidden="true">
      <i class=${share > 0.9 ? "bad" : ""} style=${{ flexGrow: share }}></i>
      <i class="rest" style=${{ flexGrow: 1 - share }}></i></div><p class="quiet number">
        ${`${count(used, "address", "addresses")} of ${total.toLocaleString("en")} in use`}</p></div>`}
    <${Pairs} pairs=${[["Ranges", one.ranges.join(", ")], ["Gateway", one.gateway], ["Name servers", one.dns.join(", ")],
      ["Time servers", one.ntp.join(", ")], ["Domain", one.domain], ["MTU", one.mtu], ["Lease", `${one.lease_time ?? 3600} s`],
      ["TFTP", one.tftp_server], ["Reserved", Object.entries(one.hosts).map(([mac, address]) => `${mac}: ${address}`).join(", ")],
      ["Leases now", leases.filter((lease) => lease.state === "leased" && inNetwork(lease.address, one.address)).length]]} /><//>`;
}

function Leases({ leases, sought, text, all }) {
  const found = leases.filter((lease) => (all || lease.state !== "ended")
    && (!sought || `${lease.address} ${lease.client} ${lease.node_name ?? ""}`.toLowerCase().includes(sought)));
  return html`<${Panel} title="Leases" icon="list" flush
    actions=${html`<span class="quiet number">${found.length.toLocaleString("en")}</span>
      <${Find} value=${text} label="Find leases" placeholder="address, MAC, machine…" />
      <label class="check"><input type="checkbox" checked=${all}
        onChange=${(event) => setQuery({ ended: event.currentTarget.checked ? "1" : null })} /> ended, too</label>`}>
    ${found.length === 0 ? html`<div class="empty"><p>No leases${sought ? " like that" : " yet"}.</p></div>`
      : html`<${Table} label="Leases" rows=${found.slice(0, SHOWN)} keyOf=${(lease) => lease.address} columns=${[
        ["Address", (lease) => html`<code><strong>${lease.address}</strong></code>`],
        ["Who", (lease) => html`<code>${lease.client}</code>`],
        ["Machine", (lease) => (lease.node_uuid ? html`<a href=${href(`machines/${lease.node_name ?? lease.node_uuid}`)}>
          ${lease.node_name ?? lease.node_uuid}</a>`
          : lease.mac ? html`<a class="quiet" href=${href("sightings", { q: lease.mac })}>nobody enrolled it</a>` : "")],
        ["State", (lease) => { const [kind, words] = STATES[lease.state]; return html`<span class="badge ${kind}">${words}
          </span>`; }],
        ["Left", (lease) => (lease.state === "ended" ? html`<span class="faint">ended ${date(Date.parse(lease.until))}
          </span>` : html`<span class="number"
          title=${date(Date.parse(lease.until))}>${countdown(Date.parse(lease.until))}</span>`), "nowrap"]]} />`}<//>`;
}
