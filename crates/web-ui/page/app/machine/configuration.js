// SPDX-License-Identifier: Apache-2.0
// The fields of the node, to view and change. Only changes are sent: secrets are masked in responses,
// and an unchanged mask leaves its secret unchanged.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, patch } from "../api.js";
import { caller, denial } from "../caller.js";
import { useFetch } from "../fetching.js";
import { Icon } from "../icons.js";
import { parseObject } from "../json_input.js";
import { useObservable } from "../observable.js";
import { showError, showMessage } from "../toasts.js";
import { changeOf, memberChanges } from "./node_patch.js";
import { KeyValueList, Panel } from "./panel.js";

const TEXT_FIELDS = [
  ["name", "Name"],
  ["description", "Description"],
  ["resource_class", "Resource class"],
  ["owner", "Owner"],
  ["lessee", "Lessee"],
  ["conductor_group", "Conductor group"],
  ["shard", "Shard"],
];
const FLAG_FIELDS = [
  ["automated_clean", "Automated cleaning"],
  ["protected", "Protected"],
  ["retired", "Retired"],
  ["disable_power_off", "Never power off"],
];
const INTERFACES = [
  "bios",
  "boot",
  "console",
  "deploy",
  "firmware",
  "inspect",
  "management",
  "network",
  "power",
  "raid",
  "rescue",
  "storage",
  "vendor",
];
const OBJECT_FIELDS = ["driver_info", "properties", "instance_info", "extra", "network_data"];

/** @param {{ machine: MachineModel, value: MachineView }} props */
export function Configuration({ machine, value: { node } }) {
  return html`<${Fields} machine=${machine} node=${node} />
    <${Interfaces} machine=${machine} node=${node} />
    <div class="objects">${OBJECT_FIELDS.map((name) => html`<${ObjectField} key=${name} machine=${machine} node=${node} name=${name} />`)}</div>
    <${Panel} title="Internal"><details><summary class="quiet">driver_internal_info</summary>
      <pre tabindex="0">${JSON.stringify(node.driver_internal_info, null, 2)}</pre></details>
      <${KeyValueList} pairs=${[
        ["UUID", html`<code>${node.uuid}</code>`],
        ["Traits", node.traits.join(", ")],
        ["Allocation", node.allocation_uuid],
        ["Chassis", node.chassis_uuid],
        ["Conductor", node.conductor],
        ["Locked by", node.reservation],
        ["Created", node.created_at],
        ["Updated", node.updated_at],
      ]} /><//>`;
}

/**
 * Sends the changes; returns whether the server accepted them, so that the input is kept if not.
 * @param {import("./model.js").Machine} machine
 * @param {NodeRecord} node
 * @param {object[]} operations
 */
async function save(machine, node, operations) {
  try {
    if (operations.length) await patch(nodePath(node.uuid), operations);
  } catch (error) {
    showError(/** @type {Error} */ (error));
    return false;
  }
  showMessage("Saved.");
  await machine.refresh().catch(showError);
  return true;
}

/** @param {NodeRecord} node */
function useDraft(node) {
  const [draft, setDraft] = useState(/** @type {Record<string, any>} */ ({}));
  return {
    valueOf: (name) => draft[name] ?? node[name] ?? "",
    set: (name, value) => setDraft({ ...draft, [name]: value }),
    changes: Object.entries(draft).filter(([name, value]) => value !== (node[name] ?? "")),
    discard: () => setDraft({}),
  };
}

/** @param {{ node: NodeRecord, changes: number, onSave: Function, onDiscard: Function }} props */
function SaveButtons({ node, changes, onSave, onDiscard }) {
  const known = useObservable(caller);
  // A lessee may change some fields; the server decides about each.
  const reason =
    denial(known, "baremetal:node:update", node) &&
    denial(known, "baremetal:node:update_instance_info", node);
  return html`${changes > 0 && html`<button class="button" onClick=${onDiscard}>Discard</button>`}
    <button class="button primary" disabled=${changes === 0 || !!reason} title=${reason ?? undefined} onClick=${onSave}>Save${changes ? ` ${changes}` : ""}</button>`;
}

