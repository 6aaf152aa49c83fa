// SPDX-License-Identifier: Apache-2.0
// The fleet view: it shows what there is, it is live, it filters, and it acts on many machines.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

const MACHINES = 24;
let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  await server.simulate(MACHINES, { more: ["--powered-on"] });
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

const number = (page, selector) => page.locator(selector).innerText().then((text) => Number(/\d+$/.exec(text.trim())?.[0]),
  () => 0);

test("machines appear, move as they are driven, and are powered off together", async () => {
  const page = await browser.open(`${server.url}/ui`);
  await page.locator('[data-state="enroll"]').waitFor();
  assert.equal(await number(page, '[data-state="enroll"]'), MACHINES);

  // Driven from elsewhere: the page follows without being touched.
  await everybody(server.ask, "manage", "manageable");
  await until("the page shows it", async () => (await number(page, '[data-state="manageable"]')) === MACHINES);
  await until("the power is known", async () => (await number(page, '[data-count="on"]')) === MACHINES);
  await isSound(page, "fleet as a grid");
  await picture(page, "fleet-grid");

  await page.getByRole("searchbox", { name: "Filter machines" }).fill("r01-u[01-05]");
  await until("five are left", async () => (await page.locator("[data-total]").innerText()).startsWith("5 of"));
  await page.getByRole("button", { name: "Table" }).click();
  assert.equal(await page.locator("[data-node]").count(), 5);
  await page.reload();
  await page.locator("[data-node]").first().waitFor();
  assert.equal(await page.locator("[data-node]").count(), 5, "the address remembers");

  await page.keyboard.press("Control+a");
  await page.locator('[data-selected="5"]').waitFor();
  await page.getByRole("toolbar").getByRole("button", { name: "Power", exact: true }).click();
  await page.getByRole("menuitem", { name: "Power off" }).click();
  await page.locator('[data-possible="5"]').waitFor();
  await isSound(page, "confirmation");
  await picture(page, "bulk-confirmation");
  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="over"][data-done="5"]').waitFor({ timeout: 60_000 });
  await picture(page, "bulk-progress");
  const { nodes } = await server.ask("GET", "/v1/nodes?fields=name,power_state");
  const off = nodes.filter((node) => node.power_state === "power off").map((node) => node.name).sort();
  assert.deepEqual(off, ["r01-u01", "r01-u02", "r01-u03", "r01-u04", "r01-u05"]);
  await page.getByRole("button", { name: "Done" }).click();
  await isSound(page, "fleet as a table");
});

test("what is refused is said before anything happens", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?look=table&q=r02-u01`, { theme: "light" });
  await page.locator("[data-node]").waitFor();
  await page.keyboard.press("Control+a");
  await page.getByRole("button", { name: "Undeploy" }).click();
  await page.locator('[data-refused="1"]').waitFor();
  await page.getByText(/can not be performed on node … while it is in state "manageable"/).waitFor();
  assert.ok(await page.locator("[data-confirm]").isDisabled());
  await isSound(page, "refused in light");
});

test("keys move, select and open, and the search finds a card", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?size=m`);
  const grid = page.getByRole("listbox", { name: "Machines" });
  await grid.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("Shift+ArrowRight");
  await page.keyboard.press("Shift+ArrowRight");
  await page.locator('[data-selected="3"]').waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/ui\/machines\/r01-u03$/);

  const { ports } = await server.ask("GET", "/v1/ports?detail=true");
  const port = ports.at(-1);
  const node = await server.ask("GET", `/v1/nodes/${port.node_uuid}`);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search machines and pages" }).fill(port.address);
  await page.getByRole("option").filter({ hasText: node.name }).waitFor();
  await isSound(page, "palette");
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`/ui/machines/${node.name}$`));
});

test("a lost connection is seen, and found again", async () => {
  const page = await browser.open(`${server.url}/ui/fleet`);
  await page.locator('[data-connection="live"]').waitFor();
  await page.context().setOffline(true);
  // An open stream outlives the loss of the network until it is used: end it as the server would.
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await page.locator('[data-connection="lost"]').waitFor();
  await page.context().setOffline(false);
  await page.locator('[data-connection="live"]').waitFor({ timeout: 30_000 });
});

test("pages have titles, and keys come to the page without the navigation", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?look=table`);
  await page.getByText("Live", { exact: true }).waitFor();
  assert.equal(await page.title(), "Fleet · Ferrite");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Skip to the page" }).press("Enter");
  assert.ok(await page.locator("#main").evaluate((it) => it === document.activeElement));
  await page.goto(`${server.url}/ui/machines/r01-u01`);
  await until("it has a title", async () => (await page.title()) === "r01-u01 · Machine · Ferrite");
});

test("it fits a phone", async () => {
  const page = await browser.open(`${server.url}/ui/fleet`, { width: 390, height: 844 });
  await page.locator("[data-node]").first().waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing sticks out");
  await isSound(page, "fleet on a phone");
  await picture(page, "fleet-phone");
});

test("it appears although the server answers before the first paint", async () => {
  const page = await browser.open(`${server.url}/ui/fleet`, {
    first: () => { globalThis.requestAnimationFrame = (paint) => setTimeout(paint, 500); },
  });
  await page.getByRole("heading", { name: "Fleet" }).waitFor();
});
