// SPDX-License-Identifier: Apache-2.0
//! Adds up the results that `cargo test` prints, one line per test program.

/// How many tests passed and failed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    /// Those that passed.
    pub(crate) passed: u64,
    /// Those that failed.
    pub(crate) failed: u64,
}

impl Tally {
    /// Takes a line of output into account, if it is a result.
    pub(crate) fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        for part in counts.split([';', '.']) {
            if let Some((number, what)) = part.trim().split_once(' ')
                && let Ok(number) = number.parse::<u64>()
            {
                match what {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn results_of_all_programs_are_added() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.50s",
            "test a::b ... ok",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "5 passed by on the road",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 13, failed: 2 });
    }
}
