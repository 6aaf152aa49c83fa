// SPDX-License-Identifier: Apache-2.0
// The images page: images on machines, and images in the server's cache.

import { html } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { FetchResult, useFetch } from "../fetching.js";
import { Panel, Table } from "../machine/panel.js";
import { PageFrame, RefreshButton } from "../page_parts.js";
import { href } from "../route.js";
import { bytes, count } from "../sizes.js";
import { ago, date } from "../times.js";

export function ImagesPage() {
  const images = useFetch(() => get("/v1/ferrite/images"), []);
  return html`<${PageFrame} title="Images" note=${images.data ? images.data.count.toLocaleString("en") : ""}
    tools=${html`<${RefreshButton} onClick=${images.reload} />`}>
    <${FetchResult} result=${images}>${({ in_use: used, count: total, cache }) => html`
      <${ImagesInUse} images=${used} total=${total} /><${ImageCache} cache=${cache} />`}<//><//>`;
}

/** @param {{ images: any, total: number }} props */
function ImagesInUse({ images, total }) {
  const body = images.length
    ? html`<${Table} label="Images on machines" rows=${images} keyOf=${(image) => image.source} columns=${IN_USE_COLUMNS} />`
    : html`<div class="empty"><p>No machine has an image. <a href=${href("deploy")}>Deploy one</a>.</p></div>`;
  return html`<${Panel} title="On machines" icon="disk" flush>${body}
    ${total > images.length && html`<p class="pad quiet">and ${total - images.length} more</p>`}<//>`;
}

const IN_USE_COLUMNS = [
  [
    "Image",
    (image) => html`<strong>${image.source.split("/").at(-1) || image.source}</strong><br />
      <span class="quiet">${image.source}${image.is_shortened ? " (secret part hidden)" : ""}</span>`,
  ],
  ["Machines", (image) => image.nodes.toLocaleString("en"), "right number"],
  ["Active", (image) => image.active.toLocaleString("en"), "right number"],
  [
    "Examples",
    (image) =>
      image.node_names.map(
        (name, index) =>
          html`${index > 0 && ", "}<a key=${name} href=${href(`machines/${name}`)}>${name}</a>`,
      ),
  ],
  [
    "Checksum",
    (image) =>
      image.checksum
        ? html`<code title=${image.checksum}>${shortChecksum(image.checksum)}</code>`
        : html`<span class="faint">none</span>`,
  ],
  [
    "Actions",
    (image) =>
      image.is_shortened
        ? ""
        : html`<a class="button plain" aria-label="Deploy ${image.source}" href=${href("deploy", { image: image.source })}>Deploy…</a>`,
    "right nowrap",
  ],
];

/** @param {{ cache: any }} props */
function ImageCache({ cache }) {
  if (!cache)
    return html`<${Panel} title="Server cache" icon="down">
    <p class="quiet">Boot services are disabled, so the server caches no images.</p><//>`;
  const share = Math.min(1, cache.used / cache.limit);
  return html`<${Panel} title="Server cache" icon="down" flush>
    <div class="pad"><div class="progress" aria-hidden="true"><i class=${share > 0.9 ? "bad" : ""} style=${{ flexGrow: share }}></i>
      <i class="remaining" style=${{ flexGrow: 1 - share }}></i></div>
      <p class="quiet number">${bytes(cache.used)} of ${bytes(cache.limit)} used by ${count(
        cache.images.length,
        "image",
      )}. The least recently used image is removed first.</p></div>
    ${cache.images.length > 0 && html`<${Table} label="Cached images" rows=${cache.images} keyOf=${(image) => image.sha256} columns=${CACHE_COLUMNS} />`}<//>`;
}

const CACHE_COLUMNS = [
  ["SHA-256", (image) => html`<code title=${image.sha256}>${shortChecksum(image.sha256)}</code>`],
  ["Format", (image) => image.format ?? ""],
  ["Size", (image) => bytes(image.size), "right number"],
  ["On disk", (image) => onDisk(image), "right number"],
  [
    "Last used",
    (image) => {
      if (!image.last_used_at) return "";
      const timestamp = Date.parse(image.last_used_at);
      return html`<span title=${date(timestamp)}>${ago(timestamp)}</span>`;
    },
  ],
  ["", (image) => (image.in_use ? html`<span class="badge good">in use</span>` : "")],
];

/**
 * The space that an image takes. File systems report 0 blocks until small or new files are written
 * back; the size of the image is then the better estimate.
 * @param {{ size: number, on_disk: number }} image
 */
const onDisk = ({ size, on_disk: blocks }) => bytes(blocks || size);

/** @param {string} text */
const shortChecksum = (text) => (/^[0-9a-f]{32,}$/i.test(text) ? `${text.slice(0, 12)}…` : text);
