// SPDX-License-Identifier: Apache-2.0
// The machines of a deployment: by name, or a number of a resource class.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { filterRows } from "../fleet/filtering.js";
import { selection } from "../fleet/selection.js";
import { count } from "../sizes.js";
import { Dot, stateLabel } from "../states.js";

const MAX_SHOWN = 60;
const MAX_NAMES = 30;
const MAX_MACHINES = 500;

/**
 * @typedef {object} MachineSelection
 * @property {"names" | "class"} mode
 * @property {Set<string>} nodes UUIDs, in mode `names`
 * @property {string} find
 * @property {string} resourceClass
 * @property {string} traits
 * @property {number} count
 */

/**
 * The machines that the address names, or those selected in the fleet.
 * @param {URLSearchParams} query
 * @returns {MachineSelection}
 */
export function initialSelection(query) {
  const named = (query.get("nodes") ?? "").split(",").filter(Boolean);
  return {
    mode: query.get("class") ? "class" : "names",
    nodes: new Set(named.length ? named : selection.value.selected),
    find: "",
    resourceClass: query.get("class") ?? "",
    traits: "",
    count: 1,
  };
}

/**
 * The rows to deploy; of a class, the rows from which the server picks.
 * @param {MachineSelection} machines
 * @param {FleetRow[]} rows
 * @param {Map<string, FleetRow>} byId
 */
export function candidateRows({ mode, nodes, resourceClass }, rows, byId) {
  if (mode === "names") return [...nodes].flatMap((uuid) => byId.get(uuid) ?? []);
  return rows.filter((row) => isAvailable(row) && row.resource_class === resourceClass);
}

/** @param {FleetRow} row */
const isAvailable = (row) => row.provision_state === "available" && !row.maintenance;

/**
 * @param {object} props
 * @param {MachineSelection} props.value
 * @param {FleetRow[]} props.rows
 * @param {FleetRow[]} props.candidates
 * @param {Function} props.onChange
 */
export function MachinePicker({ value, rows, candidates, onChange }) {
  const set = (changes) => onChange({ ...value, ...changes });
  const available = useMemo(() => rows.filter(isAvailable), [rows]);
  const Picker = value.mode === "names" ? NamePicker : ClassPicker;
  return html`<div class="switcher" role="group" aria-label="How machines are selected">
      <button aria-pressed=${value.mode === "names"} onClick=${() => set({ mode: "names" })}>By name</button>
      <button aria-pressed=${value.mode === "class"} onClick=${() => set({ mode: "class" })}>By resource class</button></div>
    <${Picker} value=${value} available=${available} candidates=${candidates} set=${set} />`;
}

/**
 * @param {object} props
 * @param {MachineSelection} props.value
 * @param {FleetRow[]} props.available
 * @param {FleetRow[]} props.candidates
 * @param {any} props.set
 */
function NamePicker({ value, available, candidates, set }) {
  const matches = useMemo(
    () => filterRows(available, { text: value.find, selected: new Map() }),
    [available, value.find],
  );
  const toggle = (uuid) => {
    const nodes = new Set(value.nodes);
    if (!nodes.delete(uuid)) nodes.add(uuid);
    set({ nodes });
  };
  const addAll = () => set({ nodes: new Set([...value.nodes, ...matches.map((row) => row.uuid)]) });
  const unavailable = candidates.filter((row) => !isAvailable(row));
  return html`<div class="inline-form">
      <label class="field grow"><span>Search the ${count(available.length, "available machine")}</span>
        <input type="search" placeholder="name, owner, class, r01-u[01-12]…" value=${value.find}
          onInput=${(event) => set({ find: event.currentTarget.value })} /></label>
      <button class="button" disabled=${!matches.length} onClick=${addAll}>Add all ${matches.length.toLocaleString("en")}</button>
      <button class="button plain" disabled=${!value.nodes.size} onClick=${() => set({ nodes: new Set() })}>Clear</button></div>
    ${available.length === 0 && html`<p class="quiet">No machine is available. “Provide” makes manageable machines available.</p>`}
    <div class="pick-list" role="group" aria-label="Available machines">
      ${matches.slice(0, MAX_SHOWN).map(
        (row) => html`<button key=${row.uuid} class="chip ${value.nodes.has(row.uuid) ? "on" : ""}"
        aria-pressed=${value.nodes.has(row.uuid)} onClick=${() => toggle(row.uuid)}>
      <${Dot} state=${row.provision_state} /> ${row.label} ${row.resource_class && html`<span class="faint">${row.resource_class}</span>`}</button>`,
      )}
      ${matches.length > MAX_SHOWN && html`<span class="quiet">and ${(matches.length - MAX_SHOWN).toLocaleString("en")} more: narrow the search</span>`}</div>
    <p role="status" data-candidates=${candidates.length}>${
      candidates.length
        ? html`<strong>${count(candidates.length, "machine")}</strong>: <span class="quiet">${nameList(candidates)}</span>`
        : html`<span class="quiet">No machine selected.</span>`
    }</p>
    ${
      unavailable.length > 0 &&
      html`<p class="warn-text">Not available: ${unavailable
        .slice(0, 5)
        .map(
          (row) =>
            `${row.label} (${row.maintenance ? "maintenance" : stateLabel(row.provision_state)})`,
        )
        .join(", ")}.</p>`
    }`;
}

/** @param {FleetRow[]} rows */
function nameList(rows) {
  const names = rows.slice(0, MAX_NAMES).map((row) => row.label);
  const more = rows.length - names.length;
  return `${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/**
 * @param {object} props
 * @param {MachineSelection} props.value
 * @param {FleetRow[]} props.available
 * @param {FleetRow[]} props.candidates
 * @param {any} props.set
 */
function ClassPicker({ value, available, candidates, set }) {
  const classes = useMemo(() => {
    const counts = new Map();
    for (const { resource_class: name } of available)
      if (name) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  }, [available]);
  const onCount = (event) => {
    const number = Math.floor(Number(event.currentTarget.value)) || 0;
    set({ count: Math.max(0, Math.min(MAX_MACHINES, number)) });
  };
  return html`<div class="inline-form">
      <label class="field"><span>Resource class</span><select value=${value.resourceClass}
        onChange=${(event) => set({ resourceClass: event.currentTarget.value })}><option value="">Select…</option>
        ${classes.map(([name, number]) => html`<option key=${name} value=${name}>${name} (${number} available)</option>`)}</select></label>
      <label class="field"><span>Number of machines</span>
        <input type="number" min="1" max=${MAX_MACHINES} value=${value.count} onInput=${onCount} /></label>
      <label class="field grow"><span>Required traits</span>
        <input type="text" class="mono" placeholder="CUSTOM_GPU CUSTOM_NVME"
        value=${value.traits} onInput=${(event) => set({ traits: event.currentTarget.value })} /></label></div>
    <p class="quiet">The server picks the machines when you confirm, with one allocation for each.</p>
    ${
      value.resourceClass &&
      value.count > candidates.length &&
      html`<p class="warn-text" role="alert">
      Only ${count(candidates.length, "machine")} of this class ${candidates.length === 1 ? "is" : "are"} available.</p>`
    }`;
}
