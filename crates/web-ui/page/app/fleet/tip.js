// SPDX-License-Identifier: Apache-2.0
// What is shown beside the pointer over a machine.

import { html, useLayoutEffect, useRef } from "../../vendor/preact-htm.js";
import { State } from "../states.js";
import { ago, countdown } from "../times.js";
import { waitWords } from "../waits.js";

export function Tip({ row, x, y }) {
  const element = useRef();
  useLayoutEffect(() => {
    const { style, offsetWidth: width, offsetHeight: height } = element.current;
    style.left = `${x + 16 + width > innerWidth ? x - width - 12 : x + 16}px`;
    style.top = `${Math.min(y + 12, innerHeight - height - 8)}px`;
  }, [row, x, y]);
  return html`<div class="tip" ref=${element} aria-hidden="true">
    <strong>${row.label}</strong>
    <${State} state=${row.provision_state} target=${row.target_provision_state} />
    ${row.why && html`<span class="quiet">${waitWords(row.why)[0]}${row.until ? html` · <span class="number">
      ${countdown(row.until)}</span>` : ""}</span>`}
    <span class="quiet">${row.power_state ?? "power unknown"}${row.target_power_state ? ` → ${row.target_power_state}` : ""}${row.since ? ` · ${ago(row.since)}` : ""}</span>
    ${row.maintenance && html`<span class="warn-text">in maintenance${row.fault ? `: ${row.fault}` : ""}</span>`}
    ${row.error && html`<span class="bad-text">${row.error}</span>`}
    <span class="faint">${[row.resource_class, row.owner, row.rack && `rack ${row.rack}`].filter(Boolean).join(" · ")}</span>
  </div>`;
}
