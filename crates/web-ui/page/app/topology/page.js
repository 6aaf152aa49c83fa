// SPDX-License-Identifier: Apache-2.0
// The topology page: which machine is connected to which switch port according to LLDP, as a map and as
// a list, with the deviations from the records above.

import { html, useEffect, useMemo, useState } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { FetchResult, useFetch } from "../fetching.js";
import { fleet, followFleet } from "../fleet/model.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { EmptyState, RefreshButton, SearchField } from "../page_parts.js";
import { href, navigate, route, setQuery } from "../route.js";
import { count } from "../sizes.js";
import { layoutTopology } from "./layout.js";
import { TopologyList } from "./list.js";
import { TopologyMap } from "./map.js";
import { buildTopology, describeLink, linkStyle, searchPorts } from "./model.js";

/** Narrower windows show the list by default. */
const NARROW_PX = 860;
/** More problems are collapsed. */
const MAX_EXPANDED_PROBLEMS = 3;
const MAX_PROBLEMS = 100;

export function TopologyPage() {
  const { query } = useObservable(route);
  const response = useFetch(async () => {
    const topology = buildTopology(await get("/v1/ferrite/topology"));
    return { topology, layout: layoutTopology(topology) };
  }, []);
  const { byId } = useObservable(fleet);
  useEffect(() => followFleet(), []);
  const look = query.get("look") ?? (innerWidth < NARROW_PX ? "list" : "picture");
  const text = query.get("q") ?? "";
  const [current, setCurrent] = useState(0);
  const { data } = response;
  const matches = useMemo(
    () => (data && text.trim() ? searchPorts(data.topology.ports, text) : null),
    [data, text],
  );
  const marked = useMemo(() => matches && new Set(matches), [matches]);
  useEffect(() => setCurrent(0), [text]);
  const onKeyDown = (event) => {
    if (event.key === "Enter" && matches?.length && event.target.matches("input[type=search]"))
      setCurrent((current + 1) % matches.length);
  };
  return html`<div class="page topology" onKeyDown=${onKeyDown}>
    <header class="bar"><h1>Topology ${data && html`<span class="number quiet note">${summary(data.topology)}</span>`}</h1>
      <${SearchField} value=${text} label="Search the topology" placeholder="machine, switch, port, MAC, moved…" />
      ${
        matches &&
        html`<span class="quiet number" role="status" data-found=${matches.length}>
        ${matches.length ? `${Math.min(current + 1, matches.length)} of ${matches.length}` : "no matches"}</span>`
      }
      <span class="grow"></span>
      <${RefreshButton} onClick=${response.reload} />
      <${LookSwitch} look=${look} /></header>
    <${FetchResult} result=${response}>${({ topology, layout }) => {
      if (topology.switches.length === 0) return html`<${NoSwitches} />`;
      return html`<${LinkProblems} problems=${topology.problems} />
      ${
        look === "list"
          ? html`<div class="page-body"><${TopologyList} switches=${topology.switches} marked=${marked} /></div>`
          : html`<${Legend} /><${TopologyMap} topology=${topology} layout=${layout} marked=${marked} focus=${matches?.[current]}
            rows=${byId} onOpen=${openItem} />`
      }`;
    }}<//></div>`;
}

/** @param {import("./model.js").Topology} topology */
const summary = ({ switches, machines }) =>
  `${count(switches.length, "switch", "switches")}, ${count(machines.size, "machine")}`;

/** Opens a machine, or searches for a port or a switch. */
function openItem(item) {
  if (item.machine) setQuery({ q: `${item.machine.label} ${item.id}` });
  else if (item.uuid) navigate(`machines/${item.label}`, { tab: "network" });
  else setQuery({ q: item.label });
}

/** @param {{ look: string }} props */
function LookSwitch({ look }) {
  const isNarrow = innerWidth < NARROW_PX;
  return html`<div class="switcher" role="group" aria-label="View">
    <button aria-pressed=${look === "picture"} onClick=${() => setQuery({ look: isNarrow ? "picture" : null })}>
      <${Icon} name="network" /> Map</button>
    <button aria-pressed=${look === "list"} onClick=${() => setQuery({ look: "list" })}><${Icon} name="list" /> List</button></div>`;
}

function NoSwitches() {
  return html`<${EmptyState} title="No switches known">
    <p>Switches are detected by LLDP when machines are inspected with the agent. <a href=${href("fleet")}>Inspect some machines</a>.</p><//>`;
}

/** @param {{ problems: import("./model.js").SwitchPort[] }} props */
function LinkProblems({ problems }) {
  if (!problems.length) return null;
  const title =
    problems.length === 1
      ? "1 link differs from its record"
      : `${count(problems.length, "link")} differ from their records`;
  return html`<details class="notice warn link-problems" open=${problems.length <= MAX_EXPANDED_PROBLEMS}>
    <summary><${Icon} name="warning" /> <strong>${title}</strong></summary><ul>
    ${problems.slice(0, MAX_PROBLEMS).map((port) => html`<${LinkProblem} key=${`${port.on.id} ${port.id} ${port.mac}`} port=${port} />`)}</ul></details>`;
}

/** @param {{ port: import("./model.js").SwitchPort }} props */
function LinkProblem({ port }) {
  const { badge, label } = linkStyle(port.state);
  return html`<li data-problem=${port.state}><span class="badge ${badge}">${label}</span> <a href=${href("topology", { q: `${port.machine.label} ${port.id}` })}>${describeLink(port)}</a></li>`;
}

function Legend() {
  return html`<p class="topology-legend quiet"><span><i class="link detected"></i> detected</span>
    <span><i class="link moved">≠</i> moved: detected at another port than recorded</span>
    <span><i class="link missing">×</i> missing: recorded, no LLDP received</span>
    <span><i class="link configured"></i> recorded, not checked yet</span></p>`;
}
