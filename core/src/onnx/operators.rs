// SPDX-License-Identifier: MPL-2.0
//! What operators of ONNX do with floats: which of their inputs and outputs have the same type, and whether they lose much with
//! fewer bits.
//!
//! What is not in the table keeps its types: other domains, control flow, recurrent networks, and all whose numbers are
//! coordinates, such as GridSample's.

use super::exact::StepWork;
use super::{FLOAT, NodeProto, TensorProto};

/// Inputs or outputs of an operator.
#[derive(Clone, Copy, Debug)]
pub enum Operands {
    All,
    Only(&'static [usize]),
}

impl Operands {
    pub fn contains(self, place: usize) -> bool {
        match self {
            Operands::All => true,
            Operands::Only(places) => places.contains(&place),
        }
    }
}

/// An operator that computes in the type of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    pub work: StepWork,
    /// Those that have the type in which it computes.
    pub inputs: Operands,
    pub outputs: Operands,
}

const FIRST: Operands = Operands::Only(&[0]);

/// StepWork, inputs, outputs, names.
type Row = (StepWork, Operands, Operands, &'static [&'static str]);

const TABLE: &[Row] = &[
    (StepWork::Weighted, Operands::Only(&[0, 1, 2]), FIRST, &["Conv", "ConvTranspose", "Gemm"]),
    (StepWork::Weighted, Operands::All, FIRST, &["MatMul", "Einsum"]),
    (
        StepWork::Light,
        Operands::All,
        FIRST,
        &[
            "Abs",
            "Add",
            "BatchNormalization",
            "Concat",
            "Div",
            "Elu",
            "HardSigmoid",
            "HardSwish",
            "Identity",
            "LeakyRelu",
            "Max",
            "Min",
            "Mul",
            "Neg",
            "PRelu",
            "Relu",
            "Selu",
            "Sigmoid",
            "Sub",
            "Sum",
            "Tanh",
            "ThresholdedRelu",
        ],
    ),
    (
        StepWork::Light,
        FIRST,
        FIRST,
        &[
            "AveragePool",
            "DepthToSpace",
            "Dropout",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "MaxPool",
            "Reshape",
            "Resize",
            "Slice",
            "SpaceToDepth",
            "Squeeze",
            "Tile",
            "Transpose",
            "Unsqueeze",
            "Upsample",
        ],
    ),
    (StepWork::Light, FIRST, Operands::All, &["Split"]),
    (StepWork::Light, Operands::Only(&[0, 1, 2]), FIRST, &["Clip"]),
    (StepWork::Light, Operands::Only(&[1, 2]), FIRST, &["Where"]),
    (StepWork::Light, Operands::Only(&[0, 2]), FIRST, &["Pad"]),
    (
        StepWork::Sensitive,
        FIRST,
        FIRST,
        &[
            // Along an axis.
            "CumSum",
            "Hardmax",
            "LogSoftmax",
            "Softmax",
            // Normalisations.
            "GroupNormalization",
            "InstanceNormalization",
            "LRN",
            "LayerNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
            "RMSNormalization",
            // Reductions.
            "GlobalAveragePool",
            "GlobalLpPool",
            "GlobalMaxPool",
            "LpPool",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
            // Functions of one number.
            "Acos",
            "Acosh",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "Celu",
            "Cos",
            "Cosh",
            "Erf",
            "Exp",
            "Gelu",
            "Log",
            "Mish",
            "Pow",
            "Reciprocal",
            "Sin",
            "Sinh",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Swish",
            "Tan",
        ],
    ),
];

/// Whether a node is of ONNX's own operators.
pub fn is_of_onnx(node: &NodeProto) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx")
}

/// What is known of a node's operator.
pub fn operator(node: &NodeProto) -> Option<Operator> {
    let row = TABLE.iter().filter(|_| is_of_onnx(node)).find(|row| row.3.contains(&node.op_type.as_str()));
    row.map(|&(work, inputs, outputs, _)| Operator { work, inputs, outputs })
}

/// The type of a node's output at that place, where its operator says so. `of_input` is the type of its input at a place.
pub fn type_made(node: &NodeProto, place: usize, of_input: impl Fn(usize) -> Option<i32>) -> Option<i32> {
    const BOOL: i32 = 9;
    const INT64: i32 = 7;
    if !is_of_onnx(node) {
        return None;
    }
    let attribute = |name: &str| node.attribute.iter().find(|attribute| attribute.name == name);
    if let Some(operator) = operator(node) {
        let input = match operator.inputs {
            Operands::All => 0,
            Operands::Only(places) => places[0],
        };
        return if operator.outputs.contains(place) { of_input(input) } else { None };
    }
    match (node.op_type.as_str(), place) {
        ("Constant", 0) => constant(node).map(|tensor| tensor.data_type),
        ("ConstantOfShape", 0) => {
            Some(attribute("value").and_then(|value| value.t.as_ref()).map_or(FLOAT, |value| value.data_type))
        }
        ("Cast", 0) => attribute("to").and_then(|to| i32::try_from(to.i?).ok()),
        ("CastLike", 0) => of_input(1),
        ("OneHot", 0) => of_input(2),
        (
            "DeformConv" | "GridSample" | "GRU" | "LSTM" | "Mod" | "Range" | "RNN" | "ReverseSequence" | "RoiAlign"
            | "Round" | "Floor" | "Ceil" | "Sign" | "ScatterElements" | "ScatterND" | "TopK" | "Trilu" | "Unique",
            0,
        ) => of_input(0),
        ("ArgMax" | "ArgMin" | "NonMaxSuppression" | "NonZero" | "Shape" | "Size", 0) | ("TopK", 1) => Some(INT64),
        (
            "And" | "Equal" | "Greater" | "GreaterOrEqual" | "IsInf" | "IsNaN" | "Less" | "LessOrEqual" | "Not" | "Or"
            | "Xor",
            0,
        ) => Some(BOOL),
        _ => None,
    }
}

/// The numbers of a Constant node, where they are floats or a tensor.
pub fn constant(node: &NodeProto) -> Option<TensorProto> {
    if node.op_type != "Constant" || !is_of_onnx(node) {
        return None;
    }
    let floats =
        |dims: Vec<i64>, float_data: Vec<f32>| TensorProto { dims, float_data, data_type: FLOAT, ..Default::default() };
    node.attribute.iter().find_map(|attribute| match attribute.name.as_str() {
        "value" => attribute.t.clone(),
        "value_float" => Some(floats(vec![], vec![attribute.f?])),
        "value_floats" => Some(floats(vec![attribute.floats.len() as i64], attribute.floats.clone())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_operator_is_in_one_row() {
        let mut seen = BTreeSet::new();
        for name in TABLE.iter().flat_map(|row| row.3) {
            assert!(seen.insert(name), "{name}");
        }
    }

    #[test]
    fn operators_of_others_are_not_known() {
        let node = |domain: &str| NodeProto { op_type: "Conv".into(), domain: domain.into(), ..Default::default() };
        assert!(operator(&node("")).is_some() && operator(&node("ai.onnx")).is_some());
        assert!(operator(&node("com.microsoft")).is_none());
    }
}
