// SPDX-License-Identifier: Apache-2.0
// A titled box, and lists and tables in it.

import { html } from "../../vendor/preact-htm.js";
import { Icon } from "../icons.js";

/**
 * `flush` content has no padding.
 * @param {{ title: string, icon?: string, actions?: any, children: any, flush?: boolean }} props
 */
export function Panel({ title, icon = "", actions = null, children, flush = false }) {
  return html`<section class="panel" aria-label=${title}>
    <header>${icon && html`<${Icon} name=${icon} />`}<h2 class="grow">${title}</h2>${actions}</header>
    ${flush ? children : html`<div class="pad">${children}</div>`}</section>`;
}

/**
 * `pairs` are `[name, value]`; those without a value are skipped.
 * @param {{ pairs: any }} props
 */
export function KeyValueList({ pairs }) {
  const shown = pairs.filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return html`<dl class="pairs">${shown.map(([name, value]) => [
    html`<dt key=${`${name} name`}>${name}</dt>`,
    html`<dd key=${name}>${value === true ? "yes" : value}</dd>`,
  ])}</dl>`;
}

/**
 * A table; a column is a title, a function that renders the cell of a row, and a class.
 * @param {object} properties
 * @param {any[][]} properties.columns
 * @param {any[]} properties.rows
 * @param {string} properties.label
 * @param {(row: any) => string} [properties.keyOf]
 */
export function Table({ columns, rows, label, keyOf }) {
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label="Table: ${label}"><table class="table"><thead><tr>
    ${columns.map(([title, , kind]) => html`<th key=${title} scope="col" class=${kind}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (row, index) => html`<tr key=${keyOf ? keyOf(row) : index}>
      ${columns.map(([title, cell, kind]) => html`<td key=${title} class=${kind}>${cell(row)}</td>`)}</tr>`,
    )}</tbody></table></div>`;
}
