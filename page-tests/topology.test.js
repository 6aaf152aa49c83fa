// SPDX-License-Identifier: Apache-2.0
// Switches, ports and machines: the picture moves, finds and warns, and the list has the same in words.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  await server.simulate(16);
  for (const [verb, state] of [["manage", "manageable"], ["inspect", "manageable"]]) await everybody(server.ask, verb, state);
  // One record says something else than was heard, and one cable is not there.
  const { switches: [leaf] } = await server.ask("GET", "/v1/ferrite/topology");
  const record = (port) => ({ switch_id: leaf.id, switch_info: leaf.name, port_id: port });
  const moved = leaf.ports.find((port) => port.node_name === "r01-u03");
  await server.ask("PATCH", `/v1/ports/${moved.port_uuid}`,
    [{ op: "add", path: "/local_link_connection", value: record("Ethernet40/1") }]);
  await server.ask("POST", "/v1/ports", { node_uuid: leaf.ports.find((port) => port.node_name === "r02-u01").node_uuid,
    address: "02:ff:00:00:00:01", local_link_connection: record("Ethernet30/1") });
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

test("what is wrong stands out, in words", async () => {
  const page = await browser.open(`${server.url}/ui/topology`);
  await page.getByText("2 switches, 16 machines").waitFor();
  await page.locator('[data-trouble="moved"]').getByText(/r01-u03 .* its record says leaf-1 Ethernet40\/1/).waitFor();
  await page.locator('[data-trouble="missing"]').getByText(/r02-u01 .* heard nothing/).waitFor();
  await isSound(page, "topology");
  await picture(page, "topology");
});

test("it zooms, moves and finds", async () => {
  const page = await browser.open(`${server.url}/ui/topology`, { theme: "light" });
  const canvas = page.getByRole("application");
  await canvas.focus();
  const scale = async () => Number(await canvas.getAttribute("data-scale"));
  const first = await scale();
  await page.keyboard.press("+");
  await until("it is larger", async () => (await scale()) > first);
  await page.keyboard.press("0");
  await until("all of it is shown", async () => (await scale()) === first);
  await page.getByRole("searchbox", { name: "Find in the topology" }).fill("r02-u05");
  await page.locator('[data-found="2"]').waitFor();
  await until("it comes near", async () => (await scale()) >= 0.9);
  await isSound(page, "topology in light");
  await picture(page, "topology-found");
});

test("the list has the same", async () => {
  const page = await browser.open(`${server.url}/ui/topology?look=list`);
  const table = page.getByRole("region", { name: "Table: Ports of leaf-1" });
  await table.getByRole("row").nth(1).waitFor();
  const ports = await table.locator("tbody tr td:first-child").allInnerTexts();
  assert.deepEqual(ports.slice(0, 3), ["Ethernet1/1", "Ethernet2/1", "Ethernet3/1"], "in the order of the switch");
  assert.equal(ports.length, 17);
  await isSound(page, "topology as a list");
  await page.getByRole("searchbox", { name: "Find in the topology" }).fill("missing");
  await until("one is left", async () => (await page.locator("tbody tr").count()) === 1);
});
