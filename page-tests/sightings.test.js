// SPDX-License-Identifier: Apache-2.0
// Unknown machines: they report, are listed, and are enrolled with their inventory.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";

const fixture = useFixture();

/** Sends inspection data of a machine that is not enrolled. */
async function reportInventory(mac, serial) {
  const inventory = {
    interfaces: [{ name: "eno1", mac_address: mac, ipv4_address: "10.0.0.21", has_carrier: true }],
    cpu: { count: 64, architecture: "x86_64" },
    memory: { physical_mb: 262144 },
    disks: [{ name: "/dev/nvme0n1", size: 960e9 }],
    bmc_address: "10.1.0.7",
    system_vendor: { manufacturer: "Acme", product_name: "Anvil R640", serial_number: serial },
    boot: { current_boot_mode: "uefi", pxe_interface: mac },
  };
  const response = await fetch(`${fixture.server.url}/v1/continue_inspection`, {
    method: "POST",
    body: JSON.stringify({ inventory }),
    headers: {
      "Content-Type": "application/json",
      "X-OpenStack-Ironic-API-Version": "latest",
    },
  });
  assert.equal(response.status, 404, "no inspection is waiting for it");
}

test("lists and enrols an unknown machine", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/sightings`);
  await page.getByText("No unknown machines").waitFor();
  await checkPage(page, "no unknown machines");
  await reportInventory("52:54:00:ee:00:01", "SN-001");
  await reportInventory("52:54:00:ee:00:02", "SN-002");
  const tile = page.locator('[data-mac="52:54:00:ee:00:01"]');
  await tile.getByText("256 GiB").waitFor();
  await checkPage(page, "unknown machines");
  await screenshot(page, "sightings");

  await tile.getByRole("button", { name: /^Enrol/ }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("BMC address").inputValue(), "https://10.1.0.7");
  await dialog.getByLabel("Name").fill("not a name!");
  await dialog.locator("[data-confirm]").click();
  await dialog.getByRole("alert").getByText(/name/).waitFor();
  await checkPage(page, "rejected enrolment");
  await dialog.getByLabel("Name").fill("r09-u01");
  await dialog.getByLabel("User").fill("admin");
  await dialog.getByLabel("Password").fill("secret");
  await screenshot(page, "enrol");
  await dialog.locator("[data-confirm]").click();
  await page.waitForURL(/\/ui\/machines\/r09-u01$/);
  await page.locator('[data-provision-state="enroll"]').waitFor();
  const node = await server.request("GET", "/v1/nodes/r09-u01");
  assert.deepEqual(
    [node.driver, node.driver_info.redfish_address, node.driver_info.redfish_password],
    ["redfish", "https://10.1.0.7", "******"],
  );
  const { ports } = await server.request("GET", `/v1/nodes/${node.uuid}/ports`);
  assert.deepEqual(
    ports.map((port) => port.address),
    ["52:54:00:ee:00:01"],
  );
  const { inventory } = await server.request("GET", `/v1/nodes/${node.uuid}/inventory`);
  assert.equal(inventory.system_vendor.serial_number, "SN-001");
});

test("links enrolled machines and removes unknown ones", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/sightings?enrolled=1`, { theme: "light" });
  await page
    .locator('[data-mac="52:54:00:ee:00:01"]')
    .getByRole("link", { name: "Show machine" })
    .waitFor();
  await checkPage(page, "unknown machines, light");
  await screenshot(page, "sightings-enrolled");
  await page.getByRole("button", { name: "Remove 52:54:00:ee:00:02" }).click();
  await page.locator('[data-mac="52:54:00:ee:00:02"]').waitFor({ state: "detached" });
});
