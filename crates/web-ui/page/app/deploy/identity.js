// SPDX-License-Identifier: Apache-2.0
// Who the deployed systems are: host name, keys that open them, what they run first, their network. It
// goes with the deployment as a config drive, which cloud-init and its kin read.

import { html } from "../../vendor/preact-htm.js";

/** The config drive of a machine, or null if there is nothing to say, or nobody to build one. */
export function configDrive(identity, name) {
  if (!identity) return null;
  const { hostname, keys, userData, networkData } = identity;
  const drive = {};
  const host = hostname.trim().replaceAll("{name}", name);
  const meta = {};
  if (host) Object.assign(meta, { hostname: host, name: host });
  const lines = keys.split("\n").map((line) => line.trim()).filter(Boolean);
  if (lines.length) meta.public_keys = Object.fromEntries(lines.map((line, index) => [keyName(line, index), line]));
  if (Object.keys(meta).length) drive.meta_data = meta;
  if (userData.trim()) drive.user_data = userData;
  if (networkData.trim()) drive.network_data = JSON.parse(networkData);
  return Object.keys(drive).length ? drive : null;
}

/** A key is called by its comment, such as `me@laptop`. */
const keyName = (line, index) => line.split(/\s+/).slice(2).join(" ") || `key-${index + 1}`;

/** What is wrong with what was given, by field. */
function problems({ hostname, keys, networkData }) {
  const found = {};
  if (hostname && !/^[A-Za-z0-9.-]+$/.test(hostname.replaceAll("{name}",
    "x"))) found.hostname = "Letters, digits, dots and hyphens, and {name}.";
  const bad = keys.split("\n").map((line) => line.trim()).find((line) => line && !/^(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]{16,}/.test(line));
  if (bad) found.keys = /PRIVATE/.test(keys) ? "That is a private key. Keep it; give the one that ends in .pub."
    : `This is no public key: ${bad.slice(0, 40)}`;
  if (networkData.trim()) {
    try {
      const value = JSON.parse(networkData);
      if (value === null || typeof value !== "object" || Array.isArray(value)) found.networkData = "It must be an object: {…}";
    } catch (error) { found.networkData = error.message; }
  }
  return found;
}

export function Identity({ value, buildsDrives, example, onChange }) {
  if (!buildsDrives) return html`<p class="quiet">This server builds no config drives, as its boot services are switched off (<code>boot.enabled</code>): host name, keys and network come from the image alone.</p>`;
  const wrong = problems(value);
  const set = (name) => (event) => {
    const next = { ...value, [name]: event.currentTarget.value };
    onChange({ ...next, problem: Object.values(problems(next))[0] ?? null });
  };
  const host = value.hostname.replaceAll("{name}", example ?? "r01-u01");
  return html`<div class="settings wide">
      <label class="field"><span>Host name</span><input type="text" value=${value.hostname} aria-invalid=${!!wrong.hostname}
        onInput=${set("hostname")} /><small>${wrong.hostname ?? (host ? `{name} is the machine's name: ${host}` : "none is set")}
          </small></label>
      <label class="field"><span>SSH keys, one a line</span>
        <textarea rows="3" spellcheck=${false} placeholder="ssh-ed25519 AAAA… me@laptop"
        aria-invalid=${!!wrong.keys} value=${value.keys} onInput=${set("keys")}></textarea>
          ${wrong.keys && html`<small class="bad-text">${wrong.keys}</small>`}</label></div>
    <details><summary class="quiet">User data and network</summary><div class="settings wide">
      <label class="field"><span>User data: a script or cloud-config</span>
        <textarea rows="7" spellcheck=${false} placeholder=${"#cloud-config\npackages: [nginx]"}
        value=${value.userData} onInput=${set("userData")}></textarea></label>
      <label class="field"><span>Network data, as JSON</span>
        <textarea rows="7" spellcheck=${false} aria-invalid=${!!wrong.networkData}
        placeholder=${'{"links": […], "networks": […], "services": […]}'} value=${value.networkData} onInput=${set("networkData")}>
          </textarea>
        ${wrong.networkData && html`<small class="bad-text">${wrong.networkData}</small>`}</label></div></details>`;
}
