// SPDX-License-Identifier: Apache-2.0
//! The vendor interface over IPMI: raw commands, and restarting the BMC.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DriverError, DriverTarget, HttpMethod, NodeChanges, StepDefinition, StepOutcome,
    VendorInterface, VendorMethod, VendorResponse, bmc_interface,
};
use ipmi::{GetDeviceId, ResetController};
use node_model::{Step, StepArgument, StepFlow};
use serde_json::{Map, Value};

use super::access::{parse_flag, parse_number};
use super::connections::IpmiConnections;

/// The IPMI vendor interface.
pub(super) struct IpmiVendor(pub(super) Arc<IpmiConnections>);

bmc_interface!(IpmiVendor, Vendor, STEPS);

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
        description: "Restarts the BMC, not the machine. 'warm' selects whether it keeps its \
                      settings; true if not given.",
        attach: false,
        require_exclusive_lock: true,
    },
];

const BYTES: StepArgument =
    StepArgument::required(RAW_BYTES, "Network function, command and data, such as '0x06 0x01'.");

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: SEND_RAW,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[BYTES],
    },
    StepDefinition {
        name: SEND_RAW,
        flows: &[StepFlow::Deploy, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[BYTES],
    },
];

#[async_trait]
impl VendorInterface for IpmiVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        match method {
            SEND_RAW => raw_bytes(arguments).map(drop)?,
            BMC_RESET => parse_reset(arguments).map(drop)?,
            _ => return Err(self.unsupported(&format!("call the vendor method '{method}'"))),
        }
        self.0.validate(target)
    }

    async fn call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorResponse, DriverError> {
        match method {
            SEND_RAW => self.send_raw(target, &raw_bytes(arguments)?).await?,
            BMC_RESET => self.reset(target, parse_reset(arguments)?).await?,
            _ => return Err(self.unsupported(&format!("call the vendor method '{method}'"))),
        }
        Ok(VendorResponse::default())
    }
}

impl IpmiVendor {
    async fn run(
        &self,
        target: &DriverTarget<'_>,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        self.send_raw(target, &raw_bytes(&step.args.parse())?).await?;
        Ok(StepOutcome::done(NodeChanges::none()))
    }

    async fn send_raw(&self, target: &DriverTarget<'_>, bytes: &[u8]) -> Result<(), DriverError> {
        let bmc = self.0.bmc(target, "send raw bytes")?;
        let [netfn, command, data @ ..] = bytes else {
            return Err(bmc.failed("there must be at least a network function and a command"));
        };
        bmc.request(*netfn, *command, data).await.map_err(|error| bmc.explain(error))?;
        Ok(())
    }

    async fn reset(
        &self,
        target: &DriverTarget<'_>,
        reset: ResetController,
    ) -> Result<(), DriverError> {
        let bmc = self.0.bmc(target, "restart the BMC")?;
        let device = bmc.execute(&GetDeviceId).await?;
        tracing::info!(node = %target.node.id, reset = reset.name(), ?device, "restarting BMC");
        let sent = bmc.request(ipmi::message::netfn::APP, reset.command(), &[]).await;
        bmc.client().close().await;
        match sent {
            // A BMC that restarts at once sends no reply.
            Ok(_) | Err(ipmi::IpmiError::Uncertain { .. }) => Ok(()),
            Err(error) => Err(bmc.explain(error)),
        }
    }
}

/// The bytes of `raw_bytes`, hexadecimal with `0x` before them or decimal.
fn raw_bytes(arguments: &Map<String, Value>) -> Result<Vec<u8>, DriverError> {
    const EXAMPLE: &str = "give at least a network function and a command, such as '0x06 0x01'";
    let text = match arguments.get(RAW_BYTES) {
        None | Some(Value::Null) => return Err(DriverError::missing(RAW_BYTES, EXAMPLE)),
        Some(Value::String(text)) if text.trim().is_empty() => {
            return Err(DriverError::missing(RAW_BYTES, EXAMPLE));
        }
        Some(Value::String(text)) => text,
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(DriverError::invalid(RAW_BYTES, format!("it must be a string; {EXAMPLE}")));
        }
    };
    let byte = |text: &str| {
        let byte = parse_number(text).and_then(|number| u8::try_from(number).ok());
        byte.ok_or_else(|| DriverError::invalid(RAW_BYTES, format!("'{text}' is not a byte")))
    };
    let bytes: Vec<u8> = text.split_whitespace().map(byte).collect::<Result<_, _>>()?;
    match bytes.as_slice() {
        [netfn, _, ..] if netfn & 1 != 0 || *netfn > 0x3e => Err(DriverError::invalid(
            RAW_BYTES,
            format!("the network function 0x{netfn:02x} is not even and below 0x40"),
        )),
        [_, _, ..] if bytes.len() > MAX_RAW_BYTES => {
            Err(DriverError::invalid(RAW_BYTES, format!("it has more than {MAX_RAW_BYTES} bytes")))
        }
        [_, _, ..] => Ok(bytes),
        [_] | [] => Err(DriverError::invalid(RAW_BYTES, EXAMPLE)),
    }
}

/// More than any BMC accepts in one message.
const MAX_RAW_BYTES: usize = 1024;

fn parse_reset(arguments: &Map<String, Value>) -> Result<ResetController, DriverError> {
    let warm = match arguments.get("warm") {
        None | Some(Value::Null) => Some(true),
        Some(value) => parse_flag(value),
    };
    match warm {
        Some(true) => Ok(ResetController::Warm),
        Some(false) => Ok(ResetController::Cold),
        None => Err(DriverError::invalid(
            "warm",
            "use true for a warm restart and false for a cold one",
        )),
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
    fn parses_raw_bytes() {
        for (text, bytes) in [
            ("0x06 0x01", vec![6, 1]),
            ("0x00 0x08 0x03 0x08", vec![0, 8, 3, 8]),
            ("6 1", vec![6, 1]),
            ("  0x30\t0xCE 255 ", vec![0x30, 0xce, 0xff]),
        ] {
            let got = raw_bytes(&arguments(json!({"raw_bytes": text})));
            assert_eq!(got.unwrap(), bytes, "{text}");
        }
        for (value, fragment) in [
            (json!({}), "missing"),
            (json!({"raw_bytes": ""}), "missing"),
            (json!({"raw_bytes": 5}), "string"),
            (json!({"raw_bytes": "0x06"}), "network function"),
            (json!({"raw_bytes": "0x06 0x100"}), "'0x100'"),
            (json!({"raw_bytes": "six one"}), "'six'"),
            (json!({"raw_bytes": "0x07 0x01"}), "even"),
        ] {
            let error = raw_bytes(&arguments(value.clone())).unwrap_err().to_string();
            assert!(error.contains(fragment), "{value}: {error}");
        }
    }

    #[test]
    fn parses_reset_kind() {
        for (value, reset) in [
            (json!({}), ResetController::Warm),
            (json!({"warm": true}), ResetController::Warm),
            (json!({"warm": "False"}), ResetController::Cold),
        ] {
            assert_eq!(parse_reset(&arguments(value)).unwrap(), reset);
        }
        assert!(parse_reset(&arguments(json!({"warm": "hot"}))).is_err());
    }
}
