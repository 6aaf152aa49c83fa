// SPDX-License-Identifier: Apache-2.0
//! BMC vendors by IANA enterprise number, as far as they make servers. Lower case, as in
//! `properties.vendor`.

/// The vendor with this enterprise number.
pub(super) fn vendor_name(number: u32) -> Option<&'static str> {
    VENDORS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

const VENDORS: &[(u32, &str)] = &[
    (2, "ibm"),
    (9, "cisco systems"),
    (11, "hewlett-packard"),
    (42, "sun microsystems"),
    (63, "apple"),
    (343, "intel corporation"),
    (674, "dell inc."),
    (2_011, "huawei"),
    (3_704, "advanced micro devices, inc"),
    (5_771, "cisco systems, inc."),
    (7_244, "quanta computer inc."),
    (10_368, "fujitsu technology solutions gmbh"),
    (10_876, "supermicro"),
    (15_370, "giga-byte technology co., ltd"),
    (19_046, "lenovo"),
    (20_301, "ibm eserver x"),
    (20_974, "american megatrends, inc"),
    (25_506, "h3c"),
    (37_945, "inspur"),
    (40_092, "wiwynn corporation"),
    (42_817, "ibm platform firmware division"),
    (45_065, "insyde"),
    (47_196, "hewlett packard enterprise"),
    (49_769, "yadro"),
    (52_538, "ampere computing"),
];
