// SPDX-License-Identifier: Apache-2.0
// The console of a machine: it is seen, it is typed at, and what it said is in the timeline.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  await server.simulate(1, { speed: 8, more: ["--ipmi"] });
  await server.ask("PATCH", "/v1/nodes/r01-u01", [{ op: "add", path: "/console_interface", value: "ipmitool-socat" }]);
  await everybody(server.ask, "manage", "manageable");
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

const paper = (page) => page.getByRole("log", { name: "What the console says" });
const says = (page, words) => until(`the console says ${words}`, async () => (await paper(page).innerText()).includes(words));

test("a console is switched on, looked at and typed at", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01?tab=console`);
  await page.getByRole("button", { name: "Switch on" }).click();
  await page.locator('[data-console-state="live"]').waitFor();
  await says(page, "[the machine is off]");
  await server.ask("PUT", "/v1/nodes/r01-u01/states/power", { target: "power on" });
  await says(page, "Testing hardware");
  await says(page, "login: ");
  const keys = page.getByRole("textbox", { name: /Type at the console/ });
  await paper(page).click();
  assert.ok(await keys.evaluate((it) => it === document.activeElement), "a click is enough to type");
  // What else the page does with a slash is not meant here.
  await page.keyboard.type("hello world/0");
  await says(page, "login: hello world/0");
  await page.keyboard.press("Enter");
  await until("there is a new prompt", async () => (await paper(page).innerText()).match(/login: /g).length > 1);
  await isSound(page, "console");
  await picture(page, "machine-terminal");
  // Whoever has no mouse gets out again.
  await page.keyboard.press("Control+]");
  assert.deepEqual(await page.getByLabel("Size").evaluate((it) => [document.activeElement === it, it.value]), [true, "80×24"]);
  // What was said is there for whoever comes later.
  const later = await browser.open(`${server.url}/ui/machines/r01-u01?tab=console`, { theme: "light" });
  await says(later, "login: hello world");
  await isSound(later, "console in light");
});

test("a connection that is lost comes back by itself", async () => {
  const page = await browser.open(`${server.url}/ui/fleet`);
  await page.route("**/v1/ferrite/nodes/*/console", (route) => route.fulfill({ contentType: "text/event-stream",
    body: 'event: output\ndata: "only half"\n\n' }));
  await page.goto(`${server.url}/ui/machines/r01-u01?tab=console`);
  await page.locator('[data-console-state="lost"]').waitFor();
  await page.getByText("connection lost; trying again").waitFor();
  await says(page, "only half");
  await page.unroute("**/v1/ferrite/nodes/*/console");
  await page.locator('[data-console-state="live"]').waitFor();
  await says(page, "login: hello world");
  assert.ok(!(await paper(page).innerText()).includes("only half"), "it begins anew");
});

test("a connection that fell silent is made anew", async () => {
  const page = await browser.open("about:blank");
  // Nothing comes from a server that a stream was opened to, as behind a lost VPN.
  await page.addInitScript(() => {
    const { fetch } = globalThis;
    let isFirst = true;
    globalThis.fetch = (path, options) => {
      if (!String(path).endsWith("/console") || options?.method || !isFirst) return fetch(path, options);
      isFirst = false;
      return Promise.resolve(new Response(new ReadableStream({ start() { globalThis.isSilent = true; } })));
    };
  });
  await page.clock.install();
  await page.goto(`${server.url}/ui/machines/r01-u01?tab=console`);
  await until("it is silent", async () => { await page.clock.runFor(100); return page.evaluate(() => globalThis.isSilent); });
  await until("it is made anew", async () => { await page.clock.runFor(10_000); return (await paper(page).innerText()).includes("login: "); });
});

test("a reset at the console leaves a terminal that works", async () => {
  const page = await browser.open("about:blank");
  const lines = Array.from({ length: 3000 }, (_, line) => `${line}\r\n`).join("");
  await page.route("**/v1/ferrite/nodes/*/console", (route) => route.fulfill({ contentType: "text/event-stream",
    body: [lines, "\x1bcafter the reset"].map((text) => `event: output\ndata: ${JSON.stringify(text)}\n\n`).join("") }));
  await page.goto(`${server.url}/ui/machines/r01-u01?tab=console`);
  await says(page, "after the reset");
});

test("what it said is in the timeline", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01`);
  await page.getByLabel("Lane").selectOption("console");
  const entry = page.locator(".entry.lane-console").filter({ hasText: "Testing hardware" });
  await entry.first().waitFor();
  await page.getByRole("searchbox", { name: "Filter entries" }).fill("processors,");
  await entry.first().getByText("all lines").click();
  await entry.first().getByText(/GiB of memory/).waitFor();
  await isSound(page, "console text in the timeline");
  await picture(page, "machine-timeline-console");
});

test("a console that is switched off says so", async () => {
  const page = await browser.open(`${server.url}/ui/machines/r01-u01?tab=console`);
  await page.locator('[data-console-state="live"]').waitFor();
  await server.ask("PUT", "/v1/nodes/r01-u01/states/console", { enabled: false });
  await page.getByText("The console is off.").waitFor();
  await page.getByRole("button", { name: "Switch on" }).waitFor();
});
