// SPDX-License-Identifier: Apache-2.0
// BIOS settings as a form that knows what each may be.

import { html, useState } from "../../../vendor/preact-htm.js";
import { get, nodePath } from "../../api.js";
import { Answer, useAnswer } from "../../loading.js";
import { Panel } from "../panel.js";
import { StepsDialog } from "./steps_dialog.js";

const MANY = 24;

export function Bios({ machine, node, flow }) {
  const answer = useAnswer(() => get(nodePath(node.uuid, "/bios?detail=true")), [node.uuid, node.provision_updated_at]);
  const [draft, setDraft] = useState({});
  const [text, setText] = useState("");
  const [asked, setAsked] = useState(null);
  const settings = answer.data?.bios ?? [];
  const changed = settings.filter((setting) => draft[setting.name] !== undefined && draft[setting.name] !== (setting.value ?? ""));
  const wrong = changed.map((setting) => problem(setting, draft[setting.name])).find(Boolean);
  const apply = () => setAsked([{ interface: "bios", step: "apply_configuration",
    args: { settings: changed.map(({ name }) => ({ name, value: draft[name] })) } }]);
  const actions = html`
    ${settings.length > MANY && html`<input type="search" style=${{ width: "180px" }} placeholder="Find a setting"
      aria-label="Find a setting" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />`}
    <button class="button" disabled=${!flow || !settings.length}
      onClick=${() => setAsked([{ interface: "bios", step: "factory_reset", args: {} }])}>Factory settings…</button>
    ${changed.length > 0 && html`<button class="button" onClick=${() => setDraft({})}>Discard</button>`}
    <button class="button primary" disabled=${!flow || !changed.length || !!wrong}
      title=${wrong} onClick=${apply}>Show the plan${changed.length ? ` for ${changed.length}` : ""}…</button>`;
  const shown = settings.filter((setting) => setting.name.toLowerCase().includes(text.trim().toLowerCase()));
  return html`<${Panel} title="BIOS settings" icon="chip" actions=${actions}>
    <${Answer} of=${answer}>${() => (settings.length === 0 ? html`<p
      class="quiet">None are known. They are read when the machine is managed and inspected.</p>`
      : html`<div class="settings">${shown.map((setting) => html`<${Setting} key=${setting.name} setting=${setting}
        value=${draft[setting.name] ?? setting.value ?? ""}
        isChanged=${changed.includes(setting)} onChange=${(value) => setDraft({ ...draft, [setting.name]: value })} />`)}</div>`)}
          <//>
    ${asked && html`<${StepsDialog} title="BIOS settings"
      does=${asked[0].step === "factory_reset" ? "Resets the BIOS to factory settings." : `Sets ${changed.map(({ name }) => `${name} to ${draft[name]}`).join(", ")}.`}
      machine=${machine} node=${node} flow=${flow} steps=${asked} onClose=${() => setAsked(null)} onDone=${() => setDraft({})} />`}
  <//>`;
}

function Setting({ setting, value, isChanged, onChange }) {
  const { name, attribute_type: type, allowable_values: allowed, lower_bound: low, upper_bound: high, max_length: longest,
    read_only: fixed } = setting;
  const set = (event) => onChange(event.currentTarget.value);
  const input = type === "Enumeration" && allowed
    ? html`<select disabled=${fixed} value=${value} onChange=${set}>
      ${allowed.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select>`
    : type === "Boolean"
      ? html`<select disabled=${fixed} value=${String(value).toLowerCase()} onChange=${set}><option value="true">on</option>
        <option value="false">off</option></select>`
      : type === "Integer"
        ? html`<input type="number" disabled=${fixed} min=${low ?? undefined} max=${high ?? undefined} value=${value}
          onInput=${set} />`
        : html`<input type=${type === "Password" ? "password" : "text"} autocomplete="off" disabled=${fixed}
          maxlength=${longest ?? undefined} value=${value} onInput=${set} />`;
  const wrong = isChanged && problem(setting, value);
  const note = [fixed && "read only", low !== null && high !== null && low !== undefined && `${low} to ${high}`,
    isChanged && `now ${setting.value || "empty"}`].filter(Boolean).join(" · ");
  return html`<label class="field setting ${isChanged ? "changed" : ""}"><span>${name}</span>
    ${input}${wrong ? html`<small class="bad-text" role="alert">${wrong}</small>` : note && html`<small>${note}</small>`}</label>`;
}

/** What the BMC would say against a value; null if nothing that is known does. */
function problem({ name, attribute_type: type, lower_bound: low, upper_bound: high, min_length: shortest, max_length: longest }, value) {
  if (type === "Integer") {
    const number = Number(value);
    if (!/^-?\d+$/.test(value)) return `${name} is a whole number.`;
    if (number < (low ?? -Infinity) || number > (high ?? Infinity)) return `${name} is ${low} to ${high}.`;
  }
  if (type === "String" && (value.length < (shortest ?? 0) || value.length > (longest ?? Infinity))) {
    return `${name} has ${shortest ?? 0} to ${longest} letters.`;
  }
  return null;
}
