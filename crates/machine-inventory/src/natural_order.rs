// SPDX-License-Identifier: Apache-2.0
//! Natural order of device names: `nvme2n1` before `nvme10n1`, `sdb` before `sdaa`.

use std::cmp::Ordering;

/// Sorts names: numbers by value, `sd` names of fewer letters first.
pub(crate) fn sort(names: &mut [String]) {
    names.sort_by(|a, b| compare(a, b));
}

pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (Some(x), Some(y)) = (next_run(&mut left), next_run(&mut right)) else {
            return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
        };
        let order = match (is_number(x), is_number(y)) {
            (true, true) => {
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            (false, false) if x.starts_with("sd") && y.starts_with("sd") => {
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            (false, false) | (true, false) | (false, true) => x.cmp(y),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Removes and returns the leading run of digits or of non-digits.
fn next_run<'t>(text: &mut &'t str) -> Option<&'t str> {
    let first = text.chars().next()?.is_ascii_digit();
    let end = text.find(|c: char| c.is_ascii_digit() != first).unwrap_or(text.len());
    let (run, rest) = text.split_at(end);
    *text = rest;
    Some(run)
}

fn is_number(run: &str) -> bool {
    run.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #[test]
    fn orders_numbers_by_value_and_sdaa_after_sdb() {
        let mut names: Vec<String> = [
            "nvme10n1",
            "sdaa",
            "sdb",
            "nvme2n1",
            "eth10",
            "eth9",
            "sda",
            "nvme2n10",
            "0000:0a:00.0",
        ]
        .map(str::to_owned)
        .to_vec();
        super::sort(&mut names);
        assert_eq!(
            names,
            [
                "0000:0a:00.0",
                "eth9",
                "eth10",
                "nvme2n1",
                "nvme2n10",
                "nvme10n1",
                "sda",
                "sdb",
                "sdaa"
            ]
        );
    }
}
