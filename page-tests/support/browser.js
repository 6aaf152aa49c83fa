// SPDX-License-Identifier: Apache-2.0
// A browser for tests: pages, their errors, accessibility checks and screenshots.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";
import { DEADLINE_MS } from "./server.js";
import { serveFilesFromDisk } from "./disk_files.js";

const BOOK = new URL("../../docs/guide/pictures", import.meta.url).pathname;
const SCREENSHOTS =
  process.env.FERRITE_TEST_PICTURES ??
  new URL("../../target/page-pictures", import.meta.url).pathname;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** Starts a browser; `close` fails if a page reported an error. */
export async function launch() {
  const pages = [];
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu"],
  });
  return {
    /** Opens a page; `initScript` runs in it before its own scripts. */
    async open(url, { theme = "dark", width = 1280, height = 800, initScript } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme });
      context.setDefaultTimeout(DEADLINE_MS);
      await serveFilesFromDisk(context);
      const page = await context.newPage();
      page.errors = [];
      page.failedRequests = [];
      pages.push(page);
      if (initScript) await page.addInitScript(initScript);
      page.on("pageerror", (error) => page.errors.push(error.stack));
      page.on("console", (message) => {
        // The browser reports the error responses that tests provoke as failed loads.
        const isFailedLoad = message.text().startsWith("Failed to load resource");
        if (message.type() === "error" && !isFailedLoad) page.errors.push(message.text());
      });
      page.on("requestfailed", (request) => {
        const { errorText } = request.failure() ?? {};
        page.failedRequests.push(`${errorText} ${request.url()}`);
        // Other tests create network interfaces, and Chromium then aborts what it is loading. A page
        // without one of its modules stays incomplete.
        if (errorText === "net::ERR_NETWORK_CHANGED" && request.resourceType() === "script") {
          page.reload().catch((error) => page.failedRequests.push(String(error)));
        }
      });
      await page.goto(url);
      return page;
    },
    /** Describes the latest page, for a failed test. */
    async describe() {
      const page = pages.at(-1);
      if (!page || page.isClosed()) return "no page is open";
      const text = await page.locator("body").innerText({ timeout: 1000 });
      const { errors, failedRequests } = page;
      return JSON.stringify({ url: page.url(), errors, failedRequests, text: text.slice(0, 500) });
    },
    async close() {
      await browser.close();
      assert.deepEqual(
        pages.flatMap((page) => page.errors),
        [],
      );
    },
  };
}

/**
 * Takes a screenshot. With UPDATE_PICTURES=1 it replaces the picture of the same name in the guide;
 * pictures differ from run to run.
 */
export async function screenshot(page, name) {
  const file = `${name}.png`;
  const isInBook = process.env.UPDATE_PICTURES === "1" && existsSync(path.join(BOOK, file));
  const folder = isInBook ? BOOK : SCREENSHOTS;
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, file) });
}

/** Fails if axe finds a serious accessibility violation, or if the page reported an error. */
export async function checkPage(page, where) {
  assert.deepEqual(page.errors, [], where);
  await page.evaluate(await readFile(AXE, "utf8"));
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { resultTypes: ["violations"] }),
  );
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const describe = ({ html, failureSummary }) =>
    `${html.slice(0, 160)} ${failureSummary?.slice(0, 200)}`;
  assert.deepEqual(
    serious.map(({ id, nodes }) => [id, nodes.slice(0, 3).map(describe)]),
    [],
    where,
  );
}

/** Fails if the page is wider than the window. */
export async function checkFitsWidth(page, where) {
  const fits = await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
  assert.ok(fits, `${where}: wider than the window`);
}
