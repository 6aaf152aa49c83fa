// SPDX-License-Identifier: Apache-2.0
//! What becomes of what machines print.

use proptest::prelude::*;

use super::*;

/// All that is told of these pieces, printed one after the other.
fn told(pieces: &[&[u8]]) -> String {
    let (mut transcript, now) = (Transcript::new(1 << 20), Instant::now());
    for piece in pieces {
        transcript.hear(piece, now);
    }
    transcript.finish().unwrap_or_default()
}

#[test]
fn lines_without_what_steers_a_terminal() {
    for (pieces, expected) in [
        (&[b"one\r\ntwo\r\n".as_slice()][..], "one\ntwo"),
        (&[b"on", b"e\r", b"\ntwo"], "one\ntwo"),
        (&[b"one\n\rtwo\r\r\n"], "one\ntwo"),
        (&[b"\r\n   \r\n\x1b[0m\r\nonly\r\n"], "only"),
        (&[b"\x1b[1;31mred\x1b[0m and \x1b", b"[32mgreen\x1b[K\r\n"], "red and green"),
        (&[b"\x1b[2J\x1b[1;1HTop\x1b[12;40HMiddle\x1b[24;1HBottom"], "Top\nMiddle\nBottom"),
        (&[b"\x1b]0;title\x07shown \x1b]0;more\x1b\\too \x1b(Bas \x1b=well"], "shown too as well"),
        (&[b" 10%\r 20%\r100%\r\n"], "100%"),
        (&[b"pasx\x08sword\r\n"], "password"),
        (
            &["gr".as_bytes(), "ü".as_bytes().split_at(1).0, "ü".as_bytes().split_at(1).1, b"n\n"],
            "grün",
        ),
        (&[b"\xff\xc3(\n"], "\u{fffd}\u{fffd}("),
        (&[b"a\x00b\x07c\x7f\n"], "abc"),
        (&["\u{9b}31m\u{85}x\n".as_bytes()], "31mx"),
        (&[b""], ""),
    ] {
        assert_eq!(told(pieces), expected, "{pieces:?}");
    }
}

#[test]
fn secrets_are_masked_however_they_come() {
    let token = "uF7t-TxLcXmoCe4OZl_BlZEnk36cYLXzttrRVVRM9xU";
    // As long as they are, command lines are masked before they are cut, wherever the token is.
    for filling in (0..2 * LONGEST_LINE).step_by(61).chain([MOST_OF_LINE - 30]) {
        let filling = "word ".repeat(filling / 5);
        let line = format!("{filling}ipa-agent-token={token} console=ttyS0\r\n");
        for cut in [7, filling.len() + 3, filling.len() + 20, filling.len() + 40] {
            let (one, two) = line.as_bytes().split_at(cut);
            let text = told(&[one, two]);
            assert!(!text.replace('\n', "").contains(&token[..20]), "{text}");
            assert!(!text.replace('\n', "").contains(&token[20..]), "{text}");
            assert!(text.replace('\n', "").contains("=****** console=ttyS0"), "{text}");
            assert!(text.lines().all(|line| line.len() <= LONGEST_LINE));
        }
    }
    // The machine pauses in the middle, as for a prompt.
    let (mut transcript, start) = (Transcript::new(1 << 20), Instant::now());
    for line in [format!("ipa-agent-token={token} x\n"), format!("loading /{token}/kernel\n")] {
        let (one, two) = line.as_bytes().split_at(30);
        transcript.hear(one, start);
        let first = transcript.tell(start + PROMPT_AFTER).unwrap();
        transcript.hear(two, start + PROMPT_AFTER);
        let second = transcript.finish().unwrap();
        assert!(first.ends_with("******"), "{first}");
        assert!(second.starts_with("******"), "{second}");
    }
    assert_eq!(told(&[b"password=x\r\nnext\r\n"]), "password=******\nnext");
}

#[test]
fn a_line_without_end_is_cut() {
    let long = "\u{fc}".repeat((MOST_OF_LINE + LONGEST_LINE) / 2);
    let text = told(&[long.as_bytes()]);
    assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [LONGEST_LINE; 9]);
    assert_eq!(text.replace('\n', ""), long);
}

#[test]
fn a_prompt_is_told_when_nothing_follows_it() {
    let (mut transcript, start) = (Transcript::new(1 << 20), Instant::now());
    transcript.hear(b"Welcome\r\nlogin: ", start);
    assert_eq!(transcript.tell(start + TOLD_EVERY).as_deref(), Some("Welcome"));
    assert!(transcript.is_waiting());
    assert_eq!(transcript.tell(start + 2 * TOLD_EVERY), None);
    // Typed slowly, it is still one line.
    transcript.hear(b"root", start + PROMPT_AFTER);
    assert_eq!(transcript.tell(start + PROMPT_AFTER), None);
    assert_eq!(transcript.tell(start + 2 * PROMPT_AFTER).as_deref(), Some("login: root"));
    assert!(!transcript.is_waiting());
}

#[test]
fn a_machine_that_prints_for_ever_is_told_for_an_hours_worth() {
    const PER_HOUR: usize = 32 << 10;
    let (mut transcript, start) = (Transcript::new(PER_HOUR), Instant::now());
    let mut kept = 0;
    let mut remarks = 0;
    // A line of 100 bytes each 10 ms, for 24 hours of which every tenth minute is looked at.
    for minute in (0..24 * 60).step_by(10) {
        for tick in 0..600 {
            let now = start + Duration::from_secs(minute * 60 + tick);
            transcript.hear(&[b"x".repeat(99).as_slice(), b"\n"].concat(), now);
            let text = transcript.tell(now).unwrap_or_default();
            kept += text.len();
            remarks += text.lines().filter(|line| line.starts_with('[')).count();
        }
    }
    assert!(kept <= 26 * PER_HOUR, "{kept}");
    assert!(kept > 20 * PER_HOUR, "it begins again when it may: {kept}");
    assert!((2..=2 * 25 * 8).contains(&remarks), "{remarks} remarks");
}

#[test]
fn what_nobody_takes_does_not_grow() {
    let (mut transcript, now) = (Transcript::new(usize::MAX >> 12), Instant::now());
    for _ in 0..10_000 {
        transcript.hear(b"0123456789012345678901234567890123456789\r\n", now);
    }
    assert!(transcript.bytes < MOST_WAITING + PIECE, "{}", transcript.bytes);
    let first = transcript.tell(now).unwrap();
    assert!(first.ends_with("faster than it can be kept]"), "{first}");
    transcript.hear(b"after\r\n", now);
    let second = transcript.tell(now).unwrap();
    assert!(second.ends_with("lines are left out here]\nafter"), "{second}");
}

proptest! {
    /// However it is cut into pieces, the same bytes are the same lines, and none of them steers a
    /// terminal.
    #[test]
    fn pieces_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
        let (one, two) = bytes.split_at(cut.min(bytes.len()));
        let whole = told(&[&bytes]);
        prop_assert_eq!(&told(&[one, two]), &whole);
        prop_assert!(!whole.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t'));
    }
}
