// SPDX-License-Identifier: Apache-2.0
// The log of the machine's ramdisk, polled while the tab is visible.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact-htm.js";
import { ferritePath, getOrNull } from "../api.js";
import { ago } from "../times.js";
import { Panel } from "./panel.js";

/** Poll intervals: after new lines, after none, and without a ramdisk. */
const ACTIVE_MS = 1000,
  IDLE_MS = 2000,
  ABSENT_MS = 5000;
const MAX_LINES = 2000;

/** @param {{ node: NodeRecord }} props */
export function LiveLog({ node }) {
  const { lines, receivedAt } = useLiveLog(node.uuid);
  const [follows, setFollows] = useState(true);
  const box = useRef();
  useLayoutEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follows]);
  if (!lines.length) return null;
  const onScroll = ({ currentTarget: element }) =>
    setFollows(element.scrollTop + element.clientHeight > element.scrollHeight - 30);
  return html`<${Panel} title="Ramdisk log, live" icon="terminal" flush
    actions=${html`${receivedAt && html`<span class="quiet">last line ${ago(Date.parse(receivedAt))}</span>`}
      ${!follows && html`<button class="button" onClick=${() => setFollows(true)}>Follow</button>`}`}>
    <pre class="live-log" ref=${box} tabindex="0" role="log" aria-label="Ramdisk log" onScroll=${onScroll}>${lines.map(lineText).join("\n")}</pre><//>`;
}

/** @param {string | { text?: string }} line */
const lineText = (line) => (typeof line === "string" ? line : (line.text ?? JSON.stringify(line)));

/**
 * Polls the log of a node's ramdisk.
 * @param {string} uuid
 */
function useLiveLog(uuid) {
  const [log, setLog] = useState(
    /** @type {{ lines: any[], receivedAt: string | null }} */ ({ lines: [], receivedAt: null }),
  );
  useEffect(() => {
    /** @type {number | null} */
    let next = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let isMounted = true;
    const load = () => {
      const query = next === null ? "" : `?after=${next}`;
      return getOrNull(ferritePath(uuid, `/logs/live${query}`)).catch(() => null);
    };
    const poll = async () => {
      const response = document.hidden ? null : await load();
      if (!isMounted) return;
      if (response) {
        next = response.next;
        setLog((before) =>
          response.lines.length
            ? {
                lines: [...before.lines, ...response.lines].slice(-MAX_LINES),
                receivedAt: response.received_at,
              }
            : before,
        );
      }
      const delay = response ? (response.lines.length ? ACTIVE_MS : IDLE_MS) : ABSENT_MS;
      timer = setTimeout(poll, delay);
    };
    poll();
    return () => {
      isMounted = false;
      clearTimeout(timer);
    };
  }, [uuid]);
  return log;
}
