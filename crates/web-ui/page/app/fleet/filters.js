// SPDX-License-Identifier: Apache-2.0
// Which machines are shown: filters from the address, and the chips that change them.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";
import { Popover } from "../popover.js";
import { decoded, setQuery } from "../route.js";
import { Dot } from "../states.js";
import { DIMENSIONS, dimension, nameOf, tally } from "./dimensions.js";

/** The filters in the address: `{text, chosen: Map of dimension → Set of values}`. */
export function readFilters(query) {
  const chosen = new Map();
  for (const one of DIMENSIONS) {
    const values = query.get(one.id);
    if (values) chosen.set(one.id, new Set(values.split(",").map(decoded)));
  }
  return { text: query.get("q") ?? "", chosen };
}

/** The rows that pass. */
export function filtered(rows, { text, chosen }, except) {
  const wanted = [...chosen].filter(([id]) => id !== except).map(([id, values]) => [dimension(id).of, values]);
  const fits = matcher(text);
  if (!wanted.length && !fits) return rows;
  return rows.filter((row) => wanted.every(([of, values]) => values.has(of(row))) && (!fits || fits(row)));
}

/** Machines by text: every word must occur; `r01-u[01-12]` is a range of names. */
function matcher(text) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const tests = words.map((word) => range(word) ?? ((row) => row.sought.includes(word)));
  return (row) => tests.every((test) => test(row));
}

function range(word) {
  const found = /^(.*)\[(\d+)-(\d+)\](.*)$/.exec(word);
  if (!found) return null;
  const [, before, first, last, after] = found;
  return (row) => {
    const name = row.label.toLowerCase();
    if (!name.startsWith(before) || !name.endsWith(after)) return false;
    const middle = name.slice(before.length, name.length - after.length);
    return /^\d+$/.test(middle) && Number(middle) >= Number(first) && Number(middle) <= Number(last);
  };
}

/** Adds a value to a dimension's filter, or takes it out. */
export function toggle({ chosen }, id, value) {
  const values = new Set(chosen.get(id));
  if (!values.delete(value)) values.add(value);
  setQuery({ [id]: [...values].map(encodeURIComponent).join(",") });
}

/** The chips of the filters in force, and the one that adds another. */
export function FilterChips({ rows, filters }) {
  const { chosen } = filters;
  const unused = DIMENSIONS.filter((one) => !chosen.has(one.id));
  return html`<div class="chips" role="group" aria-label="Filters">
    ${[...chosen.keys()].map((id) => html`<${Chip} key=${id} one=${dimension(id)} rows=${rows} filters=${filters} />`)}
    <${Popover} class="chip ghost" label="Add a filter" content=${html`<${Icon} name="plus" /> Filter`}>
      ${(close) => html`<${Dimensions} dimensions=${unused} rows=${rows} filters=${filters} close=${close} />`}
    <//>
    ${(chosen.size > 0 || filters.text) && html`<button class="chip ghost" onClick=${clearAll}>Clear</button>`}
  </div>`;
}

export function clearAll() {
  setQuery({ q: null, ...Object.fromEntries(DIMENSIONS.map((one) => [one.id, null])) });
}

function Chip({ one, rows, filters }) {
  const values = [...filters.chosen.get(one.id)];
  const shown = values.map((value) => nameOf(one, value));
  const text = shown.length > 2 ? `${shown.length} chosen` : shown.join(", ");
  return html`<span class="chip on">
    <${Popover} class="chip-text" label="Filter by ${one.label}: ${text}"
      content=${html`<span class="quiet">${one.label}</span> ${text}`}>
      ${() => html`<${Values} one=${one} rows=${rows} filters=${filters} />`}
    <//>
    <button class="cross" aria-label="Remove the filter by ${one.label}" onClick=${() => setQuery({ [one.id]: null })}>
      <${Icon} name="cross" /></button>
  </span>`;
}

function Dimensions({ dimensions, rows, filters, close }) {
  return dimensions.map((one) => {
    const counts = tally(one, rows);
    if (counts.length < 2) return null;
    return html`<details class="dimension" key=${one.id}><summary class="item">${one.label}<span class="number">${counts.length}
      </span></summary>
      <${Values} one=${one} rows=${rows} filters=${filters} onChoice=${close} /></details>`;
  });
}

function Values({ one, rows, filters, onChoice }) {
  // Counts are of what the other filters leave, so that a choice says what it would show.
  const counts = useMemo(() => tally(one, filtered(rows, filters, one.id)), [one, rows, filters]);
  const chosen = filters.chosen.get(one.id);
  return counts.map(([value, number]) => html`<button key=${value} class="item" role="menuitemcheckbox"
    aria-checked=${!!chosen?.has(value)}
      onClick=${() => { toggle(filters, one.id, value); onChoice?.(); }}>
    <span class="tick">${chosen?.has(value) && html`<${Icon} name="check" />`}</span>
    ${one.dot && html`<${Dot} state=${value} />`}<span class="cut">${nameOf(one, value)}</span><span class="number">
      ${number.toLocaleString("en")}</span>
  </button>`);
}
