// SPDX-License-Identifier: Apache-2.0
// The terminal's screen and keys by themselves: what is printed and where it is then.

import assert from "node:assert/strict";
import { test } from "node:test";
import { leaves, said } from "../crates/web-ui/page/app/machine/terminal/keys.js";
import { Screen } from "../crates/web-ui/page/app/machine/terminal/screen.js";

const shown = (screen) => screen.lines.map(({ letters }) => letters.join("").trimEnd()).join("\n").trimEnd();

test("what is printed is where it belongs", () => {
  for (const [what, printed, expected] of [
    ["lines scroll and are kept", "1\r\n2\r\n3\r\n4\r\n5\r\n6", "1\n2\n3\n4\n5\n6"],
    ["long lines go on in the next", "0123456789ab", "0123456789\nab"],
    ["a full line and a line feed are one line", "0123456789\r\nab", "0123456789\nab"],
    ["a letter at the last column may be replaced", "0123456789\bX", "01234567X9"],
    ["return and backspace", "abc\rX\b\bY", "Ybc"],
    ["tabs", "a\tb", "a       b"],
    ["the cursor goes anywhere", "abc\x1b[3;3Hx\x1b[1;1HY", "Ybc\n\n  x"],
    ["and not further than there is", "\x1b[99;99Hx\x1b[99Ay\x1b[99Dz", "z        y\n\n\n         x"],
    ["the rest of a line is erased", "abcdef\x1b[1;3H\x1b[K", "ab"],
    ["the beginning of a line is erased", "abcdef\x1b[1;3H\x1b[1K", "   def"],
    ["the screen is erased", "a\r\nb\x1b[2J\x1b[Hc", "c"],
    ["everything below is erased", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"],
    ["lines are put in", "1\r\n2\r\n3\x1b[2;1H\x1b[L", "1\n\n2\n3"],
    ["lines are taken out", "1\r\n2\r\n3\x1b[2;1H\x1b[M", "1\n3"],
    ["letters are put in and taken out", "abcdef\x1b[1;3H\x1b[2P|\x1b[2@", "ab|  f"],
    ["only a part scrolls", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1\n3\nX\n4"],
    ["it scrolls down", "1\r\n2\x1b[H\x1bM", "\n1\n2"],
    ["a program with a screen of its own leaves the other", "sh\x1b[?1049h\x1b[Hvi\x1b[?1049lell", "shell"],
    ["frames are drawn", "\x1b(0lqk\x1b(B lqk", "┌─┐ lqk"],
    ["titles and questions are not shown", "\x1b]0;title\x07a\x1b]2;t\x1b\\b\x1b[6n\x1b[cc\x1b=d\x1b#8e", "abcde"],
    ["the cursor is saved", "ab\x1b7cd\x1b8X", "abXd"],
    ["a reset is one, below what was", "abc\x1b[2;3r\x1bcX", "abc\n\n\n\nX"],
    ["what is no sequence does no harm", "a\x1b[999999999999999999999999zb\x1b[;;;Hc\x1b[?;hd", "cd"],
  ]) {
    // In one piece, and letter by letter.
    for (const pieces of [[printed], [...printed]]) {
      const screen = new Screen(10, 4);
      for (const piece of pieces) screen.write(piece);
      assert.equal(shown(screen), expected, what);
      assert.ok(screen.lines.length >= 4, what);
    }
  }
});

test("lines keep their numbers, whatever is printed", () => {
  const screen = new Screen(10, 4);
  for (let line = 0; line < 3000; line++) screen.write(`${line}\r\n`);
  const { gone } = screen;
  assert.ok(gone > 0);
  screen.write("\x1bcprompt");
  assert.equal(screen.gone, gone + 4, "who draws them finds the ones it has");
  assert.equal(screen.lines[screen.base].letters.join("").trimEnd(), "prompt");
});

test("styles are told as classes", () => {
  const screen = new Screen(40, 2);
  screen.write("\x1b[1;31mred\x1b[0m \x1b[7minv\x1b[27;44mB\x1b[0;38;5;196mX\x1b[48;2;0;0;255mY\x1b[m.\x1b[37;40m,");
  assert.deepEqual(screen.runs(screen.lines[0]), [["red", "ink-1 bold"], [" ", ""], ["inv", "ink-back paper-front"], ["B", "paper-4"],
    ["X", "ink-9"], ["Y", "ink-9 paper-12"], [".,", ""]]);
});

test("what was said long ago is forgotten", () => {
  const screen = new Screen(10, 4);
  for (let count = 0; count < 5000; count++) screen.write(`${count}\r\n`);
  assert.equal(screen.lines.length, 2004);
  assert.equal(screen.gone + screen.lines.length, 5001);
  assert.equal(screen.lines.at(-2).letters.join(""), "4999");
});

test("keys say what terminals say", () => {
  const key = (name, more = {}) => said({ key: name, ctrlKey: false, altKey: false, shiftKey: false, metaKey: false, ...more });
  for (const [name, more, expected] of [
    ["Enter", {}, "\r"], ["Backspace", {}, "\x7f"], ["Tab", {}, "\t"], ["ArrowUp", {}, "\x1b[A"], ["F12", {}, "\x1b[24~"],
    ["c", { ctrlKey: true }, "\x03"], ["z", { ctrlKey: true }, "\x1a"], ["[", { ctrlKey: true }, "\x1b"], ["x", { altKey: true }, "\x1bx"],
    // Letters come as input; the rest is the browser's.
    ["a", {}, null], ["Tab", { shiftKey: true }, null], ["C", { ctrlKey: true, shiftKey: true }, null], ["v", { ctrlKey: true }, null],
    ["l", { metaKey: true }, null], ["Shift", { shiftKey: true }, null], ["Enter", { isComposing: true }, null],
  ]) assert.equal(key(name, more), expected, `${name} ${JSON.stringify(more)}`);
  const control = { key: "c", ctrlKey: true };
  assert.equal(said(control, { hasSelection: true }), null, "what is selected is copied");
  assert.equal(said({ key: "ArrowUp" }, { applicationKeys: true }), "\x1bOA");
  assert.ok(leaves({ key: "]", ctrlKey: true }));
  assert.ok(!leaves({ key: "]" }));
});
