// SPDX-License-Identifier: Apache-2.0
// The positions in the topology map. Switches that share machines form a block: switches above and
// below, with their ports in order, and their machines in a row between them, each near its ports.

/** Sizes in map units, which are pixels at scale 1. */
const PORT_WIDTH = 24,
  PORT_HEIGHT = 20,
  GAP = 3;
const SWITCH_HEADER = 30,
  SWITCH_GAP = 8,
  LINK_HEIGHT = 90;
const MACHINE_HEIGHT = 30,
  MIN_MACHINE_WIDTH = 58,
  MAX_MACHINE_WIDTH = 180;
const MIN_BLOCK_WIDTH = 180,
  MIN_SWITCH_WIDTH = 150;
/** The approximate width of a character of a machine's name, and the space beside the name. */
const CHARACTER_WIDTH = 6.4,
  NAME_MARGIN = 20;
const BLOCK_GAP_X = 60,
  BLOCK_GAP_Y = 70;
/** The desired width of the map relative to its height. */
const ASPECT_RATIO = 1.5;

/**
 * Sets `x`, `y`, `width` and `height` of all switches, ports and machines.
 * @param {import("./model.js").Topology} topology
 */
export function layoutTopology({ switches, machines }) {
  const blocks = connectedSwitches(switches).map((members) => layoutBlock(members, machines));
  const area = blocks.reduce(
    (sum, block) => sum + (block.width + BLOCK_GAP_X) * (block.height + BLOCK_GAP_Y),
    0,
  );
  const maxWidth = Math.max(
    ...blocks.map((block) => block.width),
    Math.sqrt(area) * ASPECT_RATIO,
    0,
  );
  let x = 0,
    y = 0,
    rowHeight = 0,
    width = 0;
  for (const block of blocks) {
    if (x > 0 && x + block.width > maxWidth) {
      x = 0;
      y += rowHeight + BLOCK_GAP_Y;
      rowHeight = 0;
    }
    moveBlock(block, x, y);
    x += block.width + BLOCK_GAP_X;
    width = Math.max(width, x - BLOCK_GAP_X);
    rowHeight = Math.max(rowHeight, block.height);
  }
  return { width, height: y + rowHeight, blocks };
}

/**
 * Groups switches that are connected by machines.
 * @param {import("./model.js").TopologySwitch[]} switches
 */
export function connectedSwitches(switches) {
  const groupOf = new Map(switches.map((one) => [one, [one]]));
  /** @type {Map<string, import("./model.js").TopologySwitch>} */
  const switchOfNode = new Map();
  for (const one of switches) {
    for (const { node_uuid: uuid } of one.ports) {
      const other = switchOfNode.get(uuid);
      if (!other) {
        switchOfNode.set(uuid, one);
        continue;
      }
      const first = groupOf.get(other) ?? [],
        second = groupOf.get(one) ?? [];
      if (first === second) continue;
      // Merging the smaller group into the larger moves each switch only a few times.
      const [large, small] = first.length >= second.length ? [first, second] : [second, first];
      large.push(...small);
      for (const member of small) groupOf.set(member, large);
    }
  }
  return [...new Set(groupOf.values())];
}

/**
 * @param {any[]} switches
 * @param {Map<string, any>} machines
 */
function layoutBlock(switches, machines) {
  const above = switches.filter((_, index) => index % 2 === 0),
    below = switches.filter((_, index) => index % 2 === 1);
  const uuids = new Set(switches.flatMap((one) => one.ports.map((port) => port.node_uuid)));
  const members = [...uuids].map((uuid) => machines.get(uuid));
  const portsWidth = Math.max(...switches.map((one) => one.ports.length)) * (PORT_WIDTH + GAP);
  const machineWidth = machineWidthOf(members, portsWidth);
  const width = Math.max(portsWidth, members.length * (machineWidth + GAP), MIN_BLOCK_WIDTH);
  let y = 0;
  const placeSwitch = (one) => {
    // Ports are spaced like machines if possible, which keeps links short.
    const pitch = Math.max(
      PORT_WIDTH + GAP,
      Math.min(width / one.ports.length, machineWidth + GAP),
    );
    const inner = one.ports.length * pitch;
    Object.assign(one, {
      x: (width - inner) / 2 - 8,
      y,
      width: Math.max(inner + 12, MIN_SWITCH_WIDTH),
      height: SWITCH_HEADER + PORT_HEIGHT + 8,
    });
    one.ports.forEach((port, index) =>
      Object.assign(port, {
        x: one.x + 8 + index * pitch,
        y: y + SWITCH_HEADER,
        width: pitch - GAP,
        height: PORT_HEIGHT,
      }),
    );
    y += one.height + SWITCH_GAP;
  };
  above.forEach(placeSwitch);
  y += LINK_HEIGHT;
  members.sort((a, b) => meanPortX(a) - meanPortX(b));
  const start = (width - members.length * (machineWidth + GAP)) / 2;
  members.forEach((machine, index) =>
    Object.assign(machine, {
      x: start + index * (machineWidth + GAP),
      y,
      width: machineWidth,
      height: MACHINE_HEIGHT,
    }),
  );
  y += MACHINE_HEIGHT;
  if (below.length) {
    y += LINK_HEIGHT;
    below.forEach(placeSwitch);
  }
  return { switches, members, x: 0, y: 0, width, height: y };
}

/**
 * @param {{ label: string }[]} members
 * @param {number} portsWidth
 */
function machineWidthOf(members, portsWidth) {
  const longest = Math.max(...members.map(({ label }) => label.length));
  const named = Math.min(
    MAX_MACHINE_WIDTH,
    Math.max(MIN_MACHINE_WIDTH, longest * CHARACTER_WIDTH + NAME_MARGIN),
  );
  return Math.max(named, Math.min(120, portsWidth / members.length - GAP));
}

/** The mean position of a machine's placed ports; ordering machines by it avoids crossing links. */
function meanPortX({ ports }) {
  const placed = ports.filter(({ x }) => x !== undefined);
  const detected = placed.filter(({ state }) => state !== "moved" && state !== "missing");
  const counted = detected.length ? detected : placed;
  return counted.reduce((sum, { x }) => sum + x / counted.length, 0);
}

function moveBlock(block, x, y) {
  Object.assign(block, { x, y });
  const move = (item) => {
    item.x += x;
    item.y += y;
  };
  for (const one of block.switches) {
    move(one);
    one.ports.forEach(move);
  }
  block.members.forEach(move);
}
