// SPDX-License-Identifier: Apache-2.0
// The image of a deployment: a URL with a checksum, or one that other machines use.

import { html } from "../../vendor/preact-htm.js";
import { count } from "../sizes.js";

/**
 * @typedef {object} ImageSelection
 * @property {boolean} keep deploy what each machine's `instance_info` contains
 * @property {string} source
 * @property {string} checksum
 */

/**
 * Returns why the selection is incomplete, or null.
 * @param {ImageSelection} selection
 */
export function imageProblem({ keep, source, checksum }) {
  if (keep) return null;
  if (!source) return "Enter the URL of an image.";
  if (!/^(https?|file|oci):\/\/\S+$/.test(source))
    return "The image must be an http, https, file or oci URL.";
  if (/^https?:/.test(source) && !checksum) return "An image from a web server needs a checksum.";
  return null;
}

/**
 * The fields of `instance_info` for the image; null if each machine keeps its own.
 * @param {ImageSelection} selection
 * @returns {Record<string, string> | null}
 */
export function imageFields({ keep, source, checksum }) {
  if (keep) return null;
  return { image_source: source, ...(checksum ? { image_checksum: checksum } : {}) };
}

/**
 * @param {object} props
 * @param {import("./image.js").ImageSelection} props.value
 * @param {any[]} props.imagesInUse
 * @param {Function} props.onChange
 */
export function ImagePicker({ value, imagesInUse, onChange }) {
  // The URL of an image with a secret is shortened and cannot be used.
  const existing = imagesInUse.filter((image) => !image.is_shortened);
  const set = (changes) => onChange({ ...value, ...changes });
  const onSelect = (event) => {
    const image = existing.find(({ source }) => source === event.currentTarget.value);
    if (image) set({ source: image.source, checksum: image.checksum ?? "" });
  };
  return html`<label class="check"><input type="checkbox" checked=${value.keep}
      onChange=${(event) => set({ keep: event.currentTarget.checked })} /> Use the image in each machine's instance_info</label>
    ${
      !value.keep &&
      html`<div class="settings">
      ${
        existing.length > 0 &&
        html`<label class="field"><span>Existing image</span>
        <select onChange=${onSelect} value=${value.source}>
        <option value="">Select…</option>${existing.map(
          (image) => html`<option key=${image.source} value=${image.source}>
          ${image.source.split("/").at(-1) || image.source} (${count(image.nodes, "machine")})</option>`,
        )}</select></label>`
      }
      <label class="field"><span>Image URL</span>
        <input type="url" name="image" placeholder="https://images.example/debian-12.qcow2"
        value=${value.source} onInput=${(event) => set({ source: event.currentTarget.value.trim() })} /></label>
      <label class="field"><span>Checksum, or URL of a checksum file</span><input type="text" name="checksum" class="mono"
        placeholder="SHA-256, SHA-512 or URL" value=${value.checksum}
        onInput=${(event) => set({ checksum: event.currentTarget.value.trim() })} /></label></div>`
    }`;
}
