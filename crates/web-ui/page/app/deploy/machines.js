// SPDX-License-Identifier: Apache-2.0
// Which machines: by name, or any so many of a class.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { filtered } from "../fleet/filters.js";
import { selection } from "../fleet/selection.js";
import { count } from "../sizes.js";
import { Dot } from "../states.js";

const SHOWN = 60;

/** What is chosen at first: what the address names, or what is selected in the fleet. */
export function firstChoice(query) {
  const named = (query.get("nodes") ?? "").split(",").filter(Boolean);
  return { way: query.get("class") ? "class" : "names", nodes: new Set(named.length ? named : selection.value.chosen), find: "",
    resourceClass: query.get("class") ?? "", traits: "", count: 1 };
}

/** The rows that would be deployed, or, of a class, those of which some would be. */
export function chosenMachines({ way, nodes, resourceClass }, rows, byId) {
  if (way === "names") return [...nodes].map((uuid) => byId.get(uuid)).filter(Boolean);
  return rows.filter((row) => isFree(row) && row.resource_class === resourceClass);
}

export const isFree = (row) => row.provision_state === "available" && !row.maintenance;

export function Machines({ value, rows, picked, onChange }) {
  const set = (changes) => onChange({ ...value, ...changes });
  const free = useMemo(() => rows.filter(isFree), [rows]);
  return html`<div class="switcher" role="group" aria-label="How machines are chosen">
      <button aria-pressed=${value.way === "names"} onClick=${() => set({ way: "names" })}>These machines</button>
      <button aria-pressed=${value.way === "class"} onClick=${() => set({ way: "class" })}>Any of a class</button></div>
    ${value.way === "names" ? html`<${ByName} value=${value} free=${free} picked=${picked} set=${set} />`
      : html`<${ByClass} value=${value} free=${free} picked=${picked} set=${set} />`}`;
}

function ByName({ value, free, picked, set }) {
  const found = useMemo(() => filtered(free, { text: value.find, chosen: new Map() }), [free, value.find]);
  const toggle = (uuid) => {
    const nodes = new Set(value.nodes);
    if (!nodes.delete(uuid)) nodes.add(uuid);
    set({ nodes });
  };
  const busy = picked.filter((row) => !isFree(row));
  return html`<div class="inline-form">
      <label class="field grow"><span>Find among the ${count(free.length, "available machine")}</span>
        <input type="search" placeholder="name, owner, class, r01-u[01-12]…" value=${value.find}
          onInput=${(event) => set({ find: event.currentTarget.value })} /></label>
      <button class="button" disabled=${!found.length} onClick=${() => set({ nodes: new Set([...value.nodes,
        ...found.map((row) => row.uuid)]) })}>Add all ${found.length.toLocaleString("en")}</button>
      <button class="button plain" disabled=${!value.nodes.size} onClick=${() => set({ nodes: new Set() })}>None</button></div>
    ${free.length === 0 && html`<p class="quiet">No machine is available. “Provide” makes managed machines available.</p>`}
    <div class="pick-list" role="group" aria-label="Available machines">
      ${found.slice(0, SHOWN).map((row) => html`<button key=${row.uuid}
      class="chip ${value.nodes.has(row.uuid) ? "on" : ""}" aria-pressed=${value.nodes.has(row.uuid)}
        onClick=${() => toggle(row.uuid)}>
      <${Dot} state=${row.provision_state} /> ${row.label} ${row.resource_class && html`<span class="faint">${row.resource_class}
        </span>`}</button>`)}
      ${found.length > SHOWN && html`<span class="quiet">and ${(found.length - SHOWN).toLocaleString("en")} more: narrow the search</span>`}</div>
    <p role="status" data-chosen=${picked.length}>${picked.length ? html`<strong>${count(picked.length, "machine")}</strong>: <span
      class="quiet">${picked.slice(0, 30).map((row) => row.label).join(", ")}${picked.length > 30 ? ` and ${picked.length - 30} more` : ""}</span>`
      : html`<span class="quiet">None chosen yet.</span>`}</p>
    ${busy.length > 0 && html`<p class="warn-text">
      ${busy.map((row) => `${row.label} is ${row.maintenance ? "in maintenance" : row.provision_state}`).slice(0,
      5).join(", ")}: the plan says what comes of it.</p>`}`;
}

function ByClass({ value, free, picked, set }) {
  const classes = useMemo(() => {
    const counts = new Map();
    for (const { resource_class: name } of free) if (name) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort(([one], [other]) => (one < other ? -1 : 1));
  }, [free]);
  return html`<div class="inline-form">
      <label class="field"><span>Resource class</span><select value=${value.resourceClass}
        onChange=${(event) => set({ resourceClass: event.currentTarget.value })}><option value="">Choose…</option>
        ${classes.map(([name, number]) => html`<option key=${name} value=${name}>${name} (${number} available)</option>`)}</select>
          </label>
      <label class="field"><span>How many</span><input type="number" min="1" max="500" value=${value.count}
        onInput=${(event) => set({ count: Math.max(0, Math.min(500, Math.floor(Number(event.currentTarget.value)) || 0)) })} />
          </label>
      <label class="field grow"><span>Traits they must have</span>
        <input type="text" class="mono" placeholder="CUSTOM_GPU CUSTOM_NVME"
        value=${value.traits} onInput=${(event) => set({ traits: event.currentTarget.value })} /></label></div>
    <p class="quiet">The server picks them when you confirm, by an allocation for each; nobody else gets them meanwhile.</p>
    ${value.resourceClass && value.count > picked.length && html`<p class="warn-text" role="alert">
      Only ${count(picked.length, "machine")} of this class ${picked.length === 1 ? "is" : "are"} available.</p>`}`;
}
