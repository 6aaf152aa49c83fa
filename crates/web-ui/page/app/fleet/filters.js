// SPDX-License-Identifier: Apache-2.0
// The chips that show and change the filters, which are part of the address.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { Popover } from "../popover.js";
import { setQuery } from "../route.js";
import { Dot } from "../states.js";
import { DIMENSIONS, countValues, dimension, labelOf } from "./dimensions.js";
import { filterRows } from "./filtering.js";

/**
 * Adds a value to the filter of a dimension, or removes it.
 * @param {Filters} filters
 * @param {string} id
 * @param {string} value
 */
export function toggleFilter({ selected }, id, value) {
  const values = new Set(selected.get(id));
  if (!values.delete(value)) values.add(value);
  setQuery({ [id]: [...values].map(encodeURIComponent).join(",") });
}

export function clearFilters() {
  setQuery({ q: null, ...Object.fromEntries(DIMENSIONS.map(({ id }) => [id, null])) });
}

/**
 * The chips of the active filters, and the button that adds another.
 * @param {{ rows: FleetRow[], filters: Filters }} props
 */
export function FilterChips({ rows, filters }) {
  const { selected } = filters;
  const unused = DIMENSIONS.filter(({ id }) => !selected.has(id));
  return html`<div class="chips" role="group" aria-label="Filters">
    ${[...selected.keys()].map((id) => html`<${FilterChip} key=${id} one=${dimension(id)} rows=${rows} filters=${filters} />`)}
    <${Popover} class="chip ghost" label="Add filter" content=${html`<${Icon} name="plus" /> Filter`}>
      ${(close) => html`<${DimensionMenu} dimensions=${unused} rows=${rows} filters=${filters} close=${close} />`}
    <//>
    ${(selected.size > 0 || filters.text) && html`<button class="chip ghost" onClick=${clearFilters}>Clear</button>`}
  </div>`;
}

/** @param {{ one: Dimension, rows: FleetRow[], filters: Filters }} props */
function FilterChip({ one, rows, filters }) {
  const labels = [...(filters.selected.get(one.id) ?? [])].map((value) => labelOf(one, value));
  const text = labels.length > 2 ? `${labels.length} selected` : labels.join(", ");
  return html`<span class="chip on">
    <${Popover} class="chip-text" label="Filter by ${one.label}: ${text}"
      content=${html`<span class="quiet">${one.label}</span> ${text}`}>
      ${() => html`<${ValueMenu} one=${one} rows=${rows} filters=${filters} />`}
    <//>
    <button class="cross" aria-label="Remove the filter by ${one.label}" onClick=${() => setQuery({ [one.id]: null })}>
      <${Icon} name="cross" /></button>
  </span>`;
}

/**
 * @param {object} props
 * @param {Dimension[]} props.dimensions
 * @param {FleetRow[]} props.rows
 * @param {Filters} props.filters
 * @param {() => void} props.close
 */
function DimensionMenu({ dimensions, rows, filters, close }) {
  return dimensions.map((one) => {
    const counts = countValues(one, rows);
    if (counts.length < 2) return null;
    return html`<details class="dimension" key=${one.id}>
      <summary class="item">${one.label}<span class="number">${counts.length}</span></summary>
      <${ValueMenu} one=${one} rows=${rows} filters=${filters} onSelect=${close} /></details>`;
  });
}

/** @param {{ one: Dimension, rows: FleetRow[], filters: Filters, onSelect?: Function }} props */
function ValueMenu({ one, rows, filters, onSelect = () => {} }) {
  // Counts what the other filters let through, which is what a selection would show.
  const counts = useMemo(
    () => countValues(one, filterRows(rows, filters, one.id)),
    [one, rows, filters],
  );
  const selected = filters.selected.get(one.id);
  return counts.map(
    ([value, number]) => html`<button key=${value} class="item" role="menuitemcheckbox"
      aria-checked=${!!selected?.has(value)}
      onClick=${() => {
        toggleFilter(filters, one.id, value);
        onSelect();
      }}>
    <span class="tick">${selected?.has(value) && html`<${Icon} name="check" />`}</span>
    ${one.isState && html`<${Dot} state=${value} />`}<span class="cut">${labelOf(one, value)}</span>
    <span class="number">${number.toLocaleString("en")}</span>
  </button>`,
  );
}
