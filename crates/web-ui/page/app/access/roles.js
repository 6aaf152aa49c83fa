// SPDX-License-Identifier: Apache-2.0
// The editor of role assignments: a role and its scope per row.

import { html } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { ROLES, SYSTEM } from "./model.js";

/** @returns {Promise<string[]>} */
export const loadProjectNames = async () =>
  (await get("/v1/ferrite/projects")).projects.map(({ name }) => name);

/**
 * Roles and scopes that are assigned already are options, too, also if they are unknown.
 * @param {string[]} known
 * @param {string} current
 */
const withCurrent = (known, current) => (known.includes(current) ? known : [current, ...known]);

/**
 * @param {object} props
 * @param {{ role: string, scope: string }[]} props.value
 * @param {string[]} props.projects
 * @param {(value: { role: string, scope: string }[]) => void} props.onChange
 */
export function RoleEditor({ value, projects, onChange }) {
  const change = (index, fields) =>
    onChange(value.map((row, other) => (other === index ? { ...row, ...fields } : row)));
  const select = (
    label,
    current,
    options,
    onSelect,
  ) => html`<select aria-label=${label} value=${current}
    onChange=${(event) => onSelect(event.currentTarget.value)}>
    ${withCurrent(options, current).map((option) => html`<option key=${option} value=${option} selected=${option === current}>${option}</option>`)}</select>`;
  return html`<fieldset class="role-editor"><legend>Roles</legend>
    ${value.map(
      (row, index) => html`<div key=${index} class="role-row">
      ${select(`Role ${index + 1}`, row.role, ROLES, (role) => change(index, { role }))}
      <span class="quiet">in</span>
      ${select(`Scope of role ${index + 1}`, row.scope, [SYSTEM, ...projects], (scope) => change(index, { scope }))}
      <button class="button plain square" type="button" aria-label="Remove role ${index + 1}"
        onClick=${() => onChange(value.filter((_, other) => other !== index))}><${Icon} name="cross" /></button></div>`,
    )}
    ${value.length === 0 && html`<p class="faint">No roles: the user can only see the own account.</p>`}
    <div><button class="button" type="button" onClick=${() => onChange([...value, { role: "member", scope: projects[0] ?? SYSTEM }])}>
      <${Icon} name="plus" /> Add role</button></div></fieldset>`;
}
