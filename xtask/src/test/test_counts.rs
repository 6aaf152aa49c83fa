// SPDX-License-Identifier: Apache-2.0
//! Adds up the numbers of passed and failed tests in the output of test programs.

/// The number of tests that passed and failed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct TestCounts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl TestCounts {
    /// Adds the numbers of a line of output. Lines without results are ignored.
    pub(crate) fn add_line(&mut self, line: &str) {
        self.add_node_line(line);
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        for part in counts.split([';', '.']) {
            if let Some((number, label)) = part.trim().split_once(' ')
                && let Ok(number) = number.parse::<u64>()
            {
                match label {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    _ => {}
                }
            }
        }
    }

    /// Adds the numbers of another program.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Node's test runner ends with `ℹ pass 12` and `ℹ fail 0`, or with `#` instead of `ℹ`.
    fn add_node_line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# ")) else {
            return;
        };
        let Some((label, number)) = rest.split_once(' ') else { return };
        let Ok(number) = number.parse::<u64>() else { return };
        match label {
            "pass" => self.passed += number,
            "fail" | "cancelled" => self.failed += number,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TestCounts;

    #[test]
    fn adds_the_results_of_all_programs() {
        let mut counts = TestCounts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.50s",
            "test a::b ... ok",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "5 passed without a result line",
            "ℹ tests 7",
            "ℹ pass 5",
            "# fail 2",
            "# pass by",
        ] {
            counts.add_line(line);
        }
        assert_eq!(counts, TestCounts { passed: 18, failed: 4 });
    }
}
