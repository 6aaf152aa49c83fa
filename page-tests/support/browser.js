// SPDX-License-Identifier: Apache-2.0
// A browser, its pages, what they complain about, and pictures of them.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const BOOK = new URL("../../docs/guide/pictures", import.meta.url).pathname;
const PICTURES = process.env.FERRITE_PICTURES ?? new URL("../../target/page-pictures", import.meta.url).pathname;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** A browser with `open(url, options)`; `close` fails if one of the pages broke. */
export async function launch() {
  const pages = [];
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox",
    "--disable-gpu"] });
  return {
    /** `first` is run in the page before its own scripts. */
    async open(url, { theme = "dark", width = 1280, height = 800, first } = {}) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme });
      const page = await context.newPage();
      page.troubles = [];
      pages.push(page);
      if (first) await page.addInitScript(first);
      page.on("pageerror", (error) => page.troubles.push(error.stack));
      page.on("console", (message) => {
        // Refusals that a test provokes are reported by the browser as failed loads.
        if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.troubles.push(message.text());
      });
      await page.goto(url);
      return page;
    },
    async close() {
      await browser.close();
      assert.deepEqual(pages.flatMap((page) => page.troubles), []);
    },
  };
}

/** Keeps a picture; in the place of the book's own, if it has that one and UPDATE_PICTURES is 1: they differ from run to run. */
export async function picture(page, name) {
  const file = `${name}.png`;
  const inBook = process.env.UPDATE_PICTURES === "1" && existsSync(path.join(BOOK, file));
  const folder = inBook ? BOOK : PICTURES;
  await mkdir(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, file) });
}

/** Fails if axe finds something serious, or if the page broke meanwhile. */
export async function isSound(page, where) {
  assert.deepEqual(page.troubles, [], where);
  await page.evaluate(await readFile(AXE, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => `${node.html.slice(0,
    160)} ${node.failureSummary?.slice(0, 200)}`)]), [], where);
}
