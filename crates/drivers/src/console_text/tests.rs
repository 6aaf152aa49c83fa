// SPDX-License-Identifier: Apache-2.0
//! Tests of the console transcript.

use proptest::prelude::*;

use super::*;

/// Returns the transcript of these chunks of output.
fn transcript_of(pieces: &[&[u8]]) -> String {
    let (mut transcript, now) = (ConsoleTranscript::new(1 << 20), Instant::now());
    for piece in pieces {
        transcript.append(piece, now);
    }
    transcript.finish().unwrap_or_default()
}

#[test]
fn strips_terminal_control_sequences() {
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
        assert_eq!(transcript_of(pieces), expected, "{pieces:?}");
    }
}

#[test]
fn masks_secrets_in_long_and_split_lines() {
    let token = "uF7t-TxLcXmoCe4OZl_BlZEnk36cYLXzttrRVVRM9xU";
    // Long command lines are masked before they are split, wherever the token is.
    for filling in (0..2 * MAX_LINE_BYTES).step_by(61).chain([MAX_BUFFERED_LINE - 30]) {
        let filling = "word ".repeat(filling / 5);
        let line = format!("{filling}ipa-agent-token={token} console=ttyS0\r\n");
        for cut in [7, filling.len() + 3, filling.len() + 20, filling.len() + 40] {
            let (one, two) = line.as_bytes().split_at(cut);
            let text = transcript_of(&[one, two]);
            assert!(!text.replace('\n', "").contains(&token[..20]), "{text}");
            assert!(!text.replace('\n', "").contains(&token[20..]), "{text}");
            assert!(text.replace('\n', "").contains("=****** console=ttyS0"), "{text}");
            assert!(text.lines().all(|line| line.len() <= MAX_LINE_BYTES));
        }
    }
    // The machine pauses inside the line, as at a prompt.
    let (mut transcript, start) = (ConsoleTranscript::new(1 << 20), Instant::now());
    for line in [format!("ipa-agent-token={token} x\n"), format!("loading /{token}/kernel\n")] {
        let (one, two) = line.as_bytes().split_at(30);
        transcript.append(one, start);
        let first = transcript.take_due(start + PROMPT_AFTER).unwrap();
        transcript.append(two, start + PROMPT_AFTER);
        let second = transcript.finish().unwrap();
        assert!(first.ends_with("******"), "{first}");
        assert!(second.starts_with("******"), "{second}");
    }
    assert_eq!(transcript_of(&[b"password=x\r\nnext\r\n"]), "password=******\nnext");
}

#[test]
fn splits_overlong_lines() {
    let long = "\u{fc}".repeat((MAX_BUFFERED_LINE + MAX_LINE_BYTES) / 2);
    let text = transcript_of(&[long.as_bytes()]);
    assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [MAX_LINE_BYTES; 9]);
    assert_eq!(text.replace('\n', ""), long);
}

#[test]
fn prompt_is_emitted_after_silence() {
    let (mut transcript, start) = (ConsoleTranscript::new(1 << 20), Instant::now());
    transcript.append(b"Welcome\r\nlogin: ", start);
    assert_eq!(transcript.take_due(start + MIN_BATCH_INTERVAL).as_deref(), Some("Welcome"));
    assert!(transcript.has_pending());
    assert_eq!(transcript.take_due(start + 2 * MIN_BATCH_INTERVAL), None);
    // Slow input stays on one line.
    transcript.append(b"root", start + PROMPT_AFTER);
    assert_eq!(transcript.take_due(start + PROMPT_AFTER), None);
    assert_eq!(transcript.take_due(start + 2 * PROMPT_AFTER).as_deref(), Some("login: root"));
    assert!(!transcript.has_pending());
}

#[test]
fn hourly_budget_limits_continuous_output() {
    const PER_HOUR: usize = 32 << 10;
    let (mut transcript, start) = (ConsoleTranscript::new(PER_HOUR), Instant::now());
    let mut recorded = 0;
    let mut notices = 0;
    // One line of 100 bytes per second, in every tenth minute of 24 hours.
    for minute in (0..24 * 60).step_by(10) {
        for tick in 0..600 {
            let now = start + Duration::from_secs(minute * 60 + tick);
            transcript.append(&[b"x".repeat(99).as_slice(), b"\n"].concat(), now);
            let text = transcript.take_due(now).unwrap_or_default();
            recorded += text.len();
            notices += text.lines().filter(|line| line.starts_with('[')).count();
        }
    }
    assert!(recorded <= 26 * PER_HOUR, "{recorded}");
    assert!(recorded > 20 * PER_HOUR, "recording resumes: {recorded}");
    assert!((2..=2 * 25 * 8).contains(&notices), "{notices} remarks");
}

#[test]
fn pending_text_is_bounded() {
    let (mut transcript, now) = (ConsoleTranscript::new(usize::MAX >> 12), Instant::now());
    for _ in 0..10_000 {
        transcript.append(b"0123456789012345678901234567890123456789\r\n", now);
    }
    assert!(transcript.bytes < MAX_PENDING_BYTES + BATCH_BYTES, "{}", transcript.bytes);
    let first = transcript.take_due(now).unwrap();
    assert!(first.ends_with("faster than it can be recorded]"), "{first}");
    transcript.append(b"after\r\n", now);
    let second = transcript.take_due(now).unwrap();
    assert!(second.ends_with("lines omitted]\nafter"), "{second}");
}

proptest! {
    /// The lines do not depend on how the bytes are split into chunks, and contain no control
    /// characters.
    #[test]
    fn output_does_not_depend_on_chunking(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..400) {
        let (one, two) = bytes.split_at(cut.min(bytes.len()));
        let whole = transcript_of(&[&bytes]);
        prop_assert_eq!(&transcript_of(&[one, two]), &whole);
        prop_assert!(!whole.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t'));
    }
}
