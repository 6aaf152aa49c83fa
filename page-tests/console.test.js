// SPDX-License-Identifier: Apache-2.0
// The console of a machine: output, input, reconnects, and its record in the timeline.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const fixture = useFixture({}, async ({ server }) => {
  await server.simulate(1, { speed: 8, options: ["--ipmi"] });
  await server.request("PATCH", "/v1/nodes/r01-u01", [
    { op: "add", path: "/console_interface", value: "ipmitool-socat" },
  ]);
  await provisionAll(server.request, ["manage", "manageable"]);
});
const consoleUrl = () => `${fixture.server.url}/ui/machines/r01-u01?tab=console`;
const CONSOLE_API = "**/v1/ferrite/nodes/*/console";

const output = (page) => page.getByRole("log", { name: "Console output" });
const waitForOutput = (page, text) =>
  waitFor(`the console prints ${text}`, async () =>
    (await output(page).innerText()).includes(text),
  );
const fulfillEvents = (route, ...texts) =>
  route.fulfill({
    contentType: "text/event-stream",
    body: texts.map((text) => `event: output\ndata: ${JSON.stringify(text)}\n\n`).join(""),
  });

test("enables the console, shows output and sends input", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(consoleUrl());
  await page.getByRole("button", { name: "Enable" }).click();
  await page.locator('[data-console-state="live"]').waitFor();
  await waitForOutput(page, "[the machine is off]");
  await server.request("PUT", "/v1/nodes/r01-u01/states/power", { target: "power on" });
  await waitForOutput(page, "Testing hardware");
  await waitForOutput(page, "login: ");
  const input = page.getByRole("textbox", { name: /Console input/ });
  await output(page).click();
  assert.ok(
    await input.evaluate((element) => element === document.activeElement),
    "a click focuses the input",
  );
  // The slash must not open the search dialog.
  await page.keyboard.type("hello world/0");
  await waitForOutput(page, "login: hello world/0");
  await page.keyboard.press("Enter");
  await waitFor(
    "there is a new prompt",
    async () => (await output(page).innerText()).match(/login: /g).length > 1,
  );
  await checkPage(page, "console");
  await screenshot(page, "machine-terminal");
  // Keyboard users can leave the terminal.
  await page.keyboard.press("Control+]");
  const size = page.getByLabel("Size");
  assert.deepEqual(
    await size.evaluate((element) => [document.activeElement === element, element.value]),
    [true, "80×24"],
  );
  // Recorded output is shown to later visitors.
  const later = await browser.open(consoleUrl(), { theme: "light" });
  await waitForOutput(later, "login: hello world");
  await checkPage(later, "console, light");
});

test("reconnects after a lost connection", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/fleet`);
  await page.route(CONSOLE_API, (route) => fulfillEvents(route, "only half"));
  await page.goto(consoleUrl());
  await page.locator('[data-console-state="lost"]').waitFor();
  await page.getByText("connection lost, reconnecting").waitFor();
  await waitForOutput(page, "only half");
  await page.unroute(CONSOLE_API);
  await page.locator('[data-console-state="live"]').waitFor();
  await waitForOutput(page, "login: hello world");
  assert.ok(
    !(await output(page).innerText()).includes("only half"),
    "the recorded output replaces the old one",
  );
});

test("reconnects when the stream falls silent", async () => {
  const page = await fixture.browser.open("about:blank");
  // The first stream never sends anything, as after the loss of a VPN.
  await page.addInitScript(() => {
    const { fetch } = globalThis;
    let isFirst = true;
    globalThis.fetch = (path, options) => {
      if (!String(path).endsWith("/console") || options?.method || !isFirst)
        return fetch(path, options);
      isFirst = false;
      return Promise.resolve(
        new Response(
          new ReadableStream({
            start() {
              globalThis.isSilent = true;
            },
          }),
        ),
      );
    };
  });
  await page.clock.install();
  await page.goto(consoleUrl());
  await waitFor("the silent stream is open", async () => {
    await page.clock.runFor(100);
    return page.evaluate(() => globalThis.isSilent);
  });
  await waitFor("it reconnects", async () => {
    await page.clock.runFor(10_000);
    return (await output(page).innerText()).includes("login: ");
  });
});

test("renders output after a terminal reset", async () => {
  const page = await fixture.browser.open("about:blank");
  const lines = Array.from({ length: 3000 }, (_, line) => `${line}\r\n`).join("");
  await page.route(CONSOLE_API, (route) => fulfillEvents(route, lines, "\x1bcafter the reset"));
  await page.goto(consoleUrl());
  await waitForOutput(page, "after the reset");
});

test("records the output in the timeline", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/machines/r01-u01`);
  await page.getByLabel("Lane").selectOption("console");
  const entry = page.locator(".entry.lane-console").filter({ hasText: "Testing hardware" }).first();
  await entry.waitFor();
  await page.getByRole("searchbox", { name: "Filter entries" }).fill("processors,");
  await entry.getByText("All lines").click();
  await entry.getByText(/GiB of memory/).waitFor();
  await checkPage(page, "console output in the timeline");
  await screenshot(page, "machine-timeline-console");
});

test("shows that the console was disabled", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(consoleUrl());
  await page.locator('[data-console-state="live"]').waitFor();
  await server.request("PUT", "/v1/nodes/r01-u01/states/console", { enabled: false });
  await page.getByText("The console is disabled.").waitFor();
  await page.getByRole("button", { name: "Enable" }).waitFor();
});
