// SPDX-License-Identifier: Apache-2.0
// The fleet page: live updates, filters, selection, bulk actions and the search dialog.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkFitsWidth, checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const MACHINES = 24;
const fixture = useFixture({}, ({ server }) =>
  server.simulate(MACHINES, { options: ["--powered-on"] }),
);
const open = (path, options) => fixture.browser.open(`${fixture.server.url}/ui/${path}`, options);

const countIn = (page, selector) =>
  page
    .locator(selector)
    .innerText()
    .then(
      (text) => Number(/\d+$/.exec(text.trim())?.[0]),
      () => 0,
    );

test("follows state changes and powers machines off in bulk", async () => {
  const { server } = fixture;
  const page = await open("");
  await page.locator('[data-state="enroll"]').waitFor();
  assert.equal(await countIn(page, '[data-state="enroll"]'), MACHINES);

  await provisionAll(server.request, ["manage", "manageable"]);
  await waitFor(
    "the page shows the new state",
    async () => (await countIn(page, '[data-state="manageable"]')) === MACHINES,
  );
  await waitFor(
    "the power states are known",
    async () => (await countIn(page, '[data-count="on"]')) === MACHINES,
  );
  await checkPage(page, "fleet grid");
  // The highlight of changed cells fades.
  await page.waitForTimeout(1500);
  await screenshot(page, "fleet-grid");

  await page.getByRole("searchbox", { name: "Filter machines" }).fill("r01-u[01-05]");
  await waitFor("five machines are left", async () =>
    (await page.locator("[data-total]").innerText()).startsWith("5 of"),
  );
  await page.getByRole("button", { name: "Table" }).click();
  assert.equal(await page.locator("[data-node]").count(), 5);
  await page.reload();
  await page.locator("[data-node]").first().waitFor();
  assert.equal(await page.locator("[data-node]").count(), 5, "the filter is part of the address");

  await page.keyboard.press("Control+a");
  await page.locator('[data-selected="5"]').waitFor();
  await page.getByRole("toolbar").getByRole("button", { name: "Power", exact: true }).click();
  await page.getByRole("menuitem", { name: "Power off" }).click();
  await page.locator('[data-possible="5"]').waitFor();
  await checkPage(page, "bulk confirmation");
  await screenshot(page, "bulk-confirmation");
  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="over"][data-done="5"]').waitFor();
  await screenshot(page, "bulk-progress");
  const { nodes } = await server.request("GET", "/v1/nodes?fields=name,power_state");
  const off = nodes.filter((node) => node.power_state === "power off").map((node) => node.name);
  assert.deepEqual(off.sort(), ["r01-u01", "r01-u02", "r01-u03", "r01-u04", "r01-u05"]);
  await page.getByRole("button", { name: "Done" }).click();
  await checkPage(page, "fleet table");
});

test("shows rejections before an action starts", async () => {
  const page = await open("fleet?look=table&q=r02-u01", { theme: "light" });
  await page.locator("[data-node]").waitFor();
  await page.keyboard.press("Control+a");
  await page.getByRole("button", { name: "Undeploy" }).click();
  await page.locator('[data-rejected="1"]').waitFor();
  await page
    .getByText(/can not be performed on node … while it is in state "manageable"/)
    .waitFor();
  assert.ok(await page.locator("[data-confirm]").isDisabled());
  await checkPage(page, "rejection, light");
  await screenshot(page, "bulk-rejected");
});

test("checkboxes of the table show the selection", async () => {
  const page = await open("fleet?look=table&q=r02");
  const box = (name) => page.getByRole("checkbox", { name: `Select ${name}` });
  const checked = async () => {
    const all = await page.locator("[data-node] input").all();
    return Promise.all(all.map((input) => input.isChecked()));
  };
  await box("r02-u01").click();
  await page.locator('[data-selected="1"]').waitFor();
  assert.deepEqual(await checked(), [true, false, false, false, false, false, false, false]);
  await box("r02-u03").click({ modifiers: ["Shift"] });
  await page.locator('[data-selected="3"]').waitFor();
  assert.deepEqual(await checked(), [true, true, true, false, false, false, false, false]);
  await screenshot(page, "fleet-table-selected");
  // A range that leaves the clicked row selected keeps it ticked.
  await box("r02-u03").click({ modifiers: ["Shift"] });
  assert.deepEqual(await checked(), [true, true, true, false, false, false, false, false]);
  await box("r02-u02").click();
  await page.locator('[data-selected="2"]').waitFor();
  assert.deepEqual(await checked(), [true, false, true, false, false, false, false, false]);
  await page.getByRole("checkbox", { name: "Select all 8" }).click();
  await page.locator('[data-selected="8"]').waitFor();
  assert.ok((await checked()).every(Boolean));
});

