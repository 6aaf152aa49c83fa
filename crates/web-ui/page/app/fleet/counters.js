// SPDX-License-Identifier: Apache-2.0
// The state of the fleet: a bar of shares, and counts that are also filters.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { faultLabel } from "../errors.js";
import { Dot, familyOf, stateLabel } from "../states.js";
import { countValues, dimension } from "./dimensions.js";
import { filterRows } from "./filtering.js";
import { toggleFilter } from "./filters.js";

/** Counts beside those of the states: dimension, value, label. */
const COUNTERS = [
  ["doing", "working", "working"],
  ["doing", "waiting", "waiting"],
  ["power", "on", "powered on"],
  ["maintenance", "in maintenance", "in maintenance"],
];
/** Faults are shown only while there are some. */
const FAULT = "power failure";

/**
 * Counts the rows with a value, ignoring the filter of its dimension.
 * @param {FleetRow[]} rows
 * @param {Filters} filters
 * @param {string} id
 * @param {string} value
 */
const countOf = (rows, filters, id, value) =>
  filterRows(rows, filters, id).filter((row) => dimension(id)?.valueOf(row) === value).length;

/** @param {{ rows: FleetRow[], filters: Filters }} props */
export function Counters({ rows, filters }) {
  // The filter by state is ignored, so that the counts of all states stay visible.
  const states = useMemo(
    () =>
      countValues(
        /** @type {Dimension} */ (dimension("state")),
        filterRows(rows, filters, "state"),
      ),
    [rows, filters],
  );
  const counters = useMemo(
    () =>
      COUNTERS.map(([id, value, label]) => [id, value, label, countOf(rows, filters, id, value)]),
    [rows, filters],
  );
  const faulty = useMemo(() => countOf(rows, filters, "fault", FAULT), [rows, filters]);
  const isOn = (id, value) => !!filters.selected.get(id)?.has(value);
  const button = (id, value, content, extra = {}) =>
    html`<button key=${value} aria-pressed=${isOn(id, value)} onClick=${() => toggleFilter(filters, id, value)} ...${extra}>${content}</button>`;
  return html`<section class="counters" aria-label="Fleet state">
    <div class="share" aria-hidden="true">${states.map(
      ([state, number]) =>
        html`<i key=${state} class="family-${familyOf(state)}" style=${{ flexGrow: number }}></i>`,
    )}</div>
    <div class="legend">
      ${states.map(([state, number]) =>
        button(
          "state",
          state,
          html`<${Dot} state=${state} /> ${stateLabel(state)} <span class="number">${number.toLocaleString("en")}</span>`,
          { "data-state": state },
        ),
      )}
      <span class="rule"></span>
      ${
        faulty > 0 &&
        button(
          "fault",
          FAULT,
          html`${faultLabel(FAULT)} <span class="number">${faulty.toLocaleString("en")}</span>`,
          { "data-count": FAULT, class: "alarm" },
        )
      }
      ${counters.map(([id, value, label, number]) =>
        button(
          id,
          value,
          html`${label} <span class="number">${number.toLocaleString("en")}</span>`,
          { "data-count": value },
        ),
      )}
    </div>
  </section>`;
}
