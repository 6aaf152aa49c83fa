// SPDX-License-Identifier: Apache-2.0
// Firmware versions, and updates from URLs.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get, nodePath } from "../../api.js";
import { FetchResult, useFetch } from "../../fetching.js";
import { Panel, Table } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

/**
 * @param {object} props
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {ReturnType<typeof import("./page.js").stepFlow>} props.flow
 */
export function Firmware({ machine, node, flow }) {
  const components = useFetch(
    () => get(nodePath(node.uuid, "/firmware")),
    [node.uuid, node.provision_updated_at],
  );
  const [urls, setUrls] = useState(/** @type {Record<string, string>} */ ({}));
  const [steps, setSteps] = useState(/** @type {any[] | null} */ (null));
  const updates = Object.entries(urls).flatMap(([component, url]) =>
    url.trim() ? [{ component, url: url.trim() }] : [],
  );
  const preview = () =>
    setSteps([{ interface: "firmware", step: "update", args: { settings: updates } }]);
  const columns = [
    ["Component", (row) => html`<strong>${row.component}</strong>`],
    ["Version", (row) => row.current_version],
    ["Initial version", (row) => html`<span class="quiet">${row.initial_version}</span>`],
    ["Model", (row) => [row.vendor, row.model].filter(Boolean).join(" ")],
    [
      "Update URL",
      (row) => html`<input type="url" aria-label="Update URL of ${row.component}"
          placeholder="https://firmware.example/${row.component.split(":")[0]}.bin" value=${urls[row.component] ?? ""}
          onInput=${(event) => setUrls({ ...urls, [row.component]: event.currentTarget.value })} />`,
    ],
  ];
  return html`<${Panel} title="Firmware" icon="memory" flush
    actions=${html`<button class="button primary" disabled=${!flow || !updates.length}
    onClick=${preview}>Preview${updates.length ? ` ${updates.length}` : ""}…</button>`}>
    <${FetchResult} result=${components}>${({ firmware }) =>
      firmware.length === 0
        ? html`<div class="pad"><p class="quiet">No components are known. They are read by “Manage”.</p></div>`
        : html`<${Table} label="Firmware" rows=${firmware} keyOf=${(row) => row.component} columns=${columns} />`}<//>
    ${
      steps &&
      html`<${StepsDialog} title="Firmware" description=${`Updates ${updates.map(({ component }) => component).join(", ")}.`}
      machine=${machine} node=${node} flow=${flow} steps=${steps} onClose=${() => setSteps(null)} onAccepted=${() => setUrls({})} />`
    }
  <//>`;
}
