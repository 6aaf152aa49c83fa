// SPDX-License-Identifier: Apache-2.0
// The topology page: the map with zoom and search, the list, and deviations from the records.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const fixture = useFixture({}, async ({ server }) => {
  await server.simulate(16);
  await provisionAll(server.request, ["manage", "manageable"], ["inspect", "manageable"]);
  const {
    switches: [leaf],
  } = await server.request("GET", "/v1/ferrite/topology");
  const portOf = (name) => leaf.ports.find((port) => port.node_name === name);
  const connection = (port) => ({ switch_id: leaf.id, switch_info: leaf.name, port_id: port });
  // One port is recorded elsewhere, and one has no link.
  await server.request("PATCH", `/v1/ports/${portOf("r01-u03").port_uuid}`, [
    { op: "add", path: "/local_link_connection", value: connection("Ethernet40/1") },
  ]);
  await server.request("POST", "/v1/ports", {
    node_uuid: portOf("r02-u01").node_uuid,
    address: "02:ff:00:00:00:01",
    local_link_connection: connection("Ethernet30/1"),
  });
});
const open = (path, options) => fixture.browser.open(`${fixture.server.url}/ui/${path}`, options);
const searchField = (page) => page.getByRole("searchbox", { name: "Search the topology" });

test("describes deviations from the records", async () => {
  const page = await open("topology");
  await page.getByText("2 switches, 16 machines").waitFor();
  await page
    .locator('[data-problem="moved"]')
    .getByText(/r01-u03 .* but leaf-1 Ethernet40\/1 is recorded/)
    .waitFor();
  await page
    .locator('[data-problem="missing"]')
    .getByText(/r02-u01 .* received no LLDP/)
    .waitFor();
  await checkPage(page, "topology");
  await screenshot(page, "topology");
});

test("zooms the map and centres search results", async () => {
  const page = await open("topology", { theme: "light" });
  const canvas = page.getByRole("application");
  await canvas.focus();
  const scale = async () => Number(await canvas.getAttribute("data-scale"));
  const initial = await scale();
  await page.keyboard.press("+");
  await waitFor("the map is larger", async () => (await scale()) > initial);
  await page.keyboard.press("0");
  await waitFor("the whole map is shown", async () => (await scale()) === initial);
  await searchField(page).fill("r02-u05");
  await page.locator('[data-found="2"]').waitFor();
  await waitFor("the result is enlarged", async () => (await scale()) >= 0.9);
  await checkPage(page, "topology, light");
  await screenshot(page, "topology-found");
});

test("lists the same ports", async () => {
  const page = await open("topology?look=list");
  const table = page.getByRole("region", { name: "Table: Ports of leaf-1" });
  await table.getByRole("row").nth(1).waitFor();
  const ports = await table.locator("tbody tr td:first-child").allInnerTexts();
  assert.deepEqual(
    ports.slice(0, 3),
    ["Ethernet1/1", "Ethernet2/1", "Ethernet3/1"],
    "in numeric order",
  );
  assert.equal(ports.length, 17);
  await checkPage(page, "topology list");
  await screenshot(page, "topology-list");
  await searchField(page).fill("missing");
  await waitFor("one port is left", async () => (await page.locator("tbody tr").count()) === 1);
});
