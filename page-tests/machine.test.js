// SPDX-License-Identifier: Apache-2.0
// The machine page: a deployment with its timeline, power, setup, configuration and logs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const config = "[lifecycle]\nmax_concurrent_deploy = 1\n";
const fixture = useFixture({ config }, async ({ server }) => {
  await server.simulate(8, { speed: 8 });
  await provisionAll(
    server.request,
    ["manage", "manageable"],
    ["inspect", "manageable"],
    ["provide", "available"],
  );
});
const open = (path, options) =>
  fixture.browser.open(`${fixture.server.url}/ui/machines/${path}`, options);
const getNode = (name) => fixture.server.request("GET", `/v1/nodes/${name}`);
const biosValue = async (name) => {
  const where = `/v1/nodes/${name}/bios/ProcHyperthreading`;
  return (await fixture.server.request("GET", where)).ProcHyperthreading.value;
};

test("deploys a machine and shows the timeline", async () => {
  const page = await open("r01-u01");
  await page.getByRole("button", { name: "Deploy…" }).click();
  await page.getByRole("list", { name: "Planned steps" }).getByText("writes the image").waitFor();
  await checkPage(page, "plan of a deployment");
  await screenshot(page, "deploy-plan");
  await page.locator("[data-confirm]").click();
  const waiting = page.locator('[data-provision-state="wait call-back"]');
  await waiting.waitFor();
  assert.match(await waiting.innerText(), /waiting for agent/);
  await page
    .locator("[data-countdown]")
    .filter({ hasText: /timeout in \d+:\d\d/ })
    .waitFor();
  await screenshot(page, "machine-waiting");
  await page.locator('[data-provision-state="active"]').waitFor();

  const entries = page.locator(".entry");
  await waitFor("the timeline is complete", async () => (await entries.count()) > 30);
  await entries.filter({ hasText: "requested active" }).first().waitFor();
  const timeline = page.getByRole("application", { name: /Timeline/ });
  const before = await timeline.getAttribute("aria-label");
  await timeline.focus();
  await page.keyboard.press("+");
  await waitFor(
    "the chart zooms",
    async () => (await timeline.getAttribute("aria-label")) !== before,
  );
  await page.keyboard.press("0");
  await checkPage(page, "timeline");
  await screenshot(page, "machine-timeline");
  await page.getByRole("searchbox", { name: "Filter entries" }).fill("write_image");
  await waitFor("the list is filtered", async () => (await entries.count()) < 10);
});

test("powers a machine off", async () => {
  const page = await open("r01-u01", { theme: "light" });
  await page
    .getByRole("toolbar", { name: "Actions" })
    .getByRole("button", { name: "Power" })
    .click();
  await page.getByRole("menuitem", { name: "Power off" }).click();
  await page.locator("[data-confirm]").click();
  await waitFor(
    "the machine is off",
    async () => (await getNode("r01-u01")).power_state === "power off",
  );
  await page.getByRole("region", { name: "Power" }).getByText("off", { exact: true }).waitFor();
});

test("previews BIOS settings before they are applied", async () => {
  await fixture.server.request("PUT", "/v1/nodes/r01-u02/states/provision", { target: "manage" });
  const page = await open("r01-u02?tab=setup");
  await page.getByLabel("ProcHyperthreading").selectOption("Disabled");
  await page.getByRole("button", { name: "Preview 1…" }).click();
  await page.getByText("bios.apply_configuration", { exact: true }).waitFor();
  await checkPage(page, "plan of BIOS settings");
  await screenshot(page, "bios-plan");
  await page.locator("[data-confirm]").click();
  await waitFor("the setting is applied", async () => (await biosValue("r01-u02")) === "Disabled");
});

