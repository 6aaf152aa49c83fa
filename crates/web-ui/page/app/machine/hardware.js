// SPDX-License-Identifier: Apache-2.0
// What the machine is made of, as the last inspection found it, and what its BMC is and can do.

import { html, useState } from "../../vendor/preact-htm.js";
import { ferritePath, get, getIfThere, nodePath, post } from "../api.js";
import { Answer, useAnswer } from "../loading.js";
import { bytes, count, memory } from "../sizes.js";
import { ago } from "../times.js";
import { complain } from "../toasts.js";
import { Pairs, Panel, Table } from "./panel.js";

export function Hardware({ value: { node } }) {
  const inventory = useAnswer(() => getIfThere(nodePath(node.uuid, "/inventory")), [node.uuid, node.inspection_finished_at]);
  return html`<${Answer} of=${inventory}>${(found) => (found ? html`<${Found} inventory=${found.inventory}
    node=${node} />` : html`<${NotInspected} node=${node} />`)}<//>
    <${Bmc} node=${node} />
    <${Sensors} node=${node} />`;
}

function Found({ inventory, node }) {
  const { cpu = {}, memory: ram = {}, disks = [], interfaces = [], system_vendor: vendor = {}, boot = {} } = inventory;
  const dimms = ram.physical_mb ?? (ram.total ? Math.round(ram.total / 1048576) : null);
  return html`
    <div class="panels">
      <${Card} title="System" big=${[vendor.manufacturer, vendor.product_name].filter(Boolean).join(" ") || "unknown"}
        lines=${[vendor.serial_number && `serial ${vendor.serial_number}`,
          vendor.firmware?.version && `firmware ${vendor.firmware.version}`,
          node.inspection_finished_at && `inspected ${ago(Date.parse(node.inspection_finished_at))}`]} />
      <${Card} title="Processors" big=${cpu.model_name ?? cpu.architecture ?? "unknown"}
        lines=${[cpu.count && `${cpu.count} threads${cpu.socket_count ? ` on ${count(cpu.socket_count, "socket")}` : ""}`,
          cpu.frequency && `${Math.round(Number(cpu.frequency))} MHz · ${cpu.architecture}`]} />
      <${Card} title="Memory" big=${dimms ? memory(dimms) : "unknown"} lines=${[]} />
      <${Card} title="Disks" big=${bytes(disks.reduce((sum, disk) => sum + (disk.size ?? 0), 0))}
        lines=${[count(disks.length, "disk")]} />
      <${Card} title="Boot" big=${boot.current_boot_mode ?? "unknown"}
        lines=${[boot.pxe_interface && `from ${boot.pxe_interface}`]} />
    </div>
    <${Panel} title="Disks" icon="disk" flush>
      <${Table} label="Disks" rows=${disks} columns=${[
        ["Name", (disk) => html`<strong>${disk.name}</strong>`], ["Size", (disk) => bytes(disk.size ?? 0), "right number"],
          ["Model", (disk) => disk.model],
        ["Kind", (disk) => [disk.rotational ? "spinning" : "solid state", disk.tran].filter(Boolean).join(", ")],
          ["Serial", (disk) => html`<code>${disk.serial}</code>`], ["WWN", (disk) => html`<code>${disk.wwn}</code>`],
          ["Address", (disk) => html`<code>${disk.hctl}</code>`]]} /><//>
    <${Panel} title="Network cards" icon="network" flush>
      <${Table} label="Network cards" rows=${interfaces} columns=${[
        ["Name", (card) => html`<strong>${card.name}</strong>`], ["MAC address", (card) => html`<code>${card.mac_address}</code>`],
          ["Link", (card) => (card.has_carrier ? html`<span class="lamp on">up</span>` : html`<span class="lamp">down</span>`)],
        ["Speed", (card) => (card.speed_mbps ? speed(card.speed_mbps) : "")],
          ["Address", (card) => [card.ipv4_address, card.ipv6_address].filter(Boolean).join(", ")],
          ["Product", (card) => [card.vendor, card.product].filter(Boolean).join(" ")]]} /><//>`;
}

function Card({ title, big, lines }) {
  return html`<section class="card"><h2 class="minor">${title}</h2><div class="big cut" title=${big}>${big}</div>
    ${lines.filter(Boolean).map((line) => html`<p key=${line} class="quiet">${line}</p>`)}</section>`;
}

