// SPDX-License-Identifier: Apache-2.0
// Switches, ports and machines as the server tells of them, put in order, and what is wrong with them in
// words.

import { compare } from "../fleet/model.js";

/** How links stand: colour, whether the line is broken, the word for it. */
export const LINKS = {
  heard: { colour: "--good", badge: "good", word: "heard" },
  moved: { colour: "--warn", badge: "warn", word: "moved" },
  missing: { colour: "--danger", badge: "bad", word: "missing", isBroken: true },
  configured: { colour: "--faint", badge: "", word: "not listened yet", isBroken: true },
};

/** `{switches, machines, ports, troubles}`: ports in the order of their switch, machines by UUID. */
export function arranged({ switches: told }) {
  const machines = new Map();
  const switches = told.map((one) => {
    const it = { ...one, label: one.name ?? one.id, ports: [] };
    it.ports = one.ports.map((port) => ({ ...port, on: it })).sort((a, b) => compare(a.id, b.id));
    for (const port of it.ports) {
      const known = machines.get(port.node_uuid);
      if (known) known.ports.push(port);
      else machines.set(port.node_uuid, { uuid: port.node_uuid, label: port.node_name ?? port.node_uuid, ports: [port] });
      port.machine = machines.get(port.node_uuid);
    }
    return it;
  }).sort((a, b) => compare(a.label, b.label));
  const ports = switches.flatMap((one) => one.ports);
  const troubles = ports.filter((port) => port.state === "moved" || port.state === "missing");
  return { switches, machines, ports, troubles };
}

/** What is the matter with a port, in a sentence. */
export function wordsOf(port) {
  const card = port.interface ? `${port.machine.label} ${port.interface}` : `${port.machine.label} (${port.mac})`;
  const expected = port.local_link_connection ?? {};
  if (port.state === "moved") {
    const place = [expected.switch_info ?? expected.switch_id, expected.port_id].filter(Boolean).join(" ");
    return `${card} is plugged into ${port.on.label} ${port.id}; its record says ${place || "another place"}. The cable or the record is wrong.`;
  }
  if (port.state === "missing") return `${card} should be at ${port.on.label} ${port.id}, and heard nothing there when it last listened.`;
  if (port.state === "configured") return `${card} should be at ${port.on.label} ${port.id}; it has not listened yet.`;
  return `${card} is at ${port.on.label} ${port.id}.`;
}

/** The ports that a text means: of a machine, a switch, a port, a card. */
export function soughtPorts(ports, text) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return ports.filter((port) => {
    port.sought ??= `${port.machine.label}\n${port.on.label}\n${port.on.id}\n${port.id}\n${port.mac}\n${port.interface ?? ""}\n${LINKS[port.state].word}`.toLowerCase();
    return words.every((word) => port.sought.includes(word));
  });
}
