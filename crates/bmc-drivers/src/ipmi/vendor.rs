// SPDX-License-Identifier: Apache-2.0
//! Vendor methods: any command in bytes, and a restart of the BMC.

use std::sync::Arc;

use async_trait::async_trait;
use ipmi::{GetDeviceId, ResetController};
use node_model::{Step, StepArgument, StepFlow};
use serde_json::{Map, Value};

use super::access::{parse_number, read_flag};
use super::connections::Connections;
use crate::connected::connected_interface;
use crate::step::StepRow;
use crate::{
    Error, HttpMethod, Interface, NodeChanges, Outcome, Target, Vendor, VendorAnswer, VendorMethod,
};

/// The IPMI vendor interface.
pub(super) struct IpmiVendor(pub(super) Arc<Connections>);

connected_interface!(IpmiVendor, Vendor, STEPS);

const SEND_RAW: &str = "send_raw";
const BMC_RESET: &str = "bmc_reset";
const RAW_BYTES: &str = "raw_bytes";

const METHODS: &[VendorMethod] = &[
    VendorMethod {
        name: SEND_RAW,
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Sends a command to the BMC. Needs 'raw_bytes': network function, command and \
                      data, such as '0x06 0x01'.",
        attach: false,
        require_exclusive_lock: true,
    },
    VendorMethod {
        name: BMC_RESET,
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Restarts the BMC, not the machine. 'warm' says whether it keeps its \
                      settings; true if not given.",
        attach: false,
        require_exclusive_lock: true,
    },
];

const BYTES: StepArgument =
    StepArgument::required(RAW_BYTES, "Network function, command and data, such as '0x06 0x01'.");

const STEPS: &[StepRow] = &[
    StepRow {
        name: SEND_RAW,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[BYTES],
    },
    StepRow {
        name: SEND_RAW,
        flows: &[StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[BYTES],
    },
];

#[async_trait]
impl Vendor for IpmiVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        target: &Target<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), Error> {
        match method {
            SEND_RAW => raw_bytes(arguments).map(drop)?,
            BMC_RESET => reset_kind(arguments).map(drop)?,
            _ => return Err(self.cannot(&format!("call the vendor method '{method}'"))),
        }
        self.0.validate(target)
    }

    async fn call(
        &self,
        target: &Target<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorAnswer, Error> {
        match method {
            SEND_RAW => self.send_raw(target, &raw_bytes(arguments)?).await?,
            BMC_RESET => self.reset(target, reset_kind(arguments)?).await?,
            _ => return Err(self.cannot(&format!("call the vendor method '{method}'"))),
        }
        Ok(VendorAnswer::default())
    }
}

impl IpmiVendor {
    async fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        self.send_raw(target, &raw_bytes(&step.args.parse())?).await?;
        Ok(Outcome::Done(NodeChanges::none()))
    }

    async fn send_raw(&self, target: &Target<'_>, bytes: &[u8]) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "send raw bytes")?;
        let [netfn, command, data @ ..] = bytes else {
            return Err(bmc.failed("there must be at least a network function and a command"));
        };
        bmc.request(*netfn, *command, data).await.map_err(|error| bmc.explain(error))?;
        Ok(())
    }

    async fn reset(&self, target: &Target<'_>, kind: ResetController) -> Result<(), Error> {
        let bmc = self.0.bmc(target, "restart the BMC")?;
        let device = bmc.ask(&GetDeviceId).await?;
        tracing::info!(node = %target.node.id, reset = kind.name(), ?device, "BMC is restarted");
        let sent = bmc.request(ipmi::message::netfn::APP, kind.command(), &[]).await;
        bmc.client().close().await;
        match sent {
            // One that restarts at once does not answer.
            Ok(_) | Err(ipmi::Error::Uncertain { .. }) => Ok(()),
            Err(error) => Err(bmc.explain(error)),
        }
    }
}

/// The bytes of `raw_bytes`, hexadecimal with `0x` before them or decimal.
fn raw_bytes(arguments: &Map<String, Value>) -> Result<Vec<u8>, Error> {
    const EXAMPLE: &str = "give at least a network function and a command, such as '0x06 0x01'";
    let text = match arguments.get(RAW_BYTES) {
        None | Some(Value::Null) => return Err(Error::missing(RAW_BYTES, EXAMPLE)),
        Some(Value::String(text)) if text.trim().is_empty() => {
            return Err(Error::missing(RAW_BYTES, EXAMPLE));
        }
        Some(Value::String(text)) => text,
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Error::invalid(RAW_BYTES, format!("it must be a string; {EXAMPLE}")));
        }
    };
    let byte = |word: &str| {
        let byte = parse_number(word).and_then(|number| u8::try_from(number).ok());
        byte.ok_or_else(|| Error::invalid(RAW_BYTES, format!("'{word}' is not a byte")))
    };
    let bytes: Vec<u8> = text.split_whitespace().map(byte).collect::<Result<_, _>>()?;
    match bytes.as_slice() {
        [netfn, _, ..] if netfn & 1 != 0 || *netfn > 0x3e => Err(Error::invalid(
            RAW_BYTES,
            format!("the network function 0x{netfn:02x} is not even and below 0x40"),
        )),
        [_, _, ..] if bytes.len() > MOST_BYTES => {
            Err(Error::invalid(RAW_BYTES, format!("it has more than {MOST_BYTES} bytes")))
        }
        [_, _, ..] => Ok(bytes),
        [_] | [] => Err(Error::invalid(RAW_BYTES, EXAMPLE)),
    }
}

/// More than any BMC takes in one message.
const MOST_BYTES: usize = 1024;

fn reset_kind(arguments: &Map<String, Value>) -> Result<ResetController, Error> {
    let warm = match arguments.get("warm") {
        None | Some(Value::Null) => Some(true),
        Some(value) => read_flag(value),
    };
    match warm {
        Some(true) => Ok(ResetController::Warm),
        Some(false) => Ok(ResetController::Cold),
        None => Err(Error::invalid("warm", "use true for a warm restart and false for a cold one")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn bytes_are_read_as_users_write_them() {
        for (text, bytes) in [
            ("0x06 0x01", vec![6, 1]),
            ("0x00 0x08 0x03 0x08", vec![0, 8, 3, 8]),
            ("6 1", vec![6, 1]),
            ("  0x30\t0xCE 255 ", vec![0x30, 0xce, 0xff]),
        ] {
            let got = raw_bytes(&arguments(json!({"raw_bytes": text})));
            assert_eq!(got.unwrap(), bytes, "{text}");
        }
        for (value, words) in [
            (json!({}), "missing"),
            (json!({"raw_bytes": ""}), "missing"),
            (json!({"raw_bytes": 5}), "string"),
            (json!({"raw_bytes": "0x06"}), "network function"),
            (json!({"raw_bytes": "0x06 0x100"}), "'0x100'"),
            (json!({"raw_bytes": "six one"}), "'six'"),
            (json!({"raw_bytes": "0x07 0x01"}), "even"),
        ] {
            let error = raw_bytes(&arguments(value.clone())).unwrap_err().to_string();
            assert!(error.contains(words), "{value}: {error}");
        }
    }

    #[test]
    fn kinds_of_restart() {
        for (value, kind) in [
            (json!({}), ResetController::Warm),
            (json!({"warm": true}), ResetController::Warm),
            (json!({"warm": "False"}), ResetController::Cold),
        ] {
            assert_eq!(reset_kind(&arguments(value)).unwrap(), kind);
        }
        assert!(reset_kind(&arguments(json!({"warm": "hot"}))).is_err());
    }
}
