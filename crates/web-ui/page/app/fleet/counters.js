// SPDX-License-Identifier: Apache-2.0
// How the fleet stands: a bar of shares, and counts that are filters at the same time.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { Dot, familyOf, stateOrder } from "../states.js";
import { dimension, tally } from "./dimensions.js";
import { compare } from "./model.js";
import { filtered, toggle } from "./filters.js";

const MORE = [["doing", "working"], ["doing", "waiting"], ["power", "on"], ["maintenance", "in maintenance"]];

export function Counters({ rows, filters }) {
  // The counts of states leave the filter by state aside, so that all of them stay in sight.
  const states = useMemo(() => {
    const counts = tally(dimension("state"), filtered(rows, filters, "state"));
    return counts.sort(([a], [b]) => compare(stateOrder(a), stateOrder(b)));
  }, [rows, filters]);
  const more = useMemo(() => MORE.map(([id, value]) => {
    const { of } = dimension(id);
    return [id, value, filtered(rows, filters, id).reduce((sum, row) => sum + (of(row) === value), 0)];
  }), [rows, filters]);
  const isOn = (id, value) => !!filters.chosen.get(id)?.has(value);
  return html`<section class="counters" aria-label="How the fleet stands">
    <div class="share" aria-hidden="true">${states.map(([state, number]) => html`<i key=${state} class="family-${familyOf(state)}"
      style=${{ flexGrow: number }}></i>`)}</div>
    <div class="legend">
      ${states.map(([state, number]) => html`<button key=${state} data-state=${state} aria-pressed=${isOn("state", state)}
        onClick=${() => toggle(filters, "state", state)}>
        <${Dot} state=${state} /> ${state} <span class="number">${number.toLocaleString("en")}</span></button>`)}
      <span class="rule"></span>
      ${more.map(([id, value, number]) => html`<button key=${value} data-count=${value} aria-pressed=${isOn(id, value)}
        onClick=${() => toggle(filters, id, value)}>
        ${id === "power" ? "powered on" : value} <span class="number">${number.toLocaleString("en")}</span></button>`)}
    </div>
  </section>`;
}
