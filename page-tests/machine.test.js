// SPDX-License-Identifier: Apache-2.0
// The machine's page: a deployment is planned, started and watched, and its timeline can be read.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  await server.simulate(8, { speed: 8 });
  for (const [verb, state] of [["manage", "manageable"], ["inspect", "manageable"], ["provide",
    "available"]]) await everybody(server.ask, verb, state);
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

test("a deployment is planned, confirmed and watched", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01`);
  await page.getByRole("button", { name: "Deploy…" }).click();
  const plan = page.getByRole("list", { name: "What will happen, in order" });
  await plan.getByText("writes the image").waitFor();
  await isSound(page, "plan of a deployment");
  await picture(page, "deploy-plan");
  await page.locator("[data-confirm]").click();
  await page.locator('[data-provision-state="wait call-back"]').waitFor();
  await page.locator("[data-countdown]").waitFor();
  await picture(page, "machine-waiting");
  await page.locator('[data-provision-state="active"]').waitFor({ timeout: 60_000 });

  const entries = page.locator(".entry");
  await until("the timeline is there", async () => (await entries.count()) > 30);
  await entries.filter({ hasText: "asked for active" }).first().waitFor();
  const timeline = page.getByRole("application", { name: /Timeline/ });
  const earlier = await timeline.getAttribute("aria-label");
  await timeline.focus();
  await page.keyboard.press("+");
  assert.notEqual(await timeline.getAttribute("aria-label"), earlier, "it zooms");
  await page.keyboard.press("0");
  await page.getByRole("searchbox", { name: "Filter entries" }).fill("write_image");
  await until("only those are left", async () => (await entries.count()) < 10);
  await isSound(page, "timeline");
  await picture(page, "machine-timeline");
});

test("its power can be switched", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01`, { theme: "light" });
  await page.getByRole("toolbar", { name: "Actions" }).getByRole("button", { name: "Power" }).click();
  await page.getByRole("menuitem", { name: "Power off" }).click();
  await page.locator("[data-confirm]").click();
  await until("it is off", async () => (await server.ask("GET", "/v1/nodes/r01-u01")).power_state === "power off");
  await page.getByRole("region", { name: "Power" }).getByText("off", { exact: true }).waitFor();
});

test("BIOS settings show the plan before they are changed", async () => {
  await server.ask("PUT", "/v1/nodes/r01-u02/states/provision", { target: "manage" });
  const page = await browser.open(`${server.url}/ui/machines/r01-u02?tab=setup`);
  await page.getByLabel("ProcHyperthreading").selectOption("Disabled");
  await page.getByRole("button", { name: "Show the plan for 1…" }).click();
  await page.getByText("bios.apply_configuration", { exact: true }).waitFor();
  await isSound(page, "plan of BIOS settings");
  await picture(page, "bios-plan");
  await page.locator("[data-confirm]").click();
  await until("it is set", async () => (await server.ask("GET",
    "/v1/nodes/r01-u02/bios/ProcHyperthreading")).ProcHyperthreading.value === "Disabled");
});

