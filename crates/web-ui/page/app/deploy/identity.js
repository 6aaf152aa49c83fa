// SPDX-License-Identifier: Apache-2.0
// The form for the config drive of the deployed instances.

import { html } from "../../vendor/preact-htm.js";
import { validateIdentity } from "./config_drive.js";

/**
 * @param {object} props
 * @param {import("./config_drive.js").InstanceIdentity} props.value
 * @param {boolean} props.buildsDrives
 * @param {string | undefined} props.example
 * @param {Function} props.onChange
 */
export function IdentityForm({ value, buildsDrives, example, onChange }) {
  if (!buildsDrives)
    return html`<p class="quiet">Boot services are disabled (<code>boot.enabled</code>), so this server builds no config drives:
      host name, keys and network come from the image.</p>`;
  const errors = validateIdentity(value);
  const set = (name) => (event) => {
    const next = { ...value, [name]: event.currentTarget.value };
    onChange({ ...next, problem: Object.values(validateIdentity(next))[0] ?? null });
  };
  const hostname = value.hostname.replaceAll("{name}", example ?? "r01-u01");
  const hint = hostname ? `{name} is the machine's name: ${hostname}` : "No host name is set.";
  return html`<div class="settings wide">
      <label class="field"><span>Host name</span><input type="text" value=${value.hostname} aria-invalid=${!!errors.hostname}
        onInput=${set("hostname")} />${errors.hostname ? html`<${FieldError} text=${errors.hostname} />` : html`<small>${hint}</small>`}</label>
      <label class="field"><span>SSH keys, one per line</span>
        <textarea rows="3" spellcheck=${false} placeholder="ssh-ed25519 AAAA… me@laptop"
        aria-invalid=${!!errors.keys} value=${value.keys} onInput=${set("keys")}></textarea>
          <${FieldError} text=${errors.keys} /></label></div>
    <details><summary class="quiet">User data and network</summary><div class="settings wide">
      <label class="field"><span>User data: a script or cloud-config</span>
        <textarea rows="7" spellcheck=${false} placeholder=${"#cloud-config\npackages: [nginx]"}
        value=${value.userData} onInput=${set("userData")}></textarea></label>
      <label class="field"><span>Network data, as JSON</span>
        <textarea rows="7" spellcheck=${false} aria-invalid=${!!errors.networkData}
        placeholder=${'{"links": […], "networks": […], "services": […]}'} value=${value.networkData} onInput=${set("networkData")}>
          </textarea>
        <${FieldError} text=${errors.networkData} /></label></div></details>`;
}

/** @param {{ text: string | undefined }} props */
function FieldError({ text }) {
  return text && html`<small class="bad-text">${text}</small>`;
}
