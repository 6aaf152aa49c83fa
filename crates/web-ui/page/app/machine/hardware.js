// SPDX-License-Identifier: Apache-2.0
// The hardware inventory of the last inspection, the capabilities of the BMC, and its sensors.

import { html, useState } from "../../vendor/preact-htm.js";
import { ferritePath, get, getOrNull, nodePath, post } from "../api.js";
import { FetchResult, useFetch } from "../fetching.js";
import { bytes, count, memory } from "../sizes.js";
import { ago } from "../times.js";
import { showError } from "../toasts.js";
import { KeyValueList, Panel, Table } from "./panel.js";

/** @param {{ value: MachineView }} props */
export function Hardware({ value: { node } }) {
  const inventory = useFetch(
    () => getOrNull(nodePath(node.uuid, "/inventory")),
    [node.uuid, node.inspection_finished_at],
  );
  return html`<${FetchResult} result=${inventory}>${(found) =>
    found
      ? html`<${Inventory} inventory=${found.inventory} node=${node} />`
      : html`<${NotInspected} node=${node} />`}<//>
    <${Bmc} node=${node} />
    <${Sensors} node=${node} />`;
}

/** @param {{ inventory: any, node: NodeRecord }} props */
function Inventory({ inventory, node }) {
  const { disks = [], interfaces = [] } = inventory;
  return html`<${Summary} inventory=${inventory} node=${node} />
    <${Panel} title="Disks" icon="disk" flush><${Table} label="Disks" rows=${disks} columns=${DISK_COLUMNS} /><//>
    <${Panel} title="NICs" icon="network" flush><${Table} label="NICs" rows=${interfaces} columns=${NIC_COLUMNS} /><//>`;
}

/** @param {{ inventory: any, node: NodeRecord }} props */
function Summary({ inventory, node }) {
  const {
    cpu = {},
    memory: ram = {},
    disks = [],
    system_vendor: vendor = {},
    boot = {},
  } = inventory;
  const memoryMib = ram.physical_mb ?? (ram.total ? Math.round(ram.total / 1048576) : null);
  const product = [vendor.manufacturer, vendor.product_name].filter(Boolean).join(" ");
  const sockets = cpu.socket_count ? ` on ${count(cpu.socket_count, "socket")}` : "";
  const inspectedAt = node.inspection_finished_at && Date.parse(node.inspection_finished_at);
  return html`<div class="panels">
      <${SummaryTile} title="System" big=${product || "unknown"} lines=${[
        vendor.serial_number && `serial ${vendor.serial_number}`,
        vendor.firmware?.version && `firmware ${vendor.firmware.version}`,
        inspectedAt && `inspected ${ago(inspectedAt)}`,
      ]} />
      <${SummaryTile} title="Processors" big=${cpu.model_name ?? cpu.architecture ?? "unknown"} lines=${[
        cpu.count && `${cpu.count} threads${sockets}`,
        cpu.frequency && `${Math.round(Number(cpu.frequency))} MHz · ${cpu.architecture}`,
      ]} />
      <${SummaryTile} title="Memory" big=${memoryMib ? memory(memoryMib) : "unknown"} lines=${[]} />
      <${SummaryTile} title="Disks" big=${bytes(disks.reduce((sum, disk) => sum + (disk.size ?? 0), 0))}
        lines=${[count(disks.length, "disk")]} />
      <${SummaryTile} title="Boot" big=${boot.current_boot_mode ?? "unknown"}
        lines=${[boot.pxe_interface && `from ${boot.pxe_interface}`]} />
    </div>`;
}

const DISK_COLUMNS = [
  ["Name", (disk) => html`<strong>${disk.name}</strong>`],
  ["Size", (disk) => bytes(disk.size ?? 0), "right number"],
  ["Model", (disk) => disk.model],
  ["Type", (disk) => [disk.rotational ? "HDD" : "SSD", disk.tran].filter(Boolean).join(", ")],
  ["Serial", (disk) => html`<code>${disk.serial}</code>`],
  ["WWN", (disk) => html`<code>${disk.wwn}</code>`],
  ["Address", (disk) => html`<code>${disk.hctl}</code>`],
];

const NIC_COLUMNS = [
  ["Name", (nic) => html`<strong>${nic.name}</strong>`],
  ["MAC address", (nic) => html`<code>${nic.mac_address}</code>`],
  [
    "Link",
    (nic) =>
      nic.has_carrier
        ? html`<span class="lamp on">up</span>`
        : html`<span class="lamp">down</span>`,
  ],
  ["Speed", (nic) => (nic.speed_mbps ? linkSpeed(nic.speed_mbps) : "")],
  ["Address", (nic) => [nic.ipv4_address, nic.ipv6_address].filter(Boolean).join(", ")],
  ["Product", (nic) => [nic.vendor, nic.product].filter(Boolean).join(" ")],
];

/** @param {number} mbps */
const linkSpeed = (mbps) => (mbps >= 1000 ? `${mbps / 1000} Gbit/s` : `${mbps} Mbit/s`);