test("a running machine gets volumes by the steps that service has", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01?tab=setup`);
  const raid = page.getByRole("region", { name: "RAID" });
  await raid.getByRole("button", { name: "Volume", exact: true }).click();
  await raid.getByRole("button", { name: "Show the plan…" }).click();
  await page.getByText("raid.apply_configuration", { exact: true }).waitFor();
  await until("it could be run", () => page.locator("[data-confirm]").isEnabled());
});

test("a runbook is run on a machine that has its trait", async () => {
  const setting = { name: "ProcHyperthreading", value: "Disabled" };
  await server.ask("POST", "/v1/runbooks", { name: "CUSTOM_NO_HYPERTHREADING",
    steps: [{ interface: "bios", step: "apply_configuration", order: 1, args: { settings: [setting] } }] });
  const page = await browser.open(`${server.url}/ui/machines/r01-u01?tab=setup`);
  await page.getByText("None of the runbooks has a trait of this machine.").waitFor();
  await server.ask("PUT", "/v1/runbooks/CUSTOM_NO_HYPERTHREADING/traits", { traits: ["CUSTOM_PLAIN"] });
  await server.ask("PUT", "/v1/nodes/r01-u01/traits", { traits: ["CUSTOM_PLAIN"] });
  await page.reload();
  await page.getByRole("button", { name: "Show the plan of CUSTOM_NO_HYPERTHREADING" }).click();
  await page.getByRole("dialog").getByText("bios.apply_configuration", { exact: true }).waitFor();
  await page.locator("[data-confirm]").click();
  await until("it is set", async () => (await server.ask("GET",
    "/v1/nodes/r01-u01/bios/ProcHyperthreading")).ProcHyperthreading.value === "Disabled");
  await until("it is done", async () => (await server.ask("GET", "/v1/nodes/r01-u01")).provision_state === "active");
});

test("a value that the BIOS does not take is said before the plan", async () => {
  const page = await browser.open("about:blank");
  await page.route("**/v1/nodes/*/bios?detail=true", (route) => route.fulfill({ json: { bios: [{ name: "Delay", value: "60",
    attribute_type: "Integer", lower_bound: 60, upper_bound: 600, read_only: false }] } }));
  await page.goto(`${server.url}/ui/machines/r01-u02?tab=setup`);
  await page.getByLabel("Delay").fill("9999");
  await page.getByText("Delay is 60 to 600.").waitFor();
  assert.ok(await page.getByRole("button", { name: "Show the plan for 1…" }).isDisabled());
  await page.getByLabel("Delay").fill("90");
  assert.ok(await page.getByRole("button", { name: "Show the plan for 1…" }).isEnabled());
});

test("every tab opens, dark and light, and is sound", async () => {
  for (const theme of ["dark", "light"]) {
    for (const tab of ["timeline", "hardware", "network", "setup", "console", "logs", "history", "configuration"]) {
      const page = await browser.open(`${server.url}/ui/machines/r01-u01?tab=${tab}`, { theme });
      await page.getByRole("tabpanel").locator(":scope > *").first().waitFor();
      await until("everything is there", async () => (await page.locator(".loading").count()) === 0);
      await isSound(page, `${tab} in ${theme}`);
      if (theme === "dark") await picture(page, `machine-${tab}`);
      await page.context().close();
    }
  }
});

test("a machine is found by its serial number", async () => {
  const { inventory } = await server.ask("GET", "/v1/nodes/r01-u04/inventory");
  const page = await browser.open(`${server.url}/ui/fleet`);
  await page.locator("[data-state]").first().waitFor();
  await page.keyboard.press("/");
  await page.getByRole("combobox", { name: "Search machines and pages" }).fill(inventory.system_vendor.serial_number.toLowerCase());
  await page.getByRole("option").filter({ hasText: "serial number" }).click();
  await page.waitForURL(/\/ui\/machines\/r01-u04$/);
});

test("fields are changed, and masks leave secrets alone", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u03?tab=configuration`);
  const editor = page.getByLabel("driver_info as JSON");
  const earlier = JSON.parse(await editor.inputValue());
  await editor.fill("{ nonsense");
  assert.equal(await editor.getAttribute("aria-invalid"), "true");
  await editor.fill(JSON.stringify({ ...earlier, note: "by the page" }));
  await page.getByRole("region", { name: "driver_info", exact: true }).getByRole("button", { name: "Save" }).click();
  await until("it is kept", async () => (await server.ask("GET", "/v1/nodes/r01-u03")).driver_info.note === "by the page");
  await server.ask("PUT", "/v1/nodes/r01-u03/states/provision", { target: "manage" });
  await until("the password still opens the BMC", async () => (await server.ask("GET",
    "/v1/nodes/r01-u03")).provision_state === "manageable");
});

test("what the ramdisk says right now is shown, line by line", async () => {
  // Simulated agents keep quiet; Ferrite's own sends its lines.
  const page = await browser.open(`${server.url}/ui/fleet`);
  let told = 0;
  await page.route("**/logs/live*", (route) => {
    told += 1;
    return route.fulfill({ json: { heard_at: new Date().toISOString(), next: told, lines: told < 4 ? [`line ${told}`] : [] } });
  });
  await page.goto(`${server.url}/ui/machines/r01-u01?tab=logs`);
  const log = page.getByRole("log", { name: "Lines of the ramdisk" });
  await until("all lines are there", async () => (await log.innerText()).trim() === "line 1\nline 2\nline 3");
  await isSound(page, "live log");
});
