// SPDX-License-Identifier: Apache-2.0
//! Adds up the results that `cargo test` prints, one line per test program, and those of Node's
//! runner, one line per number.

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
        self.read_node(line);
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

    /// Node's runner ends with `ℹ pass 12` and `ℹ fail 0`, or `#` instead of the sign.
    fn read_node(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# ")) else {
            return;
        };
        let Some((what, number)) = rest.split_once(' ') else { return };
        let Ok(number) = number.parse::<u64>() else { return };
        match what {
            "pass" => self.passed += number,
            "fail" | "cancelled" => self.failed += number,
            _ => {}
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
            "ℹ tests 7",
            "ℹ pass 5",
            "# fail 2",
            "# pass by",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { passed: 18, failed: 4 });
    }
}