test("previews RAID volumes of an active machine as service steps", async () => {
  const page = await open("r01-u01?tab=setup");
  const raid = page.getByRole("region", { name: "RAID" });
  await raid.getByRole("button", { name: "Volume", exact: true }).click();
  assert.equal(await raid.getByLabel("Level").inputValue(), "1");
  await raid.getByRole("button", { name: "Preview…" }).click();
  await page.getByText("raid.apply_configuration", { exact: true }).waitFor();
  await waitFor("it can be confirmed", () => page.locator("[data-confirm]").isEnabled());
  await screenshot(page, "raid-plan");
});

test("runs a runbook on a machine with its trait", async () => {
  const { server } = fixture;
  const setting = { name: "ProcHyperthreading", value: "Disabled" };
  const args = { settings: [setting] };
  await server.request("POST", "/v1/runbooks", {
    name: "CUSTOM_NO_HYPERTHREADING",
    steps: [{ interface: "bios", step: "apply_configuration", order: 1, args }],
  });
  const page = await open("r01-u01?tab=setup");
  await page.getByText("No runbook has a trait of this machine.").waitFor();
  const traits = { traits: ["CUSTOM_PLAIN"] };
  await server.request("PUT", "/v1/runbooks/CUSTOM_NO_HYPERTHREADING/traits", traits);
  await server.request("PUT", "/v1/nodes/r01-u01/traits", traits);
  await page.reload();
  await page.getByRole("button", { name: "Preview CUSTOM_NO_HYPERTHREADING" }).click();
  await page.getByRole("dialog").getByText("bios.apply_configuration", { exact: true }).waitFor();
  await page.locator("[data-confirm]").click();
  await waitFor("the setting is applied", async () => (await biosValue("r01-u01")) === "Disabled");
  await waitFor(
    "the machine is active again",
    async () => (await getNode("r01-u01")).provision_state === "active",
  );
});

test("rejects an invalid BIOS value before the preview", async () => {
  const page = await fixture.browser.open("about:blank");
  const setting = {
    name: "Delay",
    value: "60",
    attribute_type: "Integer",
    lower_bound: 60,
    upper_bound: 600,
    read_only: false,
  };
  await page.route("**/v1/nodes/*/bios?detail=true", (route) =>
    route.fulfill({ json: { bios: [setting, { ...setting, name: "Fixed", read_only: true }] } }),
  );
  await page.goto(`${fixture.server.url}/ui/machines/r01-u02?tab=setup`);
  const preview = page.getByRole("button", { name: "Preview 1…" });
  await page.getByLabel("Delay").fill("9999");
  await page.getByText("Delay must be between 60 and 600.").waitFor();
  assert.ok(await preview.isDisabled());
  await screenshot(page, "bios-invalid");
  await page.getByLabel("Delay").fill("90");
  assert.ok(await preview.isEnabled());
  const background = (label) =>
    page.getByLabel(label).evaluate((element) => getComputedStyle(element).backgroundColor);
  assert.notEqual(await background("Delay"), await background("Fixed"), "read-only is grey");
});

test("all tabs open without errors in both themes", async () => {
  const tabs = [
    "timeline",
    "hardware",
    "network",
    "setup",
    "console",
    "logs",
    "history",
    "configuration",
  ];
  for (const theme of ["dark", "light"]) {
    for (const tab of tabs) {
      const page = await open(`r01-u01?tab=${tab}`, { theme });
      await page.getByRole("tabpanel").locator(":scope > *").first().waitFor();
      await waitFor("all is loaded", async () => (await page.locator(".loading").count()) === 0);
      await checkPage(page, `${tab}, ${theme}`);
      await screenshot(page, `machine-tab-${tab}-${theme}`);
      await page.context().close();
    }
  }
});

test("the history shows durations below a second", async () => {
  const page = await open("r01-u01?tab=history");
  const durations = page.locator("tbody td:nth-child(4)");
  await durations.first().waitFor();
  const texts = await durations.allInnerTexts();
  assert.ok(texts.includes("< 1 s"), texts.join());
  assert.ok(!texts.includes("0 ms"), texts.join());
});

