// SPDX-License-Identifier: Apache-2.0
// The topology in words: each switch with its ports in order.

import { html, useState } from "../../vendor/preact-htm.js";
import { Table } from "../machine/panel.js";
import { href } from "../route.js";
import { count } from "../sizes.js";
import { ago } from "../times.js";
import { LINKS, wordsOf } from "./model.js";

const OPEN_UP_TO = 4, ROWS = 200;

export function List({ switches, marked }) {
  const shown = switches.map((one) => ({ one,
    ports: marked ? one.ports.filter((port) => marked.has(port)) : one.ports })).filter(({ ports }) => ports.length);
  return html`<div class="topology-list">${shown.slice(0, 300).map(({ one, ports }) => html`<${Switch} key=${one.id} one=${one}
    ports=${ports}
    isFew=${shown.length <= OPEN_UP_TO || !!marked} />`)}</div>`;
}

function Switch({ one, ports, isFew }) {
  const [open, setOpen] = useState(isFew);
  const [most, setMost] = useState(ROWS);
  const bad = ports.filter((port) => port.state === "moved" || port.state === "missing").length;
  return html`<details class="panel switch" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><strong>${one.label}</strong> <span class="quiet">
      ${count(ports.length, "port")}${one.description ? ` · ${one.description}` : ""}
      ${one.management_addresses.length ? ` · ${one.management_addresses.join(", ")}` : ""}
        </span> ${bad > 0 && html`<span class="badge bad">${bad} wrong</span>`}</summary>
    ${open && html`<${Table} label=${`Ports of ${one.label}`} rows=${ports.slice(0, most)}
      keyOf=${(port) => `${port.id} ${port.mac}`} columns=${[
      ["Port", (port) => html`<strong>${port.id}</strong>`],
      ["Machine", (port) => html`<a href=${href(`machines/${port.machine.label}`, { tab: "network" })}>${port.machine.label}</a>`],
      ["Card", (port) => html`${port.interface ?? ""} <code class="quiet">${port.mac}</code>`],
      ["Link", (port) => html`<span class="badge ${LINKS[port.state].badge}">${LINKS[port.state].word}</span>`],
      ["", (port) => (port.state === "heard" ? "" : wordsOf(port))],
      ["Listened", (port) => (port.listened_at ? html`<span class="quiet nowrap">${ago(Date.parse(port.listened_at))}
        </span>` : "")]]} />
      ${ports.length > most && html`<button class="button plain"
        onClick=${() => setMost(most + 1000)}>Show more of ${ports.length - most}</button>`}`}</details>`;
}
