// SPDX-License-Identifier: MPL-2.0
//! The description in a TensorRT engine: its tensors, and the JSON that Ultralytics writes before the plan.
//!
//! The JSON carries what the same exporter writes into ONNX files as Python literals; both are read alike.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::FileHeader;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::TensorDesc;

/// The header of an engine with these tensors, and the JSON that came with it.
pub fn header(inputs: Vec<TensorDesc>, outputs: Vec<TensorDesc>, json: Option<&str>) -> Result<FileHeader> {
    let metadata = json.map(metadata).transpose()?.unwrap_or_default();
    let (operators, uses) = (BTreeSet::new(), Vec::new());
    Ok(FileHeader { producer: "TensorRT".into(), inputs, outputs, metadata, operators, probabilities: None, uses })
}

pub fn metadata(json: &str) -> Result<BTreeMap<String, String>> {
    let entries: serde_json::Map<String, Value> = serde_json::from_str(json).map_err(|error| {
        Error::new(ErrorKind::Model, "the metadata before its plan cannot be read")
            .cause(error)
            .remedy("Export the engine again with Ultralytics, or with trtexec, which writes none")
    })?;
    let text = |value| match value {
        Value::String(text) => text,
        value => value.to_string(),
    };
    Ok(entries.into_iter().map(|(key, value)| (key, text(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_by_its_keys() {
        let json = r#"{"description": "Ultralytics YOLO11n model", "author": "Ultralytics", "stride": 32, "task": "detect",
            "batch": 1, "imgsz": [480, 640], "names": {"0": "person", "1": "it's"}, "args": {"nms": true}, "end2end": false}"#;
        let metadata = metadata(json).unwrap();
        assert_eq!(metadata["description"], "Ultralytics YOLO11n model");
        assert_eq!(metadata["imgsz"], "[480,640]");
        assert_eq!(metadata["names"], r#"{"0":"person","1":"it's"}"#);
        assert_eq!(metadata["args"], r#"{"nms":true}"#);
        assert_eq!(metadata["end2end"], "false");
        assert!(header(Vec::new(), Vec::new(), Some("{")).is_err());
    }
}
