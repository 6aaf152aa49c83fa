// SPDX-License-Identifier: Apache-2.0
// Machines that were seen booting and that nobody enrolled: what is known of each, and enrolling it.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { get, remove } from "../api.js";
import { Answer, useAnswer } from "../loading.js";
import { Icon } from "../icons.js";
import { href, route, setQuery } from "../route.js";
import { Find, Nothing, Sheet } from "../sections.js";
import { bytes, count, memory } from "../sizes.js";
import { useSubject } from "../subject.js";
import { ago, date } from "../times.js";
import { complain, say } from "../toasts.js";
import { Enrol } from "./enrol.js";

const AGAIN_MS = 5000;
const SHOWN = 300;

export function SightingsPage() {
  const { query } = useSubject(route);
  const all = query.get("enrolled") === "1";
  const answer = useAnswer(() => get(`/v1/ferrite/sightings${all ? "?enrolled=true" : ""}`), [all]);
  const [asked, setAsked] = useState(null);
  // Nothing tells of strangers as it happens: they are in no timeline.
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) answer.again(); }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [answer.again]);
  const sought = (query.get("q") ?? "").trim().toLowerCase();
  const found = (answer.data?.sightings ?? []).filter((one) => !sought || textOf(one).includes(sought));
  const forget = (one) => remove(`/v1/ferrite/sightings/${one.mac}`).then(() => { say(`${one.mac} is forgotten.`); answer.again(); }, complain);
  return html`<${Sheet} title="Sightings" note=${answer.data ? found.length.toLocaleString("en") : ""} tools=${html`
      <${Find} value=${query.get("q") ?? ""} label="Find sightings" placeholder="MAC, vendor, serial number…" />
      <label class="check"><input type="checkbox" checked=${all}
        onChange=${(event) => setQuery({ enrolled: event.currentTarget.checked ? "1" : null })} /> those enrolled since, too</label>`}>
    <${Answer} of=${answer}>${() => (found.length === 0 ? html`<${Nothing}
      title=${sought ? "Nothing like that was seen" : "No strangers"}>
      <p>Machines appear here that boot on a network where DHCP is answered in mode <code>discover</code>, or whose ramdisk reports.</p><//>`
      : html`<ul class="cards">${found.slice(0, SHOWN).map((one) => html`<${Sighting} key=${one.mac} one=${one}
        onEnrol=${() => setAsked(one)} onForget=${() => forget(one)} />`)}</ul>
        ${found.length > SHOWN && html`<p class="quiet">and ${found.length - SHOWN} more: narrow the search</p>`}`)}<//>
    ${asked && html`<${Enrol} sighting=${asked} onClose=${() => setAsked(null)} onDone=${answer.again} />`}<//>`;
}

const textOf = (one) => JSON.stringify(one).toLowerCase();

function Sighting({ one, onEnrol, onForget }) {
  const report = one.report ?? {};
  const title = [report.vendor, report.model].filter(Boolean).join(" ") || "Unknown machine";
  return html`<li class="card sighting" data-mac=${one.mac}>
    <div class="card-head"><h2>${title}</h2><code>${one.mac}</code><span class="grow"></span>
      ${one.node_uuid ? html`<a class="button" href=${href(`machines/${one.node_uuid}`)}>Enrolled: show it</a>`
        : html`<button class="button plain" aria-label="Forget ${one.mac}" onClick=${onForget}>Forget</button>
          <button class="button primary" aria-label="Enrol this: ${one.mac}" onClick=${onEnrol}>
            <${Icon} name="plus" /> Enrol this</button>`}</div>
    <p class="facts">${facts(one, report).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
    <p class="quiet">${one.last && html`${one.last} · `}
      <span title=${date(Date.parse(one.last_seen_at))}>seen ${ago(Date.parse(one.last_seen_at))}</span>, ${count(one.times,
      "time")} since ${date(Date.parse(one.first_seen_at))}</p></li>`;
}

/** What is known in short: of the ramdisk's report what it has, of the packet the rest. */
function facts(one, report) {
  const places = (report.neighbours ?? []).map((it) => `${it.switch_name ?? it.switch} ${it.switch_port}`);
  return [report.serial_number && `serial ${report.serial_number}`, report.cpus && `${report.cpus} CPUs`,
    report.memory_mb && memory(report.memory_mb), disks(report.disks ?? []), report.architecture ?? one.architecture,
      one.ip_address,
    one.interface && `on ${one.interface}`, report.bmc_addresses?.length && `BMC ${report.bmc_addresses.join(", ")}`, ...places,
    !one.reported_at && "its ramdisk has told nothing yet"].filter(Boolean);
}

const disks = (list) => list.filter((disk) => disk.size).map((disk) => bytes(disk.size)).join(" + ");
