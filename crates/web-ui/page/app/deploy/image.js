// SPDX-License-Identifier: Apache-2.0
// What is written to the disks: a URL and its checksum, or one that other machines already have.

import { html } from "../../vendor/preact-htm.js";
import { count } from "../sizes.js";

/** Why it will not do, or null. */
export function imageProblem({ keep, source, checksum }) {
  if (keep) return null;
  if (!source) return "Say which image.";
  if (!/^(https?|file|oci):\/\/\S+$/.test(source)) return "An image is a URL of http, https, file or oci.";
  if (/^https?:/.test(source) && !checksum) return "An image from a web server needs its checksum.";
  return null;
}

export function Image({ value, known: all, onChange }) {
  const known = all.filter((one) => !one.is_shortened);
  const set = (changes) => onChange({ ...value, ...changes });
  const choose = (event) => {
    const one = known.find(({ source }) => source === event.currentTarget.value);
    if (one) set({ source: one.source, checksum: one.checksum ?? "" });
  };
  return html`<label class="check"><input type="checkbox" checked=${value.keep}
      onChange=${(event) => set({ keep: event.currentTarget.checked })} /> What each machine's instance_info says already</label>
    ${!value.keep && html`<div class="settings">
      ${known.length > 0 && html`<label class="field"><span>One that machines have</span>
        <select onChange=${choose} value=${value.source}>
        <option value="">Another…</option>${known.map((one) => html`<option key=${one.source} value=${one.source}>
          ${one.source.split("/").at(-1) || one.source} (${count(one.nodes, "machine")})</option>`)}</select></label>`}
      <label class="field"><span>URL of the image</span>
        <input type="url" name="image" placeholder="https://images.example/debian-12.qcow2"
        value=${value.source} onInput=${(event) => set({ source: event.currentTarget.value.trim() })} /></label>
      <label class="field"><span>Checksum, or the URL of a file with it</span><input type="text" name="checksum" class="mono"
        placeholder="SHA-256, SHA-512 or URL" value=${value.checksum}
        onInput=${(event) => set({ checksum: event.currentTarget.value.trim() })} /></label></div>`}`;
}