test("selects and opens with keys, and finds a machine by MAC address", async () => {
  const { server } = fixture;
  const page = await open("fleet?size=m");
  await page.getByRole("listbox", { name: "Machines" }).focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  await page.locator('[data-selected="3"]').waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/ui\/machines\/r01-u03$/);

  const { ports } = await server.request("GET", "/v1/ports?detail=true");
  const port = ports.at(-1);
  const node = await server.request("GET", `/v1/nodes/${port.node_uuid}`);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search machines and pages" }).fill(port.address);
  await page.getByRole("option").filter({ hasText: node.name }).waitFor();
  await checkPage(page, "search dialog");
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`/ui/machines/${node.name}$`));
});

test("the search dialog has small icons", async () => {
  const page = await open("fleet");
  await page.locator("[data-state]").first().waitFor();
  await page.keyboard.press("Control+k");
  const dialog = page.getByRole("dialog", { name: "Search" });
  await dialog.getByRole("option").first().waitFor();
  await screenshot(page, "search-dialog");
  for (const icon of await page.locator(".palette li svg").all()) {
    const { width, height } = await icon.boundingBox();
    assert.deepEqual([width, height], [16, 16]);
  }
  await page.getByRole("combobox", { name: "Search machines and pages" }).fill("r02");
  await page.getByRole("option").filter({ hasText: "r02-u08" }).waitFor();
  await screenshot(page, "search-dialog-results");
});

test("Escape closes the filter menu and keeps the selection", async () => {
  const page = await open("fleet?look=table&q=r03");
  await page.locator("[data-node]").first().waitFor();
  await page.keyboard.press("Control+a");
  await page.locator('[data-selected="8"]').waitFor();
  const button = page.getByRole("button", { name: "Add filter" });
  await button.click();
  const menu = page.getByRole("menu", { name: "Add filter" });
  await menu.waitFor();
  await screenshot(page, "fleet-filter-menu");
  await page.keyboard.press("Escape");
  await menu.waitFor({ state: "detached" });
  assert.ok(await button.evaluate((element) => element === document.activeElement));
  await page.locator('[data-selected="8"]').waitFor();
});

test("messages are above the backdrop of a dialog", async () => {
  const page = await open("fleet?look=table&q=r03-u01");
  await page.locator("[data-node]").waitFor();
  await page.keyboard.press("Control+a");
  await page.getByRole("toolbar").getByRole("button", { name: "Power", exact: true }).click();
  await page.getByRole("menuitem", { name: "Reboot" }).click();
  await page.locator('[data-possible="1"]').waitFor();
  await page.route("**/v1/ferrite/fleet*", (route) =>
    route.fulfill({ status: 503, json: { error: { message: "Overloaded." } } }),
  );
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  const toast = page.locator(".toast").filter({ hasText: "Overloaded." });
  await toast.waitFor();
  await screenshot(page, "toast-above-dialog");
  // A modal dialog makes the rest of the page inert, so hit testing does not find the message.
  const isInTopLayer = await page
    .locator(".toasts")
    .evaluate((element) => element.matches(":popover-open"));
  assert.ok(isInTopLayer);
});

test("reports a lost connection and reconnects", async () => {
  const page = await open("fleet");
  await page.locator('[data-connection="live"]').waitFor();
  await page.context().setOffline(true);
  // An open stream would notice the loss of the network only when it is used.
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await page.locator('[data-connection="lost"]').waitFor();
  await screenshot(page, "connection-lost");
  await page.context().setOffline(false);
  await page.locator('[data-connection="live"]').waitFor();
});

test("pages have titles, and the skip link focuses the content", async () => {
  const page = await open("fleet?look=table");
  await page.getByText("Live", { exact: true }).waitFor();
  assert.equal(await page.title(), "Fleet · Ferrite");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Skip to content" }).press("Enter");
  assert.ok(await page.locator("#main").evaluate((element) => element === document.activeElement));
  await page.goto(`${fixture.server.url}/ui/machines/r01-u01`);
  await waitFor(
    "the page has a title",
    async () => (await page.title()) === "r01-u01 · Machine · Ferrite",
  );
});

test("fits a phone", async () => {
  const page = await open("fleet", { width: 390, height: 844 });
  await page.locator("[data-node]").first().waitFor();
  await checkFitsWidth(page, "fleet on a phone");
  await checkPage(page, "fleet on a phone");
  await screenshot(page, "fleet-phone");
});

test("renders although the response arrives before the first paint", async () => {
  const page = await open("fleet", {
    initScript: () => {
      globalThis.requestAnimationFrame = (paint) => setTimeout(paint, 500);
    },
  });
  await page.getByRole("heading", { name: "Fleet" }).waitFor();
});
