// SPDX-License-Identifier: Apache-2.0
// Where everything stands in the picture. Switches that share machines are a block: switches above and
// below, their ports in order, and their machines in a row between, each near its first port.

const PORT = 24, PORT_HIGH = 20, GAP = 3;
const HEAD = 30, ROW_GAP = 8, LINK_ROOM = 90;
const MACHINE_HIGH = 30, MACHINE_LEAST = 58, MACHINE_MOST = 180;
/** How wide a letter of a machine's name is about, and what is beside the name. */
const LETTER = 6.4, MARGIN = 20;
const BLOCK_GAP = 70, SIDE_GAP = 60;

/** Places are `{x, y, width, height}` on switches, ports and machines; gives `{width, height, blocks}`. */
export function place({ switches, machines }) {
  const blocks = together(switches).map((members) => block(members, machines));
  // Rows of blocks about as wide as the picture is high, twice over: screens are wide.
  const area = blocks.reduce((sum, one) => sum + (one.width + SIDE_GAP) * (one.height + BLOCK_GAP), 0);
  const most = Math.max(...blocks.map((one) => one.width), Math.sqrt(area) * 1.5, 0);
  let [x, y, high, width] = [0, 0, 0, 0];
  for (const one of blocks) {
    if (x > 0 && x + one.width > most) { x = 0; y += high + BLOCK_GAP; high = 0; }
    move(one, x, y);
    x += one.width + SIDE_GAP;
    width = Math.max(width, x - SIDE_GAP);
    high = Math.max(high, one.height);
  }
  return { width, height: y + high, blocks };
}

/** Switches in groups that are connected by machines. */
function together(switches) {
  const group = new Map(switches.map((one) => [one, [one]]));
  const seen = new Map();
  for (const one of switches) {
    for (const { node_uuid: uuid } of one.ports) {
      const other = seen.get(uuid);
      if (!other) { seen.set(uuid, one); continue; }
      const [a, b] = [group.get(other), group.get(one)];
      if (a === b) continue;
      // The smaller joins the larger: each switch moves a few times at most.
      const [large, small] = a.length >= b.length ? [a, b] : [b, a];
      large.push(...small);
      for (const member of small) group.set(member, large);
    }
  }
  return [...new Set(group.values())];
}

function block(switches, machines) {
  const above = switches.filter((_, index) => index % 2 === 0), below = switches.filter((_, index) => index % 2 === 1);
  const members = [...new Set(switches.flatMap((one) => one.ports.map((port) => port.node_uuid)))].map((uuid) => machines.get(uuid));
  const portsWide = Math.max(...switches.map((one) => one.ports.length)) * (PORT + GAP);
  const longest = Math.max(...members.map((machine) => machine.label.length));
  const named = Math.min(MACHINE_MOST, Math.max(MACHINE_LEAST, longest * LETTER + MARGIN));
  const each = Math.max(named, Math.min(120, portsWide / members.length - GAP));
  const width = Math.max(portsWide, members.length * (each + GAP), 180);
  let y = 0;
  const row = (one) => {
    // Ports are as far from each other as machines, as far as that goes: then lines are short.
    const pitch = Math.max(PORT + GAP, Math.min(width / one.ports.length, each + GAP));
    const inner = one.ports.length * pitch;
    Object.assign(one, { x: (width - inner) / 2 - 8, y, width: Math.max(inner + 12, 150), height: HEAD + PORT_HIGH + 8 });
    one.ports.forEach((port, index) => Object.assign(port,
      { x: one.x + 8 + index * pitch, y: y + HEAD, width: pitch - GAP, height: PORT_HIGH }));
    y += one.height + ROW_GAP;
  };
  above.forEach(row);
  y += LINK_ROOM;
  // Near the middle of their ports, so that few lines cross.
  const middle = (machine) => {
    const sure = machine.ports.filter((port) => port.x !== undefined && port.state === "heard");
    const counted = sure.length ? sure : machine.ports.filter((port) => port.x !== undefined);
    return counted.reduce((sum, port) => sum + port.x / counted.length, 0);
  };
  members.sort((one, other) => middle(one) - middle(other));
  const start = (width - members.length * (each + GAP)) / 2;
  members.forEach((machine, index) => Object.assign(machine,
    { x: start + index * (each + GAP), y, width: each, height: MACHINE_HIGH }));
  y += MACHINE_HIGH;
  if (below.length) { y += LINK_ROOM; below.forEach(row); }
  return { switches, members, x: 0, y: 0, width, height: y };
}

function move(one, x, y) {
  Object.assign(one, { x, y });
  for (const it of one.switches) { it.x += x; it.y += y; for (const port of it.ports) { port.x += x; port.y += y; } }
  for (const it of one.members) { it.x += x; it.y += y; }
}
