// SPDX-License-Identifier: Apache-2.0
// The fleet page: all machines as a grid or a table, with filters and actions.

import { html, useEffect, useMemo } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { decodeSegment, navigate, route, setQuery } from "../route.js";
import { Counters } from "./counters.js";
import { GROUPINGS, dimension, groupRows } from "./dimensions.js";
import { filterRows, readFilters } from "./filtering.js";
import { FilterChips, clearFilters } from "./filters.js";
import { Grid } from "./grid.js";
import { defaultCellSize } from "./layout.js";
import { fleet, followFleet } from "./model.js";
import { clearSelection, retainRows, selection, setSelection } from "./selection.js";
import { SelectionBar } from "./selection_bar.js";
import { sortGroups } from "./sorting.js";
import { FleetTable } from "./table.js";

/** Narrower windows show the table by default. */
const NARROW_PX = 860;
const CELL_SIZES = { s: "Small cells", m: "Medium cells", l: "Large cells" };

export function FleetPage() {
  const { rows, ready, changed } = useObservable(fleet);
  const { query } = useObservable(route);
  useEffect(() => followFleet(), []);

  const filters = useMemo(() => readFilters(query, decodeSegment), [String(query)]);
  const shown = useMemo(() => filterRows(rows, filters), [rows, filters]);
  const groupedBy = query.get("group") ?? "rack";
  const look = query.get("look") ?? (innerWidth < NARROW_PX ? "table" : "grid");
  const sort = query.get("sort") ?? "name";
  const descending = query.get("desc") === "1";
  const groups = useMemo(() => {
    const unsorted = groupRows(groupedBy, shown);
    return look === "table" ? sortGroups(unsorted, sort, descending) : unsorted;
  }, [shown, groupedBy, look, sort, descending]);
  const order = useMemo(
    () => groups.flatMap((group) => group.rows.map((row) => row.uuid)),
    [groups],
  );
  useEffect(() => retainRows(new Set(order)), [order]);

  useEffect(() => {
    const onKey = (event) => {
      if (event.target.closest("input,textarea,select,dialog,.popover")) return;
      if ((event.ctrlKey || event.metaKey) && event.key === "a") {
        event.preventDefault();
        setSelection(order);
      }
      if (event.key === "Escape" && selection.value.selected.size) clearSelection();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [order]);

  const size = query.get("size") ?? defaultCellSize(shown.length);
  const onOpen = (row) => navigate(`machines/${row.label}`);
  const view = () => {
    if (!ready) return html`<${Loading} />`;
    if (rows.length === 0) return html`<${NoMachines} />`;
    if (shown.length === 0) return html`<${NoMatches} />`;
    if (look === "table")
      return html`<${FleetTable} groups=${groups} groupedBy=${groupedBy} sort=${sort} descending=${descending}
        order=${order} onOpen=${onOpen} />`;
    return html`<${Grid} groups=${groups} groupedBy=${groupedBy} size=${size} order=${order} changed=${changed} onOpen=${onOpen} />`;
  };
  return html`<div class="fleet">
    <header class="bar">
      <h1>Fleet <span class="number" data-total>${ready && totalText(shown.length, rows.length)}</span></h1>
      <div class="find"><${Icon} name="search" />
        <input type="search" placeholder="Filter: name, state, owner, r01-u[01-12]…" aria-label="Filter machines"
        value=${filters.text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} /></div>
      <span class="grow"></span>
      <${GroupingSelect} value=${groupedBy} />
      ${look === "grid" && html`<${CellSizeSwitch} size=${size} />`}
      <${LookSwitch} look=${look} />
    </header>
    ${ready && rows.length > 0 && html`<${Counters} rows=${rows} filters=${filters} />`}
    ${ready && rows.length > 0 && html`<${FilterChips} rows=${rows} filters=${filters} />`}
    ${view()}
    <${SelectionBar} />
  </div>`;
}

/**
 * @param {number} shown
 * @param {number} total
 */
function totalText(shown, total) {
  const all = total.toLocaleString("en");
  return shown === total ? all : `${shown.toLocaleString("en")} of ${all}`;
}

/** @param {{ value: string }} props */
function GroupingSelect({ value }) {
  const onChange = ({ currentTarget }) =>
    setQuery({ group: currentTarget.value === "rack" ? null : currentTarget.value });
  return html`<label class="inline"><span>Group by</span>
    <select aria-label="Group by" value=${value} onChange=${onChange}>
    ${GROUPINGS.map((id) => html`<option key=${id} value=${id}>${dimension(id)?.label}</option>`)}
      <option value="none">None</option></select></label>`;
}

/** @param {{ size: string }} props */
function CellSizeSwitch({ size }) {
  return html`<div class="switcher" role="group" aria-label="Cell size">
    ${Object.entries(CELL_SIZES).map(
      ([id, label]) => html`<button key=${id} aria-pressed=${size === id} aria-label=${label}
        onClick=${() => setQuery({ size: id })}>${id.toUpperCase()}</button>`,
    )}</div>`;
}

/** @param {{ look: string }} props */
function LookSwitch({ look }) {
  const isNarrow = innerWidth < NARROW_PX;
  return html`<div class="switcher" role="group" aria-label="View">
    <button aria-pressed=${look === "grid"} onClick=${() => setQuery({ look: isNarrow ? "grid" : null })}>
      <${Icon} name="fleet" /> Grid</button>
    <button aria-pressed=${look === "table"} onClick=${() => setQuery({ look: "table" })}>
      <${Icon} name="table" /> Table</button>
  </div>`;
}

function Loading() {
  return html`<div class="counters" role="status" aria-label="Loading"><div class="loading"></div></div>`;
}

function NoMatches() {
  return html`<div class="empty"><h2>No machine matches these filters</h2>
    <button class="button" onClick=${clearFilters}>Clear filters</button></div>`;
}

function NoMachines() {
  return html`<div class="empty"><h2>No machines yet</h2>
    <p>Enrol one: <code>ferrite node create rack1-u01 --driver redfish …</code></p>
    <p>Or try simulated ones: <code>ferrite sim --bmcs 100 --enrol ${location.origin}</code></p></div>`;
}
