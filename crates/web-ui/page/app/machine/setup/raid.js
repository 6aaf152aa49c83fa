// SPDX-License-Identifier: Apache-2.0
// RAID: the current volumes, the target volumes, and the steps from one to the other.

import { html, useState } from "../../../vendor/preact-htm.js";
import { nodePath, put } from "../../api.js";
import { Icon } from "../../icons.js";
import { Panel, Table } from "../panel.js";
import { NEW_VOLUME, fromLogicalDisk, toLogicalDisk } from "./raid_volumes.js";
import { StepsDialog } from "./steps_dialog.js";

const LEVELS = ["0", "1", "2", "5", "6", "1+0", "5+0", "6+0", "JBOD"];
const DELETE_STEP = { interface: "raid", step: "delete_configuration", args: {} };

/**
 * @param {object} props
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {ReturnType<typeof import("./page.js").stepFlow>} props.flow
 */
export function Raid({ machine, node, flow }) {
  const current = node.raid_config.logical_disks ?? [];
  const target = node.target_raid_config.logical_disks ?? [];
  const [draft, setDraft] = useState(
    /** @type {import("./raid_volumes.js").VolumeForm[] | null} */ (null),
  );
  const [steps, setSteps] = useState(/** @type {any[] | null} */ (null));
  const volumes = draft ?? target.map(fromLogicalDisk);
  const set = (index, changes) =>
    setDraft(volumes.map((volume, at) => (at === index ? { ...volume, ...changes } : volume)));
  const add = () => setDraft([...volumes, { ...NEW_VOLUME, is_root_volume: volumes.length === 0 }]);
  const config = { logical_disks: volumes.map(toLogicalDisk) };
  const isSupported = node.raid_interface !== "no-raid";
  // Cleaning creates the node's target configuration; service steps get it as an argument.
  const isService = flow?.target === "service";
  const createStep = isService
    ? { interface: "raid", step: "apply_configuration", args: { raid_config: config } }
    : { interface: "raid", step: "create_configuration", args: {} };
  const storeTarget = () => put(nodePath(node.uuid, "/states/raid"), config);
  const isDeletion = steps?.length === 1;
  const actions = html`
    <button class="button" disabled=${!isSupported} onClick=${add}><${Icon} name="plus" /> Volume</button>
    <button class="button danger-text" disabled=${!flow || !isSupported} onClick=${() => setSteps([DELETE_STEP])}>Delete all volumes…</button>
    <button class="button primary" disabled=${!flow || !isSupported || !volumes.length}
      onClick=${() => setSteps([DELETE_STEP, createStep])}>Preview…</button>`;
  return html`<${Panel} title="RAID" icon="disk" actions=${actions}>
    ${!isSupported && html`<p class="quiet">The RAID interface of this machine is <code>no-raid</code>.</p>`}
    ${current.length > 0 && html`<${Table} label="Volumes" rows=${current} columns=${VOLUME_COLUMNS} />`}
    ${isSupported && current.length === 0 && volumes.length === 0 && html`<p class="quiet">No volumes.</p>`}
    ${volumes.map(
      (
        volume,
        index,
      ) => html`<${VolumeRow} key=${index} volume=${volume} onChange=${(changes) => set(index, changes)}
      onRemove=${() => setDraft(volumes.filter((_, at) => at !== index))} />`,
    )}
    ${
      steps &&
      html`<${StepsDialog} title="RAID"
      description=${isDeletion ? "Deletes all volumes with their data." : "Deletes the current volumes with their data and creates the target volumes."}
      machine=${machine} node=${node} flow=${flow} steps=${steps} prepare=${isDeletion || isService ? undefined : storeTarget}
      onClose=${() => setSteps(null)} onAccepted=${() => setDraft(null)} />`
    }
  <//>`;
}

const VOLUME_COLUMNS = [
  ["Volume", (disk) => disk.name ?? disk.volume_name ?? disk.id ?? ""],
  ["Level", (disk) => disk.raid_level],
  ["Size", (disk) => `${disk.size_gb} GB`],
  ["Controller", (disk) => disk.controller ?? ""],
  ["Root", (disk) => (disk.is_root_volume ? "yes" : "")],
];

/**
 * @param {object} props
 * @param {import("./raid_volumes.js").VolumeForm} props.volume
 * @param {Function} props.onChange
 * @param {Function} props.onRemove
 */
function VolumeRow({ volume, onChange, onRemove }) {
  const set = (name) => (event) => onChange({ [name]: event.currentTarget.value });
  return html`<div class="row-form">
      <label class="field"><span>Level</span><select value=${volume.raid_level} onChange=${set("raid_level")}>
        ${LEVELS.map((level) => html`<option key=${level} value=${level}>${level}</option>`)}</select></label>
      <label class="field"><span>Size in GB, or MAX</span><input type="text" value=${volume.size_gb} onInput=${set("size_gb")} /></label>
      <label class="field"><span>Minimum drives</span><input type="number" min="1" value=${volume.disks} onInput=${set("disks")} /></label>
      <label class="field"><span>Controller</span>
        <input type="text" placeholder="any; software" value=${volume.controller} onInput=${set("controller")} /></label>
      <label class="check"><input type="checkbox" checked=${volume.is_root_volume}
        onChange=${(event) => onChange({ is_root_volume: event.currentTarget.checked })} /> root volume</label>
      <button class="button plain square" aria-label="Remove this volume" onClick=${onRemove}><${Icon} name="cross" /></button></div>`;
}
