// SPDX-License-Identifier: Apache-2.0
// IP addresses, and the model, layout and view of the topology.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  inNetwork,
  parseAddress,
  rangeUsage,
} from "../../crates/web-ui/page/app/network/addresses.js";
import { connectedSwitches, layoutTopology } from "../../crates/web-ui/page/app/topology/layout.js";
import { fitView, itemAt, zoomView } from "../../crates/web-ui/page/app/topology/map_view.js";
import {
  buildTopology,
  describeLink,
  linkStyle,
  searchPorts,
} from "../../crates/web-ui/page/app/topology/model.js";

test("addresses are parsed or rejected", () => {
  assert.equal(parseAddress("10.0.0.1"), 0x0a000001n);
  assert.equal(parseAddress("::1"), 1n);
  assert.equal(parseAddress("fe80::1"), (0xfe80n << 112n) + 1n);
  for (const text of ["10.0.0", "10.0.0.256", "1::2::3", "1:2:3", "g::", "1:2:3:4:5:6:7:8::9"])
    assert.equal(parseAddress(text), null, text);
});

test("addresses are matched with networks", () => {
  assert.ok(inNetwork("10.0.0.77", "10.0.0.1/24"));
  assert.ok(!inNetwork("10.0.1.77", "10.0.0.1/24"));
  assert.ok(inNetwork("fd00::7", "fd00::1/64"));
  assert.ok(!inNetwork("fd00::7", "10.0.0.1/24"));
});

test("the usage of ranges ignores ended leases and other addresses", () => {
  const lease = (address, state) => ({ address, state });
  const leases = [
    lease("10.0.0.101", "leased"),
    lease("10.0.0.102", "expired"),
    lease("10.0.0.103", "conflict"),
    lease("10.0.9.1", "leased"),
  ];
  const ranges = ["10.0.0.100-10.0.0.199", "nonsense"];
  assert.deepEqual(rangeUsage({ ranges }, leases), { total: 100, used: 2 });
  assert.deepEqual(rangeUsage({ ranges: [] }, leases), { total: 0, used: 0 });
});

const port = (id, node, state = "detected", fields = {}) => ({
  id,
  node_uuid: node,
  node_name: `name-${node}`,
  mac: `02:00:00:00:00:${id.slice(-1)}0`,
  state,
  ...fields,
});
const switchOf = (id, ...ports) => ({
  id,
  name: null,
  description: null,
  management_addresses: [],
  ports,
});
const topology = () =>
  buildTopology({
    switches: [
      switchOf("s2", port("Ethernet10", "b"), port("Ethernet2", "a")),
      switchOf(
        "s1",
        port("Ethernet1", "a", "moved", {
          interface: "eno1",
          local_link_connection: { switch_info: "s1", port_id: "Ethernet9" },
        }),
      ),
      switchOf("s3", port("Ethernet1", "c", "missing")),
    ],
  });

test("switches, ports and machines are connected and sorted", () => {
  const { switches, machines, problems } = topology();
  assert.deepEqual(
    switches.map(({ label, ports }) => [label, ports.map(({ id }) => id)]),
    [
      ["s1", ["Ethernet1"]],
      ["s2", ["Ethernet2", "Ethernet10"]],
      ["s3", ["Ethernet1"]],
    ],
  );
  assert.equal(machines.size, 3);
  assert.equal(machines.get("a").ports.length, 2);
  assert.deepEqual(
    problems.map(({ state }) => state),
    ["moved", "missing"],
  );
});

test("links are described", () => {
  const { problems, ports } = topology();
  assert.equal(
    describeLink(problems[0]),
    "name-a eno1 is connected to s1 Ethernet1, but s1 Ethernet9 is recorded. The cable or the record is wrong.",
  );
  assert.match(
    describeLink(problems[1]),
    /should be connected to s3 Ethernet1, but received no LLDP/,
  );
  assert.match(describeLink({ ...ports[1], state: "configured" }), /not checked by LLDP yet/);
  assert.match(describeLink(ports[1]), /is connected to s2 Ethernet2\.$/);
  assert.equal(linkStyle("a newer state").label, "detected");
});

test("ports are searched by all words", () => {
  const { ports } = topology();
  const ids = (text) => searchPorts(ports, text).map(({ on, id }) => `${on.id} ${id}`);
  assert.deepEqual(ids("name-a"), ["s1 Ethernet1", "s2 Ethernet2"]);
  assert.deepEqual(ids("name-a s2"), ["s2 Ethernet2"]);
  assert.deepEqual(ids("missing"), ["s3 Ethernet1"]);
  assert.deepEqual(ids("  "), []);
});

test("switches that share machines form a block", () => {
  const { switches } = topology();
  const groups = connectedSwitches(switches).map((group) => group.map(({ id }) => id).sort());
  assert.deepEqual(groups.sort(), [["s1", "s2"], ["s3"]]);
});

test("boxes do not overlap, and are found at their centres", () => {
  const built = topology();
  const layout = layoutTopology(built);
  assert.equal(layout.blocks.length, 2);
  const view = fitView(layout, { width: 1000, height: 600 });
  for (const item of [...built.machines.values(), ...built.ports]) {
    const x = (item.x + item.width / 2 - view.x) * view.scale,
      y = (item.y + item.height / 2 - view.y) * view.scale;
    assert.equal(itemAt(layout, view, x, y), item);
  }
  assert.equal(itemAt(layout, view, -10_000, 0), null);
});

test("zooming keeps the point under the pointer", () => {
  const view = { x: 10, y: 20, scale: 1 };
  const zoomed = zoomView(view, 2, 100, 50);
  assert.equal(zoomed.scale, 2);
  assert.equal(zoomed.x + 100 / 2, view.x + 100);
  assert.equal(zoomed.y + 50 / 2, view.y + 50);
  assert.equal(zoomView(view, 1000, 0, 0).scale, 3);
  assert.deepEqual(fitView({ width: 0, height: 0, blocks: [] }, { width: 0, height: 0 }), {
    x: 0,
    y: 0,
    scale: 1,
  });
});