/** @param {{ machine: MachineModel, node: NodeRecord }} props */
function Fields({ machine, node }) {
  const draft = useDraft(node);
  const isFlag = (name) => FLAG_FIELDS.some(([flag]) => flag === name);
  const onSave = async () => {
    const operations = draft.changes.map(([name, value]) =>
      changeOf(`/${name}`, isFlag(name) ? ({ yes: true, no: false }[value] ?? null) : value),
    );
    if (await save(machine, node, operations)) draft.discard();
  };
  const flagValue = (name) => {
    const value = draft.valueOf(name);
    return typeof value === "boolean" ? (value ? "yes" : "no") : value;
  };
  return html`<${Panel} title="Fields" actions=${html`<${SaveButtons} node=${node} changes=${draft.changes.length} onSave=${onSave} onDiscard=${draft.discard} />`}>
    <div class="settings">
      ${TEXT_FIELDS.map(
        ([name, label]) => html`<label key=${name} class="field"><span>${label}</span>
        <input type="text" value=${draft.valueOf(name)} onInput=${(event) => draft.set(name, event.currentTarget.value)} /></label>`,
      )}
      ${FLAG_FIELDS.map(
        ([name, label]) => html`<label key=${name} class="field"><span>${label}</span>
        <select value=${flagValue(name)} onChange=${(event) => draft.set(name, event.currentTarget.value)}>
        ${name === "automated_clean" && html`<option value="">server default</option>`}<option value="yes">yes</option>
          <option value="no">no</option></select></label>`,
      )}
    </div><//>`;
}

/** @param {{ machine: MachineModel, node: NodeRecord }} props */
function Interfaces({ machine, node }) {
  const draft = useDraft(node);
  const { data: driver } = useFetch(
    () => get(`/v1/drivers/${encodeURIComponent(node.driver)}`),
    [node.driver],
  );
  const options = (kind) => [
    ...new Set([
      ...(driver?.[`enabled_${kind}_interfaces`] ?? []),
      draft.valueOf(`${kind}_interface`),
    ]),
  ];
  const onSave = async () => {
    const operations = draft.changes.map(([name, value]) => changeOf(`/${name}`, value));
    if (await save(machine, node, operations)) draft.discard();
  };
  return html`<${Panel} title="Interfaces of driver ${node.driver}"
    actions=${html`<${SaveButtons} node=${node} changes=${draft.changes.length} onSave=${onSave} onDiscard=${draft.discard} />`}>
    <div class="settings">${INTERFACES.map(
      (kind) => html`<label key=${kind} class="field"><span>${kind}</span>
      <select value=${draft.valueOf(`${kind}_interface`)} onChange=${(event) => draft.set(`${kind}_interface`, event.currentTarget.value)}>
      ${options(kind).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`,
    )}</div><//>`;
}

/** @param {{ machine: MachineModel, node: NodeRecord, name: string }} props */
function ObjectField({ machine, node, name }) {
  // The node may change while the user types, so the changes are relative to what the user saw.
  const [draft, setDraft] = useState(
    /** @type {{ before: Record<string, any>, text: string } | null} */ (null),
  );
  const before = draft?.before ?? node[name];
  const original = JSON.stringify(before, null, 2);
  const text = draft?.text ?? original;
  const { value, problem } = parseObject(text);
  const isChanged = text !== original;
  const onSave = async () => {
    if (value && (await save(machine, node, memberChanges(`/${name}`, before, value))))
      setDraft(null);
  };
  return html`<${Panel} title=${name} actions=${html`
    ${isChanged && html`<button class="button" onClick=${() => setDraft(null)}>Discard</button>`}
    <button class="button primary" disabled=${!isChanged || !!problem} onClick=${onSave}>Save</button>`}>
    <textarea class="json" aria-label="${name} as JSON" spellcheck=${false}
      rows=${Math.min(18, Math.max(5, text.split("\n").length))} aria-invalid=${!!problem} value=${text}
      onInput=${(event) => setDraft({ before, text: event.currentTarget.value })}></textarea>
    ${problem && html`<p class="bad-text" role="alert"><${Icon} name="warning" /> ${problem}</p>`}<//>`;
}
