// SPDX-License-Identifier: Apache-2.0
// The terminal emulator: the screen after output, and the sequences of keys.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isLeaveKey, keySequence } from "../../crates/web-ui/page/app/machine/terminal/keys.js";
import { Screen } from "../../crates/web-ui/page/app/machine/terminal/screen.js";

const textOf = (screen) =>
  screen.lines
    .map(({ characters }) => characters.join("").trimEnd())
    .join("\n")
    .trimEnd();

for (const [description, output, expected] of [
  ["scrolled lines are kept", "1\r\n2\r\n3\r\n4\r\n5\r\n6", "1\n2\n3\n4\n5\n6"],
  ["long lines wrap", "0123456789ab", "0123456789\nab"],
  ["a full line with a line feed is one line", "0123456789\r\nab", "0123456789\nab"],
  ["a character in the last column can be replaced", "0123456789\bX", "01234567X9"],
  ["carriage return and backspace", "abc\rX\b\bY", "Ybc"],
  ["tabs", "a\tb", "a       b"],
  ["cursor positioning", "abc\x1b[3;3Hx\x1b[1;1HY", "Ybc\n\n  x"],
  [
    "the cursor stays on the screen",
    "\x1b[99;99Hx\x1b[99Ay\x1b[99Dz",
    "z        y\n\n\n         x",
  ],
  ["erase to the end of the line", "abcdef\x1b[1;3H\x1b[K", "ab"],
  ["erase to the start of the line", "abcdef\x1b[1;3H\x1b[1K", "   def"],
  ["erase the screen", "a\r\nb\x1b[2J\x1b[Hc", "c"],
  ["erase below", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"],
  ["insert lines", "1\r\n2\r\n3\x1b[2;1H\x1b[L", "1\n\n2\n3"],
  ["delete lines", "1\r\n2\r\n3\x1b[2;1H\x1b[M", "1\n3"],
  ["insert and delete characters", "abcdef\x1b[1;3H\x1b[2P|\x1b[2@", "ab|  f"],
  ["scroll region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1\n3\nX\n4"],
  ["reverse index scrolls down", "1\r\n2\x1b[H\x1bM", "\n1\n2"],
  ["alternate screen", "sh\x1b[?1049h\x1b[Hvi\x1b[?1049lell", "shell"],
  ["line drawing characters", "\x1b(0lqk\x1b(B lqk", "┌─┐ lqk"],
  [
    "titles and queries are not shown",
    "\x1b]0;title\x07a\x1b]2;t\x1b\\b\x1b[6n\x1b[cc\x1b=d\x1b#8e",
    "abcde",
  ],
  ["save and restore the cursor", "ab\x1b7cd\x1b8X", "abXd"],
  ["a reset keeps the output above", "abc\x1b[2;3r\x1bcX", "abc\n\n\n\nX"],
  ["invalid sequences are ignored", "a\x1b[999999999999999999999999zb\x1b[;;;Hc\x1b[?;hd", "cd"],
]) {
  test(description, () => {
    // In one chunk, and character by character.
    for (const chunks of [[output], [...output]]) {
      const screen = new Screen(10, 4);
      for (const chunk of chunks) screen.write(chunk);
      assert.equal(textOf(screen), expected);
      assert.ok(screen.lines.length >= 4);
    }
  });
}

test("lines keep their numbers after a reset", () => {
  const screen = new Screen(10, 4);
  for (let line = 0; line < 3000; line++) screen.write(`${line}\r\n`);
  const { discarded } = screen;
  assert.ok(discarded > 0);
  screen.write("\x1bcprompt");
  assert.equal(screen.discarded, discarded + 4);
  assert.equal(screen.lines[screen.base].characters.join("").trimEnd(), "prompt");
});

test("styles become class names", () => {
  const screen = new Screen(40, 2);
  screen.write(
    "\x1b[1;31mred\x1b[0m \x1b[7minv\x1b[27;44mB\x1b[0;38;5;196mX\x1b[48;2;0;0;255mY\x1b[m.\x1b[37;40m,\x1b[4;2mU",
  );
  assert.deepEqual(screen.runs(screen.lines[0]), [
    ["red", "fg-1 bold"],
    [" ", ""],
    ["inv", "fg-inverse bg-inverse"],
    ["B", "bg-4"],
    ["X", "fg-9"],
    ["Y", "fg-9 bg-12"],
    [".,", ""],
    ["U", "dim underline"],
  ]);
});

test("the scrollback is limited", () => {
  const screen = new Screen(10, 4);
  for (let line = 0; line < 5000; line++) screen.write(`${line}\r\n`);
  assert.equal(screen.lines.length, 2004);
  assert.equal(screen.discarded + screen.lines.length, 5001);
  assert.equal(screen.lines.at(-2).characters.join(""), "4999");
});

for (const [key, modifiers, expected] of [
  ["Enter", {}, "\r"],
  ["Backspace", {}, "\x7f"],
  ["Tab", {}, "\t"],
  ["ArrowUp", {}, "\x1b[A"],
  ["F12", {}, "\x1b[24~"],
  ["c", { ctrlKey: true }, "\x03"],
  ["z", { ctrlKey: true }, "\x1a"],
  ["[", { ctrlKey: true }, "\x1b"],
  ["x", { altKey: true }, "\x1bx"],
  // Characters arrive as input; the others belong to the browser.
  ["a", {}, null],
  ["Tab", { shiftKey: true }, null],
  ["C", { ctrlKey: true, shiftKey: true }, null],
  ["v", { ctrlKey: true }, null],
  ["l", { metaKey: true }, null],
  ["Shift", { shiftKey: true }, null],
  ["Enter", { isComposing: true }, null],
]) {
  test(`key ${key} ${JSON.stringify(modifiers)}`, () => {
    assert.equal(keySequence({ key, ...modifiers }), expected);
  });
}

test("keys depend on the selection and on the cursor key mode", () => {
  assert.equal(keySequence({ key: "c", ctrlKey: true }, { hasSelection: true }), null, "copies");
  assert.equal(keySequence({ key: "ArrowUp" }, { applicationKeys: true }), "\x1bOA");
  assert.ok(isLeaveKey({ key: "]", ctrlKey: true }));
  assert.ok(!isLeaveKey({ key: "]" }));
});
