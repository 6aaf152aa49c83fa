// SPDX-License-Identifier: Apache-2.0
// Serves the web UI's files from the source tree instead of the binary, so that changes are tested
// without a rebuild. Enabled by FERRITE_TEST_UI_FROM_DISK=1.

import { readFile } from "node:fs/promises";
import path from "node:path";

const FILES = new URL("../../crates/web-ui/page", import.meta.url).pathname;
const CONTENT_TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** The marks in `index.html` that the server replaces. */
const fillIndex = (text) => text.replaceAll("@version", "@disk").replace("<!-- modules -->", "");

export async function serveFilesFromDisk(context) {
  if (process.env.FERRITE_TEST_UI_FROM_DISK !== "1") return;
  await context.route(
    (url) => url.pathname === "/ui" || url.pathname.startsWith("/ui/"),
    async (route) => {
      const { pathname } = new URL(route.request().url());
      if (/^\/ui\/(session$|oidc\/)/.test(pathname)) return route.fallback();
      const [, name] = /^\/ui\/@[^/]*\/(.+)$/.exec(pathname) ?? [];
      const file = name ?? "index.html";
      const text = await readFile(path.join(FILES, file), "utf8");
      return route.fulfill({
        // The index has the server's content security policy.
        headers: name ? {} : withoutEncoding(await route.fetch()),
        contentType: CONTENT_TYPES[path.extname(file)],
        body: name ? text : fillIndex(text),
      });
    },
  );
}

function withoutEncoding(response) {
  const {
    "content-encoding": _encoding,
    "content-length": _length,
    ...headers
  } = response.headers();
  return headers;
}
