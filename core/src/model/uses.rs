// SPDX-License-Identifier: MPL-2.0
//! What the graph of a file says of an input in addition to its type and dimensions, and whether values for it agree with that.
//!
//! Not every backend notices what does not: an engine of TensorRT may read beyond the end of a table.

use std::collections::HashMap;

use super::ModelInfo;
use super::input::KNOWN;
use crate::error::{Error, ErrorKind, Result};
use crate::onnx::{GraphProto, ValueInfoProto, channels, tables};
use crate::tensor::{DType, Tensor, TensorDesc};

/// What exporters write for a dimension that has no name.
const NAMELESS: [&str; 7] = ["", "?", "-1", "None", "none", "unknown", "dynamic"];

/// How an input is used.
#[derive(Clone, Debug, Default)]
pub struct InputUse {
    /// The names of its open dimensions. Those of one name have one size.
    names: Vec<Option<String>>,
    /// The rows of the smallest table that its numbers choose from.
    rows: Option<u64>,
    /// The channels of the first convolution that takes it.
    channels: Option<i64>,
}

impl InputUse {
    /// Of each input.
    pub fn of_graph(graph: &GraphProto, inputs: &[&ValueInfoProto]) -> Vec<Self> {
        let channels = channels::of_convolutions(graph, inputs.iter().map(|input| &*input.name));
        // The only one is the picture, which chooses from no table.
        let rows = match inputs {
            [] | [_] => HashMap::new(),
            several => tables::rows(graph, several.iter().map(|input| &*input.name)),
        };
        let of = |input: &&ValueInfoProto| InputUse {
            names: names(input),
            rows: rows.get(&*input.name).copied(),
            channels: channels.get(&*input.name).copied(),
        };
        inputs.iter().map(of).collect()
    }

    /// The channels that the first convolution takes of it, where the graph shows one.
    pub fn channels(&self) -> Option<i64> {
        self.channels
    }

    /// The first dimension that has one of these names, in any case.
    pub fn place_of(&self, wanted: &[&str]) -> Option<usize> {
        let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        self.names.iter().position(|name| name.as_deref().is_some_and(is_wanted))
    }

    /// A number that is not in the table that it chooses from.
    fn misplaced(&self, tensor: &Tensor) -> Option<(i64, u64)> {
        let rows = self.rows.filter(|&rows| rows > 0)?;
        // Those below zero count from the end.
        let is_beyond = |number: &i64| match number.unsigned_abs() {
            below_zero if *number < 0 => below_zero > rows,
            place => place >= rows,
        };
        let number = match tensor.desc().dtype {
            DType::I64 => tensor.as_slice::<i64>()?.iter().copied().find(is_beyond),
            DType::I32 => tensor.as_slice::<i32>()?.iter().map(|&number| i64::from(number)).find(is_beyond),
            _ => None,
        };
        Some((number?, rows))
    }
}

fn names(input: &ValueInfoProto) -> Vec<Option<String>> {
    let shape = input.r#type.as_ref().and_then(|of| of.tensor_type.as_ref()?.shape.as_ref());
    let name = |bytes: &[u8]| {
        let name = std::str::from_utf8(bytes).ok()?.trim();
        (!NAMELESS.contains(&name) && !name.contains('\0')).then(|| name.to_string())
    };
    shape.into_iter().flat_map(|shape| &shape.dim).map(|dim| dim.dim_param.as_deref().and_then(name)).collect()
}

impl ModelInfo {
    /// Those tensors, in the order of its inputs, if they agree with what the graph says.
    ///
    /// # Errors
    /// `Settings`, where a number is beyond its table, or where dimensions of one name have two sizes.
    pub(super) fn agreeing(&self, sides: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        self.check_uses(&sides)?;
        Ok(sides)
    }

