// SPDX-License-Identifier: Apache-2.0
// The inputs that some actions need: an image, a password, a reason.

import { html } from "../../vendor/preact-htm.js";

/**
 * Whether all required inputs of an action are there.
 * @param {ActionDefinition} action
 * @param {ActionInput} input
 */
export function isFormComplete(action, input) {
  return action.form !== "rescue" || !!input.body?.rescue_password;
}

/** @param {{ action: ActionDefinition, input: ActionInput, onChange: Function }} props */
export function ActionForm({ action, input, onChange }) {
  if (action.form === "deploy") return html`<${DeployForm} input=${input} onChange=${onChange} />`;
  if (action.form === "rescue") {
    return html`<label class="field"><span>Password for the rescue system</span>
      <input type="password" autocomplete="new-password"
        onInput=${(event) => onChange({ body: { rescue_password: event.currentTarget.value } })} /></label>`;
  }
  if (action.form === "maintenance") {
    return html`<label class="field"><span>Reason</span>
      <input type="text" placeholder="broken fan, ticket 1234"
        onInput=${(event) => onChange({ body: { reason: event.currentTarget.value } })} /></label>`;
  }
  return null;
}

/** @param {{ input: ActionInput, onChange: Function }} props */
function DeployForm({ input, onChange }) {
  const info = input.instance_info ?? {};
  const set = (name) => (event) => {
    const next = { ...info, [name]: event.currentTarget.value.trim() };
    if (!next[name]) delete next[name];
    onChange({ ...input, instance_info: Object.keys(next).length ? next : null });
  };
  return html`<fieldset class="form">
    <legend>Image <small class="faint">leave empty to use the instance_info of each machine</small></legend>
    <label class="field"><span>Image URL</span>
      <input type="url" placeholder="https://images.example/debian-12.qcow2" onInput=${set("image_source")} /></label>
    <label class="field"><span>Checksum, or URL of a checksum file</span>
      <input type="text" class="mono" placeholder="SHA-256, SHA-512 or URL" onInput=${set("image_checksum")} /></label>
  </fieldset>`;
}
