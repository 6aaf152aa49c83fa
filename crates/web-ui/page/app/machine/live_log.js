// SPDX-License-Identifier: Apache-2.0
// What the machine's ramdisk says right now, line by line, for as long as the tab is looked at.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../vendor/preact-htm.js";
import { ferritePath, getIfThere } from "../api.js";
import { ago } from "../times.js";
import { Panel } from "./panel.js";

const ASK_EVERY_MS = 1000, SELDOM_MS = 5000;
const MOST_LINES = 2000;

export function LiveLog({ node }) {
  const [state, setState] = useState({ lines: [], heardAt: null, missed: false });
  const [follows, setFollows] = useState(true);
  const box = useRef();
  useEffect(() => {
    let next = null, timer = null, isOver = false;
    const look = async () => {
      const told = document.hidden ? undefined
        : await getIfThere(ferritePath(node.uuid, `/logs/live${next === null ? "" : `?after=${next}`}`)).catch(() => undefined);
      if (isOver) return;
      if (told) {
        next = told.next;
        setState((before) => (told.lines.length || !before.heardAt ? { lines: [...before.lines, ...told.lines].slice(-MOST_LINES),
          heardAt: told.heard_at } : before));
      }
      timer = setTimeout(look, told?.lines.length ? ASK_EVERY_MS : told ? 2 * ASK_EVERY_MS : SELDOM_MS);
    };
    look();
    return () => { isOver = true; clearTimeout(timer); };
  }, [node.uuid]);
  useLayoutEffect(() => { if (follows && box.current) box.current.scrollTop = box.current.scrollHeight; }, [state.lines, follows]);
  if (!state.lines.length) return null;
  const onScroll = ({ currentTarget: it }) => setFollows(it.scrollTop + it.clientHeight > it.scrollHeight - 30);
  return html`<${Panel} title="The ramdisk, live" icon="terminal" flush
    actions=${html`<span class="quiet">last heard ${ago(Date.parse(state.heardAt))}</span>
      ${!follows && html`<button class="button" onClick=${() => setFollows(true)}>Follow</button>`}`}>
    <pre class="live-log" ref=${box} tabindex="0" role="log" aria-label="Lines of the ramdisk" onScroll=${onScroll}>
      ${state.lines.map((line) => (typeof line === "string" ? line : line.text ?? JSON.stringify(line))).join("\n")}</pre><//>`;
}
