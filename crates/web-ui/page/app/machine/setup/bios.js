// SPDX-License-Identifier: Apache-2.0
// BIOS settings as a form that enforces the constraints of each setting.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get, nodePath } from "../../api.js";
import { FetchResult, useFetch } from "../../fetching.js";
import { Panel } from "../panel.js";
import { settingProblem } from "./bios_setting.js";
import { StepsDialog } from "./steps_dialog.js";

/** With more settings there is a search field. */
const SEARCH_FROM = 24;
const FACTORY_RESET = [{ interface: "bios", step: "factory_reset", args: {} }];

/**
 * @param {object} props
 * @param {MachineModel} props.machine
 * @param {NodeRecord} props.node
 * @param {ReturnType<typeof import("./page.js").stepFlow>} props.flow
 */
export function Bios({ machine, node, flow }) {
  const bios = useFetch(
    () => get(nodePath(node.uuid, "/bios?detail=true")),
    [node.uuid, node.provision_updated_at],
  );
  const [draft, setDraft] = useState(/** @type {Record<string, string>} */ ({}));
  const [search, setSearch] = useState("");
  const [steps, setSteps] = useState(/** @type {any[] | null} */ (null));
  /** @type {import("./bios_setting.js").BiosSetting[]} */
  const settings = bios.data?.bios ?? [];
  const changed = settings.filter(
    ({ name, value }) => draft[name] !== undefined && draft[name] !== (value ?? ""),
  );
  const problem = changed
    .map((setting) => settingProblem(setting, draft[setting.name]))
    .find(Boolean);
  const values = changed.map(({ name }) => ({ name, value: draft[name] }));
  const apply = () =>
    setSteps([{ interface: "bios", step: "apply_configuration", args: { settings: values } }]);
  const actions = html`
    ${
      settings.length > SEARCH_FROM &&
      html`<input type="search" style=${{ width: "180px" }} placeholder="Search settings"
      aria-label="Search settings" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />`
    }
    <button class="button" disabled=${!flow || !settings.length} onClick=${() => setSteps(FACTORY_RESET)}>Factory reset…</button>
    ${changed.length > 0 && html`<button class="button" onClick=${() => setDraft({})}>Discard</button>`}
    <button class="button primary" disabled=${!flow || !changed.length || !!problem}
      title=${problem} onClick=${apply}>Preview${changed.length ? ` ${changed.length}` : ""}…</button>`;
  const needle = search.trim().toLowerCase();
  const shown = settings.filter(({ name }) => name.toLowerCase().includes(needle));
  const description =
    steps === FACTORY_RESET
      ? "Resets the BIOS to factory settings."
      : `Sets ${values.map(({ name, value }) => `${name} to ${value}`).join(", ")}.`;
  return html`<${Panel} title="BIOS settings" icon="chip" actions=${actions}>
    <${FetchResult} result=${bios}>${() =>
      settings.length === 0
        ? html`<p class="quiet">No settings are known. They are read by “Manage” and “Inspect”.</p>`
        : html`<div class="settings">${shown.map(
            (setting) => html`<${Setting} key=${setting.name} setting=${setting}
        value=${draft[setting.name] ?? setting.value ?? ""} isChanged=${changed.includes(setting)}
        onChange=${(value) => setDraft({ ...draft, [setting.name]: value })} />`,
          )}</div>`}<//>
    ${
      steps &&
      html`<${StepsDialog} title="BIOS settings" description=${description} machine=${machine} node=${node} flow=${flow} steps=${steps}
        onClose=${() => setSteps(null)} onAccepted=${() => setDraft({})} />`
    }
  <//>`;
}

/**
 * @param {object} props
 * @param {import("./bios_setting.js").BiosSetting} props.setting
 * @param {string} props.value
 * @param {boolean} props.isChanged
 * @param {Function} props.onChange
 */
function Setting({ setting, value, isChanged, onChange }) {
  const { name, lower_bound: low, upper_bound: high, read_only: isReadOnly } = setting;
  const problem = isChanged && settingProblem(setting, value);
  const hasRange = low !== null && low !== undefined && high !== null;
  const note = [
    isReadOnly && "read only",
    hasRange && `${low} to ${high}`,
    isChanged && `currently ${setting.value || "empty"}`,
  ]
    .filter(Boolean)
    .join(" · ");
  return html`<label class="field setting ${isChanged ? "changed" : ""}"><span>${name}</span>
    <${SettingInput} setting=${setting} value=${value} onChange=${(event) => onChange(event.currentTarget.value)} />
    ${problem ? html`<small class="bad-text" role="alert">${problem}</small>` : note && html`<small>${note}</small>`}</label>`;
}

/**
 * @param {object} props
 * @param {import("./bios_setting.js").BiosSetting} props.setting
 * @param {string} props.value
 * @param {Function} props.onChange
 */
function SettingInput({ setting, value, onChange }) {
  const { attribute_type: type, allowable_values: allowed, read_only: disabled } = setting;
  if (type === "Enumeration" && allowed)
    return html`<select disabled=${disabled} value=${value} onChange=${onChange}>
      ${allowed.map((option) => html`<option key=${option} value=${option}>${option}</option>`)}</select>`;
  if (type === "Boolean")
    return html`<select disabled=${disabled} value=${String(value).toLowerCase()} onChange=${onChange}>
      <option value="true">on</option><option value="false">off</option></select>`;
  if (type === "Integer")
    return html`<input type="number" disabled=${disabled} min=${setting.lower_bound ?? undefined} max=${setting.upper_bound ?? undefined}
      value=${value} onInput=${onChange} />`;
  return html`<input type=${type === "Password" ? "password" : "text"} autocomplete="off" disabled=${disabled}
    maxlength=${setting.max_length ?? undefined} value=${value} onInput=${onChange} />`;
}
