// SPDX-License-Identifier: Apache-2.0
// Switches, ports and machines of the topology, and the texts for their links.

import { compareNames } from "../fleet/rows.js";

/**
 * @typedef {object} SwitchPort
 * @property {string} id
 * @property {string} state `detected`, `moved`, `missing` or `configured`
 * @property {string} node_uuid
 * @property {string | null} node_name
 * @property {string} mac
 * @property {string} [interface]
 * @property {Record<string, string> | null} [local_link_connection] the recorded switch port
 * @property {string | null} [observed_at]
 * @property {TopologySwitch} on
 * @property {TopologyMachine} machine
 * @property {number} [x]
 * @property {number} [y]
 * @property {number} [width]
 * @property {number} [height]
 *
 * @typedef {{ id: string, label: string, name: string | null, description: string | null, management_addresses: string[], ports: SwitchPort[] }} TopologySwitch
 * @typedef {{ uuid: string, label: string, ports: SwitchPort[] }} TopologyMachine
 * @typedef {{ switches: TopologySwitch[], machines: Map<string, TopologyMachine>, ports: SwitchPort[], problems: SwitchPort[] }} Topology
 */

/** The colour, badge and label of each link state; dashed links were not detected. */
const LINK_STYLES = {
  detected: { colour: "--good", badge: "good", label: "detected", isDashed: false },
  moved: { colour: "--warn", badge: "warn", label: "moved", isDashed: false },
  missing: { colour: "--danger", badge: "bad", label: "missing", isDashed: true },
  configured: { colour: "--faint", badge: "", label: "not checked yet", isDashed: true },
};

/** @param {string} state */
export const linkStyle = (state) =>
  LINK_STYLES[/** @type {keyof typeof LINK_STYLES} */ (state)] ?? LINK_STYLES.detected;

/**
 * Whether a link differs from its record.
 * @param {Pick<SwitchPort, "state">} port
 */
export const isProblem = ({ state }) => state === "moved" || state === "missing";

/**
 * Connects switches, ports and machines, and sorts them by name.
 * @param {{ switches: any[] }} response
 * @returns {Topology}
 */
export function buildTopology(response) {
  /** @type {Map<string, TopologyMachine>} */
  const machines = new Map();
  const machineOf = ({ node_uuid: uuid, node_name: name }) => {
    /** @type {TopologyMachine} */
    const machine = machines.get(uuid) ?? { uuid, label: name ?? uuid, ports: [] };
    machines.set(uuid, machine);
    return machine;
  };
  /** @type {TopologySwitch[]} */
  const switches = response.switches.map((source) => {
    /** @type {TopologySwitch} */
    const target = { ...source, label: source.name ?? source.id, ports: [] };
    for (const port of [...source.ports].sort((a, b) => compareNames(a.id, b.id))) {
      const machine = machineOf(port);
      const connected = { ...port, on: target, machine };
      target.ports.push(connected);
      machine.ports.push(connected);
    }
    return target;
  });
  switches.sort((a, b) => compareNames(a.label, b.label));
  const ports = switches.flatMap((one) => one.ports);
  return { switches, machines, ports, problems: ports.filter(isProblem) };
}

/**
 * A link in a sentence.
 * @param {SwitchPort} port
 */
export function describeLink(port) {
  const nic = `${port.machine.label} ${port.interface ?? `(${port.mac})`}`;
  const switchPort = `${port.on.label} ${port.id}`;
  switch (port.state) {
    case "moved": {
      const {
        switch_info: info,
        switch_id: id,
        port_id: recorded,
      } = port.local_link_connection ?? {};
      const expected = [info ?? id, recorded].filter(Boolean).join(" ");
      return `${nic} is connected to ${switchPort}, but ${expected || "another port"} is recorded. The cable or the record is wrong.`;
    }
    case "missing":
      return `${nic} should be connected to ${switchPort}, but received no LLDP there.`;
    case "configured":
      return `${nic} is recorded at ${switchPort}; not checked by LLDP yet.`;
    default:
      return `${nic} is connected to ${switchPort}.`;
  }
}

/**
 * The ports whose machine, switch, port, NIC or link state contain all words of a text.
 * @param {SwitchPort[]} ports
 * @param {string} text
 */
export function searchPorts(ports, text) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return ports.filter((port) => {
    const searchText = searchTextOf(port);
    return words.every((word) => searchText.includes(word));
  });
}

/** @type {WeakMap<SwitchPort, string>} */
const searchTexts = new WeakMap();

/** @param {SwitchPort} port */
function searchTextOf(port) {
  let text = searchTexts.get(port);
  if (text === undefined) {
    const { machine, on, id, mac, interface: nic = "", state } = port;
    text = [machine.label, on.label, on.id, id, mac, nic, linkStyle(state).label]
      .join("\n")
      .toLowerCase();
    searchTexts.set(port, text);
  }
  return text;
}
