// SPDX-License-Identifier: Apache-2.0
//! VLANs that the agent makes on cards: those that were named, and those that switches tell of.
//!
//! `eth0.100` names one. `eth0` is all that the switch at that card names in LLDP, and `all` is that
//! for every card.

use std::collections::BTreeMap;

use super::cards;
use super::netlink::Kernel;

/// Fields of organizations, in LLDP.
const OF_ORGANIZATION: u8 = 127;
/// IEEE 802.1, and its field with a VLAN's number and name.
const VLAN_NAME: &str = "0080c203";
/// All cards.
const ALL: &str = "all";
/// The largest number a VLAN can have.
const LAST: u16 = 4094;

/// Whether somebody has to listen to switches to know which are meant.
#[must_use]
pub fn ask_lldp(wanted: &[String]) -> bool {
    wanted.iter().any(|name| named(name).is_none())
}

/// Those that are meant by cards, by what was heard there.
#[must_use]
pub fn heard(wanted: &[String], lldp: &BTreeMap<String, Vec<(u8, String)>>) -> Vec<String> {
    let meant = |card: &str| wanted.iter().any(|name| name == ALL || name == card);
    let heard = lldp.iter().filter(|(card, _)| meant(card));
    heard
        .flat_map(|(card, fields)| {
            let numbers = fields.iter().filter_map(|(kind, value)| number(*kind, value));
            numbers.map(move |number| format!("{card}.{number}"))
        })
        .collect()
}

/// Makes those that are named and whose card is there.
pub(super) fn make(kernel: &mut Kernel, names: &[String]) {
    let cards = cards();
    for name in names {
        let Some((parent, id)) = named(name) else { continue };
        if cards.iter().any(|card| card.name == *name) {
            continue;
        }
        if let Some(parent) = cards.iter().find(|card| card.name == parent)
            && let Err(error) = kernel.add_vlan(name, parent.index, id)
        {
            tracing::warn!(name, %error, "a VLAN could not be made");
        }
    }
}

/// The card and the number in `eth0.100`.
fn named(name: &str) -> Option<(&str, u16)> {
    let (card, number) = name.rsplit_once('.')?;
    Some((card, number.parse().ok()?))
}

/// The VLAN that a field of LLDP tells of.
fn number(kind: u8, value: &str) -> Option<u16> {
    let rest = value.strip_prefix(VLAN_NAME).filter(|_| kind == OF_ORGANIZATION)?;
    let number = u16::from_str_radix(rest.get(..4)?, 16).ok()?;
    (1..=LAST).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_say_which_vlans_there_are() {
        let field = |text: &str| (OF_ORGANIZATION, text.to_owned());
        let lldp = BTreeMap::from([
            (
                "eth0".to_owned(),
                vec![
                    (1, VLAN_NAME.to_owned() + "0064"),
                    // The number of untagged packets needs no VLAN.
                    field("0080c2010001"),
                    field("0080c203006406706c616e7430"),
                    field("0080c20300c800"),
                    field("0080c2030fff00"),
                    field("0080c20300"),
                ],
            ),
            ("eth1".to_owned(), vec![field("0080c203000700")]),
        ]);
        let check = |wanted: &[&str], expected: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(heard(&wanted, &lldp), expected, "{wanted:?}");
            assert_eq!(ask_lldp(&wanted), !expected.is_empty(), "{wanted:?}");
        };
        check(&["all"], &["eth0.100", "eth0.200", "eth1.7"]);
        check(&["eth1", "eth0.5"], &["eth1.7"]);
        check(&["eth0.5"], &[]);
        check(&[], &[]);
    }
}
