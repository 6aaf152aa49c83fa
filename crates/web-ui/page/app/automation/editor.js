// SPDX-License-Identifier: Apache-2.0
// One flavour, template, runbook or rule as JSON. What the server says against it stands beside it, and
// where the server names a field, the cursor goes there.

import { html, useRef, useState } from "../../vendor/preact-htm.js";
import { Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { say } from "../toasts.js";
import { draftOf } from "./kinds.js";
import { parsed } from "../typed_json.js";

export function Editor({ kind, one, onClose, onDone }) {
  const before = one ? draftOf(kind, one) : kind.example;
  const [text, setText] = useState(() => JSON.stringify(before, null, 2));
  const [name, setName] = useState("");
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const area = useRef();
  const { value, problem } = parsed(text);
  const save = async () => {
    setBusy(true);
    try {
      if (one) await kind.change(one, before, value); else await kind.create(value, name.trim());
      say(one ? "Saved." : "Made.");
      onDone();
      onClose();
    } catch (error) {
      setRefusal(error.message);
      setBusy(false);
      point(area.current, text, error.message, [...kind.written, "op", "args", "interface", "step", "order"]);
    }
  };
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button primary" data-confirm disabled=${busy || !!problem || (kind.needsName && !one && !name.trim())}
      onClick=${save}>
      ${one ? "Save" : `Make the ${kind.one}`}</button>`;
  return html`<${Dialog} title=${one ? kind.nameOf(one) : `New ${kind.one}`} class="wide" onClose=${onClose} footer=${footer}>
    ${kind.needsName && !one && html`<label class="field"><span>Name</span><input type="text" value=${name}
      onInput=${(event) => setName(event.currentTarget.value)} /></label>`}
    <label class="field"><span>As JSON: ${kind.written.join(", ")}</span><textarea ref=${area} class="json" spellcheck=${false}
      rows=${Math.min(24, Math.max(8, text.split("\n").length + 1))} aria-invalid=${!!(problem || refusal)} value=${text}
      onInput=${(event) => { setText(event.currentTarget.value); setRefusal(null); }}></textarea></label>
    ${(problem ?? refusal) && html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>${problem ?? refusal}
      </span></div>`}<//>`;
}

/** Selects the field that a refusal names, if it is in the text. */
function point(area, text, message, names) {
  const named = names.find((name) => new RegExp(`\\b${name}\\b`).test(message) && text.includes(`"${name}"`));
  if (!named || !area) return;
  const at = text.indexOf(`"${named}"`);
  area.focus();
  area.setSelectionRange(at, at + named.length + 2);
}