    fn check_uses(&self, sides: &[Option<Tensor>]) -> Result<()> {
        let given = sides.iter().zip(&self.uses).filter_map(|(side, of)| Some((side.as_ref()?, of)));
        // A table that all pictures share may call its rows what they call their batch.
        let batch = self.uses.get(self.image).and_then(|of| of.names.first()?.as_deref());
        let mut known: Vec<(&str, i64, &TensorDesc)> = Vec::new();
        for (tensor, of) in given {
            let desc = tensor.desc();
            if let Some((number, rows)) = of.misplaced(tensor) {
                let what = format!("the input {} has the number {number}", desc.name);
                return Err(Error::new(ErrorKind::Settings, what)
                    .cause(format!("its numbers choose from a table of {rows} rows"))
                    .remedy(format!("Give numbers from 0 to {} in input-values", rows - 1)));
            }
            let sizes = of.names.iter().zip(desc.dims.iter()).filter(|_| !KNOWN.contains(&&*desc.name));
            for (name, &size) in sizes {
                let Some(name) = name.as_deref().filter(|name| Some(*name) != batch) else { continue };
                match known.iter().find(|(other, ..)| *other == name) {
                    Some((_, first, other)) if *first != size => return Err(disagreement(name, other, desc)),
                    Some(_) => {}
                    None => known.push((name, size, desc)),
                }
            }
        }
        Ok(())
    }
}

fn disagreement(name: &str, one: &TensorDesc, other: &TensorDesc) -> Error {
    Error::new(ErrorKind::Settings, "the arrays of input-values do not go together")
        .cause(format!(
            "the model has the dimension “{name}” in {} and in {}, and they are {one} and {other}",
            one.name, other.name
        ))
        .remedy("Save arrays that have one size there")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::device::Device;
    use crate::model::InputValues;
    use crate::onnx_files::{F32, Graph, I64};
    use crate::test::npy::{npy, save_floats};
    use crate::test::scratch;

    /// What a model says to these values for a batch of two.
    fn said(model: &Arc<ModelInfo>, values: &str) -> std::result::Result<(), String> {
        let (spec, values) = (model.input_spec(None, 2, Device::Host).unwrap(), InputValues::read(values).unwrap());
        model.side_inputs(&spec, 2, &values).map(drop).map_err(|error| error.message())
    }

    fn read(graph: Graph, folder: &Path) -> Arc<ModelInfo> {
        let graph = graph.input("images", F32, &["n", "3", "32", "32"]).output("y", F32, &["n", "k"]);
        Arc::new(ModelInfo::read(Path::new(&graph.save(&folder.join("m.onnx")))).unwrap())
    }

    #[test]
    fn dimensions_of_one_name_have_one_size() {
        let folder = scratch("uses-names");
        let array = |name: &str, shape: &[usize]| {
            let count = shape.iter().product();
            save_floats(&folder.join(name).with_extension("npy"), shape, &vec![0.5; count])
        };
        let (three, two) = (array("three", &[3, 4]), array("two", &[1, 2]));
        let (flat, more) = (array("flat", &[1, 3]), array("more", &[5, 4]));
        let model = |words: &str, bias: &str| {
            read(Graph::new().input("w", F32, &[words, "4"]).input("b", F32, &["1", bias]), &folder)
        };
        let named = model("k", "k");
        assert_eq!(said(&named, &format!("w={three},b={flat}")), Ok(()));
        let error = said(&named, &format!("w={three},b={two}")).unwrap_err();
        assert!(error.contains("the dimension “k” in w and in b, and they are w f32 3x4 and b f32 1x2"), "{error}");
        assert!(error.starts_with("Cannot use the model file") && error.ends_with("one size there."), "{error}");
        for (words, bias) in [("k", "m"), ("?", "?"), ("", ""), ("None", "None"), ("n", "n")] {
            assert_eq!(said(&model(words, bias), &format!("w={more},b={two}")), Ok(()), "{words}");
        }
    }

    #[test]
    fn numbers_are_of_rows_of_their_table() {
        let folder = scratch("uses-tables");
        let model = read(
            Graph::new().input("ids", I64, &["k"]).weight("table", F32, &[3, 1], vec![0; 12]).node(
                "Gather",
                &["table", "ids"],
                &["rows"],
                vec![],
            ),
            &folder,
        );
        let numbers = |numbers: &[i64]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            std::fs::write(folder.join("ids.npy"), npy("<i8", &format!("({},)", numbers.len()), &bytes)).unwrap();
            said(&model, &format!("ids={}", folder.join("ids.npy").display()))
        };
        assert_eq!([numbers(&[0, 1, 2]), numbers(&[-3, -1])], [Ok(()), Ok(())]);
        for number in [3, 1 << 62, -4, i64::MIN] {
            let error = numbers(&[0, number]).unwrap_err();
            assert!(error.contains(&format!("the input ids has the number {number}: ")), "{error}");
            assert!(error.ends_with("a table of 3 rows. Give numbers from 0 to 2 in input-values."), "{error}");
        }
    }
}
