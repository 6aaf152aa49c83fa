// SPDX-License-Identifier: Apache-2.0
// The node's fields, to read and to change. Only what was changed is sent; secrets arrive masked, and a
// mask that is left alone leaves its secret alone.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, nodePath, patch } from "../api.js";
import { Icon } from "../icons.js";
import { useAnswer } from "../loading.js";
import { complain, say } from "../toasts.js";
import { Pairs, Panel } from "./panel.js";
import { parsed } from "../typed_json.js";

const TEXTS = [["name", "Name"], ["description", "Description"], ["resource_class", "Resource class"], ["owner", "Owner"],
  ["lessee", "Lessee"], ["conductor_group", "Conductor group"], ["shard", "Shard"]];
const FLAGS = [["automated_clean", "Automated cleaning"], ["protected", "Protected"], ["retired", "Retired"],
  ["disable_power_off", "Never power off"]];
const INTERFACES = ["bios", "boot", "console", "deploy", "firmware", "inspect", "management", "network", "power", "raid", "rescue",
  "storage", "vendor"];
const OBJECTS = ["driver_info", "properties", "instance_info", "extra", "network_data"];

export function Configuration({ machine, value: { node } }) {
  return html`<${Fields} machine=${machine} node=${node} />
    <${Interfaces} machine=${machine} node=${node} />
    <div class="objects">${OBJECTS.map((name) => html`<${JsonObject} key=${name} machine=${machine} node=${node} name=${name} />`)}
      </div>
    <${Panel} title="What drivers remember"><details><summary class="quiet">driver_internal_info</summary><pre tabindex="0">
      ${JSON.stringify(node.driver_internal_info, null, 2)}</pre></details>
      <${Pairs} pairs=${[["UUID", html`<code>${node.uuid}</code>`], ["Traits", node.traits.join(", ")],
        ["Allocation", node.allocation_uuid], ["Chassis", node.chassis_uuid], ["Conductor", node.conductor],
        ["Held by", node.reservation], ["Created", node.created_at], ["Updated", node.updated_at]]} /><//>`;
}

/** Sends the changes; gives whether they were taken, so that what was typed is kept if not. */
async function send(machine, node, operations) {
  try {
    if (operations.length) await patch(nodePath(node.uuid), operations);
  } catch (error) {
    complain(error);
    return false;
  }
  say("Saved.");
  await machine.refresh().catch(complain);
  return true;
}

/** A change of one field: an empty value takes it back to its default. */
const change = (path, value) => (value === "" || value === null ? { op: "remove", path } : { op: "add", path, value });

function useDraft(node) {
  const [draft, setDraft] = useState({});
  const changes = Object.entries(draft).filter(([name, value]) => value !== (node[name] ?? ""));
  return { of: (name) => draft[name] ?? node[name] ?? "", set: (name, value) => setDraft({ ...draft, [name]: value }), changes,
    forget: () => setDraft({}) };
}

function SaveButton({ changes, onSave, onForget }) {
  return html`${changes > 0 && html`<button class="button" onClick=${onForget}>Discard</button>`}
    <button class="button primary" disabled=${changes === 0} onClick=${onSave}>Save${changes ? ` ${changes}` : ""}</button>`;
}

function Fields({ machine, node }) {
  const draft = useDraft(node);
  const save = async () => {
    const isSaved = await send(machine, node, draft.changes.map(([name, value]) => change(`/${name}`,
      FLAGS.some(([flag]) => flag === name) ? { yes: true, no: false }[value] ?? null : value)));
    if (isSaved) draft.forget();
  };
  const flag = (name) => { const value = draft.of(name); return value === true ? "yes" : value === false ? "no" : value; };
  return html`<${Panel} title="Fields" actions=${html`<${SaveButton} changes=${draft.changes.length} onSave=${save}
    onForget=${draft.forget} />`}>
    <div class="settings">
      ${TEXTS.map(([name, label]) => html`<label key=${name} class="field"><span>${label}</span>
        <input type="text" value=${draft.of(name)} onInput=${(event) => draft.set(name, event.currentTarget.value)} /></label>`)}
      ${FLAGS.map(([name, label]) => html`<label key=${name} class="field"><span>${label}</span>
        <select value=${flag(name)} onChange=${(event) => draft.set(name, event.currentTarget.value)}>
        ${name === "automated_clean" && html`<option value="">as configured</option>`}<option value="yes">yes</option>
          <option value="no">no</option></select></label>`)}
    </div><//>`;
}

function Interfaces({ machine, node }) {
  const draft = useDraft(node);
  const { data: driver } = useAnswer(() => get(`/v1/drivers/${encodeURIComponent(node.driver)}`), [node.driver]);
  const choices = (kind) => [...new Set([...(driver?.[`enabled_${kind}_interfaces`] ?? []), draft.of(`${kind}_interface`)])];
  const save = async () => {
    if (await send(machine, node, draft.changes.map(([name, value]) => change(`/${name}`, value)))) draft.forget();
  };
  return html`<${Panel} title="Driver ${node.driver} and its interfaces"
    actions=${html`<${SaveButton} changes=${draft.changes.length} onSave=${save} onForget=${draft.forget} />`}>
    <div class="settings">${INTERFACES.map((kind) => html`<label key=${kind} class="field"><span>${kind}</span>
      <select value=${draft.of(`${kind}_interface`)}
      onChange=${(event) => draft.set(`${kind}_interface`, event.currentTarget.value)}>
      ${choices(kind).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>`)}</div><//>`;
}

function JsonObject({ machine, node, name }) {
  // While somebody types, the object may change: only what they changed of what they saw is theirs.
  const [draft, setDraft] = useState(null);
  const before = draft?.before ?? node[name];
  const shown = draft?.text ?? JSON.stringify(before, null, 2);
  const { value, problem } = parsed(shown);
  const isChanged = shown !== JSON.stringify(before, null, 2);
  const save = async () => { if (await send(machine, node, difference(`/${name}`, before, value))) setDraft(null); };
  return html`<${Panel} title=${name} actions=${html`${isChanged && html`<button class="button"
    onClick=${() => setDraft(null)}>Discard</button>`}
    <button class="button primary" disabled=${!isChanged || !!problem} onClick=${save}>Save</button>`}>
    <textarea class="json" aria-label="${name} as JSON" spellcheck=${false}
      rows=${Math.min(18, Math.max(5, shown.split("\n").length))} aria-invalid=${!!problem} value=${shown}
      onInput=${(event) => setDraft({ before, text: event.currentTarget.value })}></textarea>
    ${problem && html`<p class="bad-text" role="alert"><${Icon} name="warning" /> ${problem}</p>`}<//>`;
}

/** The members that differ, as operations: what is the same, and so every mask, is not sent. */
function difference(path, before, after) {
  const pointer = (key) => `${path}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  return [
    ...Object.keys(before).filter((key) => !(key in after)).map((key) => ({ op: "remove", path: pointer(key) })),
    ...Object.entries(after).filter(([key, value]) => !same(before[key],
      value)).map(([key, value]) => ({ op: "add", path: pointer(key), value })),
  ];
}
