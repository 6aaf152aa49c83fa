// SPDX-License-Identifier: Apache-2.0
// The tooltip of a machine in the grid.

import { html, useLayoutEffect, useRef } from "../../vendor/preact-htm.js";
import { errorCause, faultLabel } from "../errors.js";
import { State } from "../states.js";
import { ago } from "../times.js";
import { waitText } from "../wait_reasons.js";

/** @param {{ row: FleetRow, x: number, y: number }} props */
export function Tooltip({ row, x, y }) {
  const element = useRef();
  useLayoutEffect(() => {
    const { style, offsetWidth: width, offsetHeight: height } = element.current;
    style.left = `${x + 16 + width > innerWidth ? x - width - 12 : x + 16}px`;
    style.top = `${Math.min(y + 12, innerHeight - height - 8)}px`;
  }, [row, x, y]);
  const power = [
    `${row.power_state ?? "power unknown"}${row.target_power_state ? ` → ${row.target_power_state}` : ""}`,
    row.since && ago(row.since),
  ];
  return html`<div class="tooltip" ref=${element} aria-hidden="true">
    <strong>${row.label}</strong>
    <${State} state=${row.provision_state} target=${row.target_provision_state} />
    ${row.wait_reason && html`<span class="quiet">${waitText(row)}</span>`}
    <span class="quiet">${power.filter(Boolean).join(" · ")}</span>
    ${row.maintenance && html`<span class="warn-text">in maintenance${row.fault ? `: ${faultLabel(row.fault)}` : ""}</span>`}
    ${row.error && html`<span class="bad-text">${errorCause(row.error)}</span>`}
    <span class="faint">${[row.resource_class, row.owner, row.rack && `rack ${row.rack}`].filter(Boolean).join(" · ")}</span>
  </div>`;
}