/** @param {{ title: string, big: any, lines: any }} props */
function SummaryTile({ title, big, lines }) {
  return html`<section class="tile"><h2 class="minor">${title}</h2><div class="big cut" title=${big}>${big}</div>
    ${lines.filter(Boolean).map((line) => html`<p key=${line} class="quiet">${line}</p>`)}</section>`;
}

/** @param {{ node: NodeRecord }} props */
function NotInspected({ node }) {
  const hint =
    node.provision_state === "manageable"
      ? "“Inspect” collects the hardware inventory."
      : "Only a manageable machine can be inspected.";
  return html`<div class="empty"><h2>Not inspected yet</h2><p>${hint}</p></div>`;
}

/** @param {{ node: NodeRecord }} props */
function Bmc({ node }) {
  const bmc = useFetch(() => get(ferritePath(node.uuid, "/bmc")), [node.uuid]);
  const [busy, setBusy] = useState(false);
  const probe = async () => {
    setBusy(true);
    await post(ferritePath(node.uuid, "/bmc")).catch(showError);
    setBusy(false);
    bmc.reload();
  };
  return html`<${Panel} title="BMC" icon="chip"
    actions=${html`<button class="button" disabled=${busy} onClick=${probe}>${busy ? "Probing…" : "Probe"}</button>`}>
    <${FetchResult} result=${bmc}>${({ capabilities, unreachable, retry }) => html`
      ${unreachable && html`<div class="notice bad">BMC unreachable${unreachable.since ? ` since ${unreachable.since}` : ""}: ${unreachable.error ?? ""}</div>`}
      ${
        retry &&
        html`<div class="notice warn">${count(retry.attempts, "failed attempt")} since ${retry.since}; next at ${retry.next_at}: ${retry.error}</div>`
      }
      ${
        capabilities
          ? html`<${KeyValueList} pairs=${capabilityPairs(capabilities)} />`
          : html`<p class="quiet">The capabilities are unknown. “Manage” and “Probe” detect them.</p>`
      }`}<//><//>`;
}

/**
 * The capabilities of a BMC as names and values.
 * @param {any} bmc
 */
function capabilityPairs(bmc) {
  const joined = (parts, separator = " · ") => parts.filter(Boolean).join(separator);
  const drives = bmc.virtual_media?.drives ?? [];
  const controllers = (bmc.raid ?? []).filter(({ volumes }) => volumes);
  const updates = bmc.firmware_update;
  return [
    [
      "Product",
      joined([bmc.vendor, bmc.bmc?.model, bmc.bmc?.firmware && `firmware ${bmc.bmc.firmware}`]),
    ],
    ["Protocol", joined([bmc.protocol, bmc.redfish_version], " ")],
    ["Machine", joined([bmc.model, bmc.bios_version && `BIOS ${bmc.bios_version}`])],
    ["Power actions", bmc.power_actions?.join(", ")],
    ["Boot devices", bmc.boot?.devices?.filter((device) => device !== "None").join(", ")],
    [
      "Virtual media",
      drives.map(({ name, media_types: types }) => `${name} (${types.join(", ")})`).join("; "),
    ],
    [
      "RAID",
      controllers
        .map(({ name, drives: disks, raid_types: types }) =>
          joined([`${name}: ${disks} drives`, types?.join(", ")], ", "),
        )
        .join("; "),
    ],
    ["Firmware updates", updates?.enabled && (updates.protocols?.join(", ") || "yes")],
    ["Secure boot", bmc.secure_boot && (bmc.secure_boot.enabled ? "on" : "off")],
    ["Quirks", bmc.quirks?.join(", ")],
    ["Failed queries", bmc.failed_queries?.join(", ")],
    ["Last probe", bmc.probed_at && ago(Date.parse(bmc.probed_at))],
  ];
}

/** @param {{ node: NodeRecord }} props */
function Sensors({ node }) {
  const [isRequested, setRequested] = useState(false);
  const sensors = useFetch(
    () => (isRequested ? get(ferritePath(node.uuid, "/sensors")) : Promise.resolve(null)),
    [node.uuid, isRequested],
  );
  return html`<${Panel} title="Sensors" flush
    actions=${html`<button class="button" onClick=${() => (isRequested ? sensors.reload() : setRequested(true))}>
    ${isRequested ? "Refresh" : "Read"}</button>`}>
    ${
      isRequested &&
      html`<${FetchResult} result=${sensors}>${(found) =>
        found &&
        html`<${Table} label="Sensors" rows=${found.sensors.filter(({ present }) => present)} columns=${SENSOR_COLUMNS} />`}<//>`
    }<//>`;
}

const UNITS = { Celsius: "°C", Volts: "V", Watts: "W", Percent: "%" };

const SENSOR_COLUMNS = [
  ["Sensor", (sensor) => sensor.name.split("@")[0]],
  ["Type", (sensor) => sensor.kind],
  [
    "Reading",
    ({ reading, unit }) =>
      reading === null
        ? ""
        : `${Number(reading).toLocaleString("en")} ${UNITS[unit] ?? unit ?? ""}`,
    "right number",
  ],
  [
    "Health",
    ({ health }) => html`<span class=${health === "OK" ? "quiet" : "bad-text"}>${health}</span>`,
  ],
];
