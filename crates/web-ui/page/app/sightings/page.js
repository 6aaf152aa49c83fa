// SPDX-License-Identifier: Apache-2.0
// The page of unknown machines: machines seen on the network that are not enrolled.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { get, remove } from "../api.js";
import { caller, denial } from "../caller.js";
import { FetchResult, useFetch } from "../fetching.js";
import { Icon } from "../icons.js";
import { useObservable } from "../observable.js";
import { EmptyState, PageFrame, SearchField } from "../page_parts.js";
import { href, route, setQuery } from "../route.js";
import { bytes, count, memory } from "../sizes.js";
import { ago, date } from "../times.js";
import { showError, showMessage } from "../toasts.js";
import { EnrolDialog } from "./enrol.js";

const REFRESH_MS = 5000;
const MAX_SHOWN = 300;

export function SightingsPage() {
  const { query } = useObservable(route);
  const includeEnrolled = query.get("enrolled") === "1";
  const sightings = useFetch(
    () => get(`/v1/ferrite/sightings${includeEnrolled ? "?enrolled=true" : ""}`),
    [includeEnrolled],
  );
  const [enrolling, setEnrolling] = useState(/** @type {any} */ (null));
  // Unknown machines have no journal, so there are no events to follow.
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) sightings.reload();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, [sightings.reload]);
  const needle = (query.get("q") ?? "").trim().toLowerCase();
  const matches = (sightings.data?.sightings ?? []).filter((sighting) =>
    JSON.stringify(sighting).toLowerCase().includes(needle),
  );
  const removeSighting = async ({ mac }) => {
    try {
      await remove(`/v1/ferrite/sightings/${mac}`);
      showMessage(`Removed ${mac}.`);
      sightings.reload();
    } catch (error) {
      showError(/** @type {Error} */ (error));
    }
  };
  const onToggle = (event) => setQuery({ enrolled: event.currentTarget.checked ? "1" : null });
  const note = sightings.data ? matches.length.toLocaleString("en") : "";
  return html`<${PageFrame} title="Unknown machines" note=${note} tools=${html`
      <${SearchField} value=${query.get("q") ?? ""} label="Search unknown machines" placeholder="MAC, vendor, serial number…" />
      <label class="check"><input type="checkbox" checked=${includeEnrolled} onChange=${onToggle} /> include enrolled</label>`}>
    <${FetchResult} result=${sightings}>${() =>
      matches.length === 0
        ? html`<${EmptyState} title=${needle ? "No matching machines" : "No unknown machines"}>
      <p>Machines that boot on a network with DHCP mode <code>discover</code>, or whose ramdisk reports to this server, appear here.</p><//>`
        : html`<ul class="tiles">${matches.slice(0, MAX_SHOWN).map((sighting) => html`<${SightingTile} key=${sighting.mac} sighting=${sighting} onEnrol=${() => setEnrolling(sighting)} onRemove=${() => removeSighting(sighting)} />`)}</ul>
        ${matches.length > MAX_SHOWN && html`<p class="quiet">and ${matches.length - MAX_SHOWN} more: narrow the search</p>`}`}<//>
    ${enrolling && html`<${EnrolDialog} sighting=${enrolling} onClose=${() => setEnrolling(null)} onEnrolled=${sightings.reload} />`}<//>`;
}

/** @param {{ sighting: any, onEnrol: Function, onRemove: Function }} props */
function SightingTile({ sighting, onEnrol, onRemove }) {
  const { mac, report, node_uuid: uuid, last_activity: activity, times } = sighting;
  const known = useObservable(caller);
  const noRemove = denial(known, "ferrite:sighting:delete");
  const noEnrol = denial(known, "ferrite:sighting:enrol");
  const title = [report?.vendor, report?.model].filter(Boolean).join(" ") || "Unknown machine";
  const [firstSeen, lastSeen] = [sighting.first_seen_at, sighting.last_seen_at].map(Date.parse);
  return html`<li class="tile sighting" data-mac=${mac}>
    <div class="tile-head"><h2>${title}</h2><code>${mac}</code><span class="grow"></span>
      ${
        uuid
          ? html`<a class="button" href=${href(`machines/${uuid}`)}>Show machine</a>`
          : html`<button class="button plain" aria-label="Remove ${mac}" disabled=${!!noRemove} title=${noRemove ?? undefined} onClick=${onRemove}>Remove</button>
          <button class="button primary" aria-label="Enrol ${mac}" disabled=${!!noEnrol} title=${noEnrol ?? undefined} onClick=${onEnrol}><${Icon} name="plus" /> Enrol</button>`
      }</div>
    <p class="facts">${describeSighting(sighting).map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>
    <p class="quiet">${activity && html`${activity} · `}<span title=${date(lastSeen)}>seen ${ago(lastSeen)}</span>
      ${`, ${count(times, "time")} since ${date(firstSeen)}`}</p></li>`;
}

/**
 * What is known about a machine, from the report of its ramdisk and from its DHCP requests.
 * @param {any} sighting
 * @returns {string[]}
 */
function describeSighting(sighting) {
  const report = sighting.report ?? {};
  const neighbours = report.neighbours ?? [];
  return [
    report.serial_number && `serial ${report.serial_number}`,
    report.cpus && `${report.cpus} CPUs`,
    report.memory_mb && memory(report.memory_mb),
    diskSizes(report.disks ?? []),
    report.architecture ?? sighting.architecture,
    sighting.ip_address,
    sighting.interface && `on ${sighting.interface}`,
    report.bmc_addresses?.length && `BMC ${report.bmc_addresses.join(", ")}`,
    ...neighbours.map((port) => `${port.switch_name ?? port.switch} ${port.switch_port}`),
    !sighting.reported_at && "no report from its ramdisk yet",
  ].filter(Boolean);
}

/** @param {{ size?: number }[]} disks */
const diskSizes = (disks) => disks.flatMap(({ size }) => (size ? bytes(size) : [])).join(" + ");
