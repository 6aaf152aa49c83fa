// SPDX-License-Identifier: Apache-2.0
// Which machine is plugged in where, as their cards heard it: as a picture and as a list. What is wrong
// stands above both, in words.

import { html, useEffect, useMemo, useState } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { fleet, keepFleetLive } from "../fleet/model.js";
import { Icon } from "../icons.js";
import { Answer, useAnswer } from "../loading.js";
import { go, href, route, setQuery } from "../route.js";
import { Find, Nothing } from "../sections.js";
import { count } from "../sizes.js";
import { useSubject } from "../subject.js";
import { place } from "./layout.js";
import { List } from "./list.js";
import { LINKS, arranged, soughtPorts, wordsOf } from "./model.js";
import { Picture } from "./picture.js";

export function TopologyPage() {
  const { query } = useSubject(route);
  const answer = useAnswer(() => get("/v1/ferrite/topology").then((told) => { const topology = arranged(told); return { topology,
    layout: place(topology) }; }), []);
  const { byId } = useSubject(fleet);
  useEffect(() => keepFleetLive(), []);
  const look = query.get("look") ?? (innerWidth < 860 ? "list" : "picture");
  const text = query.get("q") ?? "";
  const [at, setAt] = useState(0);
  const data = answer.data;
  const found = useMemo(() => (data && text.trim() ? soughtPorts(data.topology.ports, text) : null), [data, text]);
  const marked = useMemo(() => found && new Set(found), [found]);
  useEffect(() => { setAt(0); }, [text]);
  const open = (thing) => { if (thing.machine) setQuery({ q: `${thing.machine.label} ${thing.id}` }); else if (thing.uuid) go(`machines/${thing.label}`, { tab: "network" }); else setQuery({ q: thing.label }); };
  const next = (event) => { if (event.key === "Enter" && found?.length) setAt((at + 1) % found.length); };
  return html`<div class="sheet topology" onKeyDown=${(event) => { if (event.target.matches("input[type=search]")) next(event); }}>
    <header class="bar"><h1>Topology ${data && html`<span class="number quiet note">${`${count(data.topology.switches.length,
      "switch", "switches")}, ${count(data.topology.machines.size, "machine")}`}</span>`}</h1>
      <${Find} value=${text} label="Find in the topology" placeholder="machine, switch, port, MAC, moved…" />
      ${found && html`<span class="quiet number" role="status" data-found=${found.length}>
        ${found.length ? `${Math.min(at + 1, found.length)} of ${found.length}` : "nothing found"}</span>`}
      <span class="grow"></span>
      <button class="button" onClick=${answer.again}><${Icon} name="refresh" /> Look again</button>
      <div class="switcher" role="group" aria-label="Look">
        <button aria-pressed=${look === "picture"} onClick=${() => setQuery({ look: innerWidth < 860 ? "picture" : null })}>
        <${Icon} name="network" /> Picture</button>
          <button aria-pressed=${look === "list"} onClick=${() => setQuery({ look: "list" })}><${Icon} name="list" /> List</button>
          </div></header>
    <${Answer} of=${answer}>${({ topology, layout }) => (topology.switches.length === 0 ? html`<${Nothing}
      title="Nothing is known yet">
      <p>Machines hear their switches by LLDP when they are inspected with the agent. <a
        href=${href("fleet")}>Inspect some</a>.</p><//>` : html`
      <${Troubles} troubles=${topology.troubles} />
      ${look === "list" ? html`<div class="sheet-body"><${List} switches=${topology.switches} marked=${marked} /></div>`
        : html`<${Legend} /><${Picture} topology=${topology} layout=${layout} marked=${marked} focus=${found?.[at]} rows=${byId}
          onOpen=${open} />`}`)}<//></div>`;
}

function Troubles({ troubles }) {
  if (!troubles.length) return null;
  return html`<details class="notice warn troubles" open=${troubles.length < 4}><summary><${Icon} name="warning" /> <strong>
    ${`${count(troubles.length, "link")} not as ${troubles.length === 1 ? "it" : "they"} should be`}</strong></summary><ul>
    ${troubles.slice(0, 100).map((port) => html`<li key=${`${port.on.id} ${port.id} ${port.mac}`} data-trouble=${port.state}>
      <span class="badge ${LINKS[port.state].badge}">${LINKS[port.state].word}
        </span> <a href=${href("topology", { q: `${port.machine.label} ${port.id}` })}>${wordsOf(port)}</a></li>`)}</ul></details>`;
}

function Legend() {
  return html`<p class="topology-legend quiet"><span><i class="link heard"></i> heard</span><span>
    <i class="link moved">≠</i> moved: heard elsewhere than recorded</span>
    <span><i class="link missing">×</i> missing: nothing heard</span><span><i class="link configured">
      </i> recorded, not listened yet</span></p>`;
}
