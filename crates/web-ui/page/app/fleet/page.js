// SPDX-License-Identifier: Apache-2.0
// The fleet view: all machines at once, as a map or as a table, to look at and to act on.

import { html, useEffect, useMemo } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { go, route, setQuery } from "../route.js";
import { useSubject } from "../subject.js";
import { Counters } from "./counters.js";
import { GROUPINGS, dimension, grouped } from "./dimensions.js";
import { FilterChips, clearAll, filtered, readFilters } from "./filters.js";
import { Grid } from "./grid.js";
import { fittingSize } from "./layout.js";
import { fleet, keepFleetLive } from "./model.js";
import { SelectionBar } from "./selection_bar.js";
import { keepOnly, selectNone, selectOnly, selection } from "./selection.js";
import { Table, sorted } from "./table.js";

export function FleetPage() {
  const { rows, ready, changed } = useSubject(fleet);
  const { query } = useSubject(route);
  useEffect(() => keepFleetLive(), []);

  const asked = String(query);
  const filters = useMemo(() => readFilters(query), [asked]);
  const shown = useMemo(() => filtered(rows, filters), [rows, filters]);
  const groupedBy = query.get("group") ?? "rack";
  const look = query.get("look") ?? (innerWidth < 860 ? "table" : "grid");
  const [sort, descending] = [query.get("sort") ?? "name", query.get("desc") === "1"];
  const groups = useMemo(() => {
    const found = grouped(groupedBy, shown);
    return look === "table" ? sorted(found, sort, descending) : found;
  }, [shown, groupedBy, look, sort, descending]);
  const order = useMemo(() => groups.flatMap((group) => group.rows.map((row) => row.uuid)), [groups]);
  useEffect(() => keepOnly(new Set(order)), [order]);

  useEffect(() => {
    const onKey = (event) => {
      if (event.target.closest("input,textarea,select,dialog,.popover")) return;
      if ((event.ctrlKey || event.metaKey) && event.key === "a") { event.preventDefault(); selectOnly(order); }
      if (event.key === "Escape" && selection.value.chosen.size) selectNone();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [order]);

  const size = query.get("size") ?? fittingSize(shown.length);
  const onOpen = (row) => go(`machines/${row.label}`);
  return html`<div class="fleet">
    <header class="bar">
      <h1>Fleet <span class="number" data-total>
        ${ready ? `${shown.length === rows.length ? "" : `${shown.length.toLocaleString("en")} of `}${rows.length.toLocaleString("en")}` : ""}</span></h1>
      <div class="find"><${Icon} name="search" />
        <input type="search" placeholder="Filter: name, state, owner, r01-u[01-12]…" aria-label="Filter machines"
        value=${filters.text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} /></div>
      <span class="grow"></span>
      <label class="inline"><span>Group by</span>
        <select aria-label="Group by" value=${groupedBy}
        onChange=${(event) => setQuery({ group: event.currentTarget.value === "rack" ? null : event.currentTarget.value })}>
        ${GROUPINGS.map((id) => html`<option key=${id} value=${id}>${dimension(id).label}</option>`)}
          <option value="none">Nothing</option></select></label>
      ${look === "grid" && html`<div class="switcher" role="group" aria-label="Size of cells">
        ${["s", "m", "l"].map((one) => html`<button key=${one} aria-pressed=${size === one}
          aria-label=${{ s: "Small cells", m: "Medium cells", l: "Large cells" }[one]} onClick=${() => setQuery({ size: one })}>
          ${one.toUpperCase()}</button>`)}</div>`}
      <div class="switcher" role="group" aria-label="Look">
        <button aria-pressed=${look === "grid"} onClick=${() => setQuery({ look: innerWidth < 860 ? "grid" : null })}>
          <${Icon} name="fleet" /> Grid</button>
        <button aria-pressed=${look === "table"} onClick=${() => setQuery({ look: "table" })}>
          <${Icon} name="table" /> Table</button>
      </div>
    </header>
    ${ready && rows.length > 0 && html`<${Counters} rows=${rows} filters=${filters} />`}
    ${ready && rows.length > 0 && html`<${FilterChips} rows=${rows} filters=${filters} />`}
    ${!ready ? html`<${Loading} />`
      : rows.length === 0 ? html`<${NoMachines} />`
      : shown.length === 0 ? html`<div class="empty"><h2>No machine passes these filters</h2>
        <button class="button" onClick=${clearAll}>Clear the filters</button></div>`
      : look === "table" ? html`<${Table} groups=${groups} groupedBy=${groupedBy} sort=${sort} descending=${descending}
        order=${order} onOpen=${onOpen} />`
      : html`<${Grid} groups=${groups} groupedBy=${groupedBy} size=${size} order=${order} changed=${changed} onOpen=${onOpen} />`}
    <${SelectionBar} shown=${shown.length} />
  </div>`;
}

function Loading() {
  return html`<div class="counters" role="status" aria-label="Loading"><div class="loading"></div></div>`;
}

function NoMachines() {
  return html`<div class="empty"><h2>No machines yet</h2>
    <p>Enrol one: <code>baremetal node create --driver redfish --name rack1-u01 …</code></p>
    <p>Or try simulated ones: <code>ferrite sim --bmcs 100 --enrol ${location.origin}</code></p></div>`;
}
