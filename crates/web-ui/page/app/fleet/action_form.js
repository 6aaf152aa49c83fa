// SPDX-License-Identifier: Apache-2.0
// What some actions want to know before they begin: an image, a password, a reason.

import { html } from "../../vendor/preact-htm.js";

/** Whether everything an action needs has been given. */
export function formIsComplete(action, given) {
  return action.form !== "rescue" || !!given.body?.rescue_password;
}

/** `given` is `{body, instance_info}`: what goes with the request, and what the node is given before. */
export function ActionForm({ action, given, onChange }) {
  if (action.form === "deploy") return html`<${DeployForm} given=${given} onChange=${onChange} />`;
  if (action.form === "rescue") {
    return html`<label class="field"><span>Password for the rescue system</span>
      <input type="password" autocomplete="new-password"
        onInput=${(event) => onChange({ body: { rescue_password: event.currentTarget.value } })} /></label>`;
  }
  if (action.form === "maintenance") {
    return html`<label class="field"><span>Reason</span>
      <input type="text" placeholder="why, for those who find it later"
        onInput=${(event) => onChange({ body: { reason: event.currentTarget.value } })} /></label>`;
  }
  return null;
}

function DeployForm({ given, onChange }) {
  const info = given.instance_info ?? {};
  const set = (name) => (event) => {
    const next = { ...info, [name]: event.currentTarget.value.trim() };
    if (!next[name]) delete next[name];
    onChange({ ...given, instance_info: Object.keys(next).length ? next : null });
  };
  return html`<fieldset class="form"><legend>Image <small
    class="faint">leave empty to deploy what each machine's instance_info says</small></legend>
    <label class="field"><span>URL of the image</span>
      <input type="url" placeholder="https://images.example/debian-12.qcow2" onInput=${set("image_source")} /></label>
    <label class="field"><span>Checksum, or the URL of a file with it</span>
      <input type="text" class="mono" placeholder="SHA-256, SHA-512 or URL" onInput=${set("image_checksum")} /></label>
  </fieldset>`;
}