function NotInspected({ node }) {
  return html`<div class="empty"><h2>Not inspected yet</h2><p>
    ${node.provision_state === "manageable" ? "“Inspect” finds out what it is made of." : "A manageable machine can be inspected."}
    </p></div>`;
}

function Bmc({ node }) {
  const answer = useAnswer(() => get(ferritePath(node.uuid, "/bmc")), [node.uuid]);
  const [busy, setBusy] = useState(false);
  const probe = async () => {
    setBusy(true);
    await post(ferritePath(node.uuid, "/bmc")).catch(complain);
    setBusy(false);
    answer.again();
  };
  return html`<${Panel} title="BMC" icon="chip"
    actions=${html`<button class="button" disabled=${busy} onClick=${probe}>${busy ? "Asking…" : "Ask it again"}</button>`}>
    <${Answer} of=${answer}>${({ capabilities: can, silent, retry }) => html`
      ${silent && html`<div class="notice bad">It is silent${silent.since ? ` since ${silent.since}` : ""}: ${silent.why ?? ""}
        </div>`}
      ${retry && html`<div class="notice warn">Asked ${count(retry.tries,
        "time")} in vain since ${retry.since}; next at ${retry.next_at}: ${retry.why}</div>`}
      ${can ? html`<${Pairs} pairs=${[
        ["Product", [can.vendor, can.bmc?.model, can.bmc?.firmware && `firmware ${can.bmc.firmware}`].filter(Boolean).join(" · ")],
        ["Protocol", [can.protocol, can.redfish_version].filter(Boolean).join(" ")],
        ["Machine", [can.model, can.bios_version && `BIOS ${can.bios_version}`].filter(Boolean).join(" · ")],
        ["Power actions", can.power_actions?.join(", ")],
        ["Boot devices", can.boot?.devices?.filter((device) => device !== "None").join(", ")],
        ["Virtual media", can.virtual_media?.drives?.map((drive) => `${drive.name} (${drive.media_types.join(", ")})`).join("; ")],
        ["RAID", can.raid?.filter((one) => one.volumes).map((one) => `${one.name}: ${one.drives} drives${one.raid_types ? `, ${one.raid_types.join(", ")}` : ""}`).join("; ")],
        ["Firmware updates", can.firmware_update?.enabled && (can.firmware_update.protocols?.join(", ") || "yes")],
        ["Secure boot", can.secure_boot && (can.secure_boot.enabled ? "on" : "off")],
        ["Quirks", can.quirks?.join(", ")],
        ["Could not be asked", can.could_not_ask?.join(", ")],
        ["Asked", can.probed_at && ago(Date.parse(can.probed_at))]]} />`
        : html`<p class="quiet">Nothing is known about it yet. “Manage” and “Ask it again” find out.</p>`}`}<//><//>`;
}

function Sensors({ node }) {
  const [asked, setAsked] = useState(false);
  const answer = useAnswer(() => (asked ? get(ferritePath(node.uuid, "/sensors")) : Promise.resolve(null)), [node.uuid, asked]);
  return html`<${Panel} title="Sensors" flush
    actions=${html`<button class="button" onClick=${() => (asked ? answer.again() : setAsked(true))}>
    ${asked ? "Read again" : "Read now"}</button>`}>
    ${asked && html`<${Answer} of=${answer}>
      ${(found) => found && html`<${Table} label="Sensors" rows=${found.sensors.filter((sensor) => sensor.present)} columns=${[
      ["Sensor", (sensor) => sensor.name.split("@")[0]], ["Kind", (sensor) => sensor.kind],
        ["Reading", (sensor) => (sensor.reading === null ? "" : `${Number(sensor.reading).toLocaleString("en")} ${UNITS[sensor.unit] ?? sensor.unit ?? ""}`), "right number"],
      ["Health", (sensor) => html`<span class=${sensor.health === "OK" ? "quiet" : "bad-text"}>${sensor.health}</span>`]]} />`}
        <//>`}<//>`;
}

const speed = (mbps) => (mbps >= 1000 ? `${mbps / 1000} Gbit/s` : `${mbps} Mbit/s`);

const UNITS = { Celsius: "°C", Volts: "V", Watts: "W", Percent: "%" };
