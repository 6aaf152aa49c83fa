// SPDX-License-Identifier: Apache-2.0
// RAID: what there is, what there should be, and the steps from one to the other.

import { html, useState } from "../../../vendor/preact-htm.js";
import { nodePath, put } from "../../api.js";
import { Icon } from "../../icons.js";
import { Panel, Table } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

const LEVELS = ["0", "1", "2", "5", "6", "1+0", "5+0", "6+0", "JBOD"];
const FRESH = { size_gb: "MAX", raid_level: "1", is_root_volume: true, controller: "", disks: "" };

export function Raid({ machine, node, flow }) {
  const there = node.raid_config.logical_disks ?? [];
  const wanted = node.target_raid_config.logical_disks ?? [];
  const [draft, setDraft] = useState(null);
  const [asked, setAsked] = useState(null);
  const rows = draft ?? wanted.map(fromWire);
  const set = (index, change) => setDraft(rows.map((row, at) => (at === index ? { ...row, ...change } : row)));
  const config = { logical_disks: rows.map(toWire) };
  const supported = node.raid_interface !== "no-raid";
  // Cleaning makes what the node says it should have; service is told.
  const isTold = flow?.target === "service";
  const create = () => setAsked(isTold
    ? [{ interface: "raid", step: "delete_configuration", args: {} },
      { interface: "raid", step: "apply_configuration", args: { raid_config: config } }]
    : [{ interface: "raid", step: "delete_configuration", args: {} }, { interface: "raid", step: "create_configuration", args: {} }]);
  const actions = html`
    <button class="button" disabled=${!supported}
      onClick=${() => setDraft([...rows, { ...FRESH, is_root_volume: rows.length === 0 }])}><${Icon} name="plus" /> Volume</button>
    <button class="button danger-text" disabled=${!flow || !supported}
      onClick=${() => setAsked([{ interface: "raid", step: "delete_configuration", args: {} }])}>Delete all volumes…</button>
    <button class="button primary" disabled=${!flow || !supported || !rows.length} onClick=${create}>Show the plan…</button>`;
  const isDeletion = asked?.length === 1;
  return html`<${Panel} title="RAID" icon="disk" actions=${actions}>
    ${!supported && html`<p class="quiet">The RAID interface of this machine is <code>no-raid</code>.</p>`}
    ${there.length > 0 && html`<${Table} label="Volumes" rows=${there}
      columns=${[["Volume", (disk) => disk.name ?? disk.volume_name ?? disk.id ?? ""], ["Level", (disk) => disk.raid_level],
      ["Size", (disk) => `${disk.size_gb} GB`], ["Controller", (disk) => disk.controller ?? ""],
      ["Root", (disk) => (disk.is_root_volume ? "yes" : "")]]} />`}
    ${supported && there.length === 0 && rows.length === 0 && html`<p class="quiet">No volumes are known, and none are wanted.</p>`}
    ${rows.map((row, index) => html`<div key=${index} class="row-form">
      <label class="field"><span>Level</span><select value=${row.raid_level}
        onChange=${(event) => set(index, { raid_level: event.currentTarget.value })}>
        ${LEVELS.map((level) => html`<option key=${level}>${level}</option>`)}</select></label>
      <label class="field"><span>Size, GB</span>
        <input type="text" value=${row.size_gb} onInput=${(event) => set(index, { size_gb: event.currentTarget.value })} /></label>
      <label class="field"><span>Drives, at least</span>
        <input type="number" min="1" value=${row.disks} onInput=${(event) => set(index, { disks: event.currentTarget.value })} />
        </label>
      <label class="field"><span>Controller</span>
        <input type="text" placeholder="any; software" value=${row.controller}
        onInput=${(event) => set(index, { controller: event.currentTarget.value })} /></label>
      <label class="check"><input type="checkbox" checked=${row.is_root_volume}
        onChange=${(event) => set(index, { is_root_volume: event.currentTarget.checked })} /> root volume</label>
      <button class="button plain square" aria-label="Remove this volume"
        onClick=${() => setDraft(rows.filter((_, at) => at !== index))}><${Icon} name="cross" /></button></div>`)}
    ${asked && html`<${StepsDialog} title="RAID"
      does=${isDeletion ? "Deletes all volumes. Data on them is lost." : "Writes down the wanted volumes, deletes those that are there, and makes the new ones. Data on them is lost."}
      machine=${machine} node=${node} flow=${flow} steps=${asked}
        first=${isDeletion || isTold ? null : () => put(nodePath(node.uuid, "/states/raid"), config)} onClose=${() => setAsked(null)}
        onDone=${() => setDraft(null)} />`}
  <//>`;
}

const fromWire = (disk) => ({ size_gb: String(disk.size_gb), raid_level: disk.raid_level, is_root_volume: !!disk.is_root_volume,
  controller: disk.controller ?? "", disks: disk.number_of_physical_disks ?? "" });

function toWire({ size_gb: size, raid_level, is_root_volume, controller, disks }) {
  return {
    size_gb: /^\d+$/.test(size) ? Number(size) : "MAX", raid_level, ...(is_root_volume && { is_root_volume }),
    ...(controller && { controller }), ...(disks && { number_of_physical_disks: Number(disks) }),
  };
}
