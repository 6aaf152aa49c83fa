// SPDX-License-Identifier: Apache-2.0
// Which images machines have, and which are kept on the server to be given out.

import { html } from "../../vendor/preact-htm.js";
import { get } from "../api.js";
import { Icon } from "../icons.js";
import { Answer, useAnswer } from "../loading.js";
import { Panel, Table } from "../machine/panel.js";
import { href } from "../route.js";
import { Sheet } from "../sections.js";
import { bytes, count } from "../sizes.js";
import { ago, date } from "../times.js";

export function ImagesPage() {
  const answer = useAnswer(() => get("/v1/ferrite/images"), []);
  return html`<${Sheet} title="Images" note=${answer.data ? answer.data.count.toLocaleString("en") : ""}
    tools=${html`<button class="button" onClick=${answer.again}><${Icon} name="refresh" /> Look again</button>`}>
    <${Answer} of=${answer}>${({ in_use: used, count: all, cache }) => html`
      <${Panel} title="On machines" icon="disk" flush>${used.length === 0 ? html`<div class="empty"><p>No machine has an image.
        <a href=${href("deploy")}>Deploy one</a>.</p>
          </div>` : html`<${Table} label="Images on machines" rows=${used} keyOf=${(one) => one.source} columns=${[
        ["Image", (one) => html`<strong>${one.source.split("/").at(-1) || one.source}</strong><br /><span class="quiet">
          ${one.source}${one.is_shortened ? " (without its secret part)" : ""}</span>`],
        ["Machines", (one) => one.nodes.toLocaleString("en"), "right number"],
        ["Active", (one) => one.active.toLocaleString("en"), "right number"],
        ["Such as", (one) => one.some.map((name, index) => html`${index > 0 && ", "}
          <a key=${name} href=${href(`machines/${name}`)}>${name}</a>`)],
        ["Checksum", (one) => (one.checksum ? html`<code title=${one.checksum}>${short(one.checksum)}
          </code>` : html`<span class="faint">none</span>`)],
        ["Actions", (one) => (one.is_shortened ? "" : html`<a class="button plain" aria-label="Deploy ${one.source}"
          href=${href("deploy",
          { image: one.source })}>Deploy…</a>`), "right nowrap"]]} />`}
        ${all > used.length && html`<p class="pad quiet">and ${all - used.length} more</p>`}<//>
      <${Cache} cache=${cache} />`}<//><//>`;
}

function Cache({ cache }) {
  if (!cache) return html`<${Panel} title="Kept on the server" icon="down">
    <p class="quiet">The boot services are switched off, so the server keeps no images.</p><//>`;
  const share = Math.min(1, cache.used / cache.bound);
  return html`<${Panel} title="Kept on the server" icon="down" flush>
    <div class="pad"><div class="progress" aria-hidden="true"><i class=${share > 0.9 ? "bad" : ""} style=${{ flexGrow: share }}></i>
      <i class="rest" style=${{ flexGrow: 1 - share }}></i></div>
      <p class="quiet number">${bytes(cache.used)} of ${bytes(cache.bound)} in ${count(cache.images.length,
        "image")}. What was not used for longest goes first.</p></div>
    ${cache.images.length > 0 && html`<${Table} label="Images kept" rows=${cache.images} keyOf=${(one) => one.sha256} columns=${[
      ["SHA-256", (one) => html`<code title=${one.sha256}>${short(one.sha256)}</code>`], ["Format", (one) => one.format ?? ""],
      ["Size", (one) => bytes(one.size), "right number"], ["On disk", (one) => bytes(one.on_disk), "right number"],
      ["Last used", (one) => (one.last_used_at ? html`<span title=${date(Date.parse(one.last_used_at))}>
        ${ago(Date.parse(one.last_used_at))}</span>` : "")],
      ["", (one) => (one.in_use ? html`<span class="badge good">in use</span>` : "")]]} />`}<//>`;
}

const short = (text) => (/^[0-9a-f]{32,}$/i.test(text) ? `${text.slice(0, 12)}…` : text);
