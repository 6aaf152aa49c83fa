// SPDX-License-Identifier: Apache-2.0
// Machines whose BMC does not respond: one notice with the cause, and a counter in the fleet.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, stopProcess, waitFor } from "./support/server.js";

const MACHINES = 4;
const config = `[conductor]
sync_power_state_interval = 1
power_state_timeout = 2
[lifecycle]
power_state_sync_max_retries = 1
`;

const fixture = useFixture({ config }, async ({ server }) => {
  const simulator = await server.simulate(MACHINES);
  await provisionAll(server.request, ["manage", "manageable"]);
  await stopProcess(simulator);
  await waitFor("all nodes have a fault", async () => {
    const { nodes } = await server.request("GET", "/v1/nodes?fields=fault");
    return nodes.every((node) => node.fault === "power failure");
  });
});

test("the fleet counts unreachable BMCs", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/fleet?look=table`);
  const counter = page.locator('[data-count="power failure"]');
  await counter.filter({ hasText: `BMC unreachable ${MACHINES}` }).waitFor();
  await page.locator('[data-node="r01-u02"]').getByText("BMC unreachable").waitFor();
  await checkPage(page, "fleet with unreachable BMCs");
  await screenshot(page, "fleet-bmc-unreachable");
});

test("the machine page shows one notice with the cause", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/machines/r01-u02`);
  const notice = page.locator('[data-fault="power failure"]');
  await notice.getByText("BMC unreachable").waitFor();
  assert.equal(await page.locator(".machine-head .notice").count(), 1);
  assert.doesNotMatch(await notice.innerText(), /failed to/, "only the cause is shown");
  const power = page.getByRole("region", { name: "Power" });
  await power.getByText("health unknown").waitFor();
  await checkPage(page, "machine with an unreachable BMC");
  await screenshot(page, "machine-bmc-unreachable");
});