test("finds a machine by its serial number", async () => {
  const { server, browser } = fixture;
  const { inventory } = await server.request("GET", "/v1/nodes/r01-u04/inventory");
  const serial = inventory.system_vendor.serial_number.toLowerCase();
  const page = await browser.open(`${server.url}/ui/fleet`);
  await page.locator("[data-state]").first().waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox", { name: "Search machines and pages" }).fill(serial);
  await page.getByRole("option").filter({ hasText: "serial number" }).click();
  await page.waitForURL(/\/ui\/machines\/r01-u04$/);
});

test("changes fields without overwriting masked secrets", async () => {
  const page = await open("r01-u03?tab=configuration");
  const editor = page.getByLabel("driver_info as JSON");
  const before = JSON.parse(await editor.inputValue());
  await editor.fill("{ nonsense");
  assert.equal(await editor.getAttribute("aria-invalid"), "true");
  await editor.fill(JSON.stringify({ ...before, note: "by the test" }));
  await page
    .getByRole("region", { name: "driver_info", exact: true })
    .getByRole("button", { name: "Save" })
    .click();
  await waitFor(
    "the change is stored",
    async () => (await getNode("r01-u03")).driver_info.note === "by the test",
  );
  await fixture.server.request("PUT", "/v1/nodes/r01-u03/states/provision", { target: "manage" });
  await waitFor(
    "the password still works",
    async () => (await getNode("r01-u03")).provision_state === "manageable",
  );
});

test("shows the ramdisk log as it arrives", async () => {
  // Simulated agents send no log.
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/fleet`);
  let number = 0;
  await page.route("**/logs/live*", (route) => {
    number += 1;
    const lines = number < 4 ? [`line ${number}`] : [];
    return route.fulfill({ json: { received_at: new Date().toISOString(), next: number, lines } });
  });
  await page.goto(`${server.url}/ui/machines/r01-u01?tab=logs`);
  const log = page.getByRole("log", { name: "Ramdisk log" });
  await waitFor(
    "all lines are there",
    async () => (await log.innerText()).trim() === "line 1\nline 2\nline 3",
  );
  await checkPage(page, "live log");
  await screenshot(page, "machine-live-log");
});

test("shows journal events of an unknown kind as they arrive", async () => {
  const { server, browser } = fixture;
  const page = await browser.open("about:blank");
  const { uuid } = await getNode("r01-u05");
  const event = {
    seq: 1_000_000_000,
    at: new Date().toISOString(),
    node_uuid: uuid,
    actor: { kind: "conductor", hostname: "test" },
    event: { kind: "from_a_newer_server", detail: "something new" },
  };
  await page.route("**/v1/ferrite/events?*", (route) =>
    route.fulfill({
      contentType: "text/event-stream",
      body: `id: ${event.seq}\nevent: ${event.event.kind}\ndata: ${JSON.stringify(event)}\n\n`,
    }),
  );
  await page.goto(`${server.url}/ui/machines/r01-u05`);
  await page.locator(".entry").filter({ hasText: "from_a_newer_server" }).waitFor();
});

test("shows the position of a queued deployment", async () => {
  const { request } = fixture.server;
  const deploy = (name, body) =>
    request("PUT", `/v1/nodes/${name}/states/provision`, { target: "active", ...body });
  const hold = { interface: "deploy", step: "hold", args: {}, priority: 110 };
  await deploy("r01-u07", { deploy_steps: [hold] });
  await waitFor("the first deployment is held", async () => {
    return (await getNode("r01-u07")).provision_state === "deploy hold";
  });
  await deploy("r01-u08");
  const page = await open("r01-u08");
  await page
    .locator("[data-queue-position]")
    .filter({ hasText: "position 1 of 1 (deploy)" })
    .waitFor();
  await checkPage(page, "queued deployment");
  await screenshot(page, "machine-queued");
  await request("PUT", "/v1/nodes/r01-u07/states/provision", { target: "unhold" });
  await page.locator('[data-provision-state="active"]').waitFor();
});
