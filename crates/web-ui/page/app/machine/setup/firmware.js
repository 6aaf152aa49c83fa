// SPDX-License-Identifier: Apache-2.0
// Firmware: which versions there are, and updates from a URL.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get, nodePath } from "../../api.js";
import { Answer, useAnswer } from "../../loading.js";
import { Panel, Table } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

export function Firmware({ machine, node, flow }) {
  const answer = useAnswer(() => get(nodePath(node.uuid, "/firmware")), [node.uuid, node.provision_updated_at]);
  const [urls, setUrls] = useState({});
  const [asked, setAsked] = useState(null);
  const updates = Object.entries(urls).filter(([, url]) => url.trim());
  const plan = () => setAsked([{ interface: "firmware", step: "update",
    args: { settings: updates.map(([component, url]) => ({ component, url: url.trim() })) } }]);
  return html`<${Panel} title="Firmware" icon="memory" flush
    actions=${html`<button class="button primary" disabled=${!flow || !updates.length}
    onClick=${plan}>Show the plan${updates.length ? ` for ${updates.length}` : ""}…</button>`}>
    <${Answer} of=${answer}>${({ firmware }) => (firmware.length === 0 ? html`<div class="pad">
      <p class="quiet">None is known. It is read when the machine is managed.</p></div>`
      : html`<${Table} label="Firmware" rows=${firmware} keyOf=${(one) => one.component} columns=${[
        ["Component", (one) => html`<strong>${one.component}</strong>`], ["Version", (one) => one.current_version],
          ["At first", (one) => html`<span class="quiet">${one.initial_version}</span>`],
          ["Model", (one) => [one.vendor, one.model].filter(Boolean).join(" ")],
        ["Update from", (one) => html`<input type="url" aria-label="URL of an update of ${one.component}"
          placeholder="https://firmware.example/${one.component.split(":")[0]}.bin" value=${urls[one.component] ?? ""}
          onInput=${(event) => setUrls({ ...urls, [one.component]: event.currentTarget.value })} />`]]} />`)}<//>
    ${asked && html`<${StepsDialog} title="Firmware" does=${`Updates ${updates.map(([component]) => component).join(", ")}.`}
      machine=${machine} node=${node} flow=${flow} steps=${asked} onClose=${() => setAsked(null)} onDone=${() => setUrls({})} />`}
  <//>`;
}
