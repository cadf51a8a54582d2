// SPDX-License-Identifier: MPL-2.0
use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::onnx::{AttributeProto, StringStringEntryProto, TensorType, TypeProto, ValueInfoProto};
use crate::test::scratch;

static GO_ON: AtomicBool = AtomicBool::new(false);
/// So many numbers are the bulk of the work.
const MANY: usize = 100;

fn value(name: &str, elem_type: i32) -> ValueInfoProto {
    let tensor_type = Some(TensorType { elem_type, shape: None });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

fn weight(name: &str, floats: &[f32]) -> TensorProto {
    let raw_data = floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<u8>>().into();
    TensorProto { name: name.into(), data_type: FLOAT, dims: vec![floats.len() as i64], raw_data, ..Default::default() }
}

fn numbers_of(name: &str, data_type: i32) -> TensorProto {
    TensorProto { name: name.into(), data_type, ..Default::default() }
}

fn node(op_type: &str, input: &[&str], output: &[&str]) -> NodeProto {
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    NodeProto { op_type: op_type.into(), input: texts(input), output: texts(output), ..Default::default() }
}

fn with(name: &str, change: impl FnOnce(&mut AttributeProto), mut node: NodeProto) -> NodeProto {
    let mut attribute = AttributeProto { name: name.into(), ..Default::default() };
    change(&mut attribute);
    node.attribute.push(attribute);
    node
}

/// A graph from images to output0, with a weight w of many numbers.
fn graph(nodes: Vec<NodeProto>) -> GraphProto {
    GraphProto {
        node: nodes,
        initializer: vec![weight("w", &[0.1; MANY])],
        input: vec![value("images", FLOAT)],
        output: vec![value("output0", FLOAT)],
        ..Default::default()
    }
}

fn try_cast(graph: &GraphProto, path: &Path, half: Half) -> Result<Option<Casted>> {
    let model = ModelProto { ir_version: 8, graph: Some(graph.clone()), ..Default::default() };
    let how = Casting { half, exact: ExactLayers::Head, path, cancelled: &GO_ON };
    cast(model.encode_to_vec().into(), &model, &how)
}

fn cast_to(graph: &GraphProto, half: Half) -> GraphProto {
    let cast = try_cast(graph, Path::new("m.onnx"), half).unwrap().expect("something is cast");
    ModelProto::decode(&cast.onnx[..]).unwrap().graph.unwrap()
}

fn cast_graph(graph: &GraphProto) -> GraphProto {
    let cast = cast_to(graph, Half::F16);
    is_consistent(&cast);
    cast
}

/// Each node as a line, by the names of its values.
fn lines(graph: &GraphProto) -> Vec<String> {
    let line = |node: &NodeProto| format!("{} = {} {}", node.output.join(" "), node.op_type, node.input.join(" "));
    graph.node.iter().map(line).collect()
}

/// Every value is made before it is used, and once; the inputs of a node that computes have one type.
fn is_consistent(graph: &GraphProto) {
    let (types, _) = types(graph).unwrap();
    for node in &graph.node {
        for name in node.input.iter().filter(|name| !name.is_empty()) {
            assert!(types.contains_key(name.as_str()), "{name} of {node:?}");
        }
        let computes = |place: usize| operator(node).is_some_and(|operator| operator.inputs.contains(place));
        let computed = node.input.iter().enumerate().filter(|(place, name)| computes(*place) && !name.is_empty());
        let of: HashSet<i32> = computed.map(|(_, name)| types[name.as_str()]).collect();
        assert!(of.len() <= 1, "{of:?} in {node:?}");
    }
    for output in &graph.output {
        assert_eq!(types.get(output.name.as_str()), Some(&FLOAT), "{}", output.name);
    }
}

fn weights(graph: &GraphProto) -> BTreeMap<&str, (i32, usize)> {
    let weights = graph.initializer.iter();
    weights.map(|weight| (weight.name.as_str(), (weight.data_type, weight.raw_data.len()))).collect()
}

#[test]
fn products_are_in_half_and_the_head_is_not() {
    let nodes = vec![
        node("Sub", &["images", "mean"], &["zero"]),
        node("Conv", &["zero", "w"], &["a"]),
        node("Sigmoid", &["a"], &["b"]),
        node("Mul", &["a", "b"], &["c"]),
        node("Conv", &["c", "v", "bias"], &["d"]),
        node("Sigmoid", &["d"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.extend([weight("mean", &[0.5]), weight("v", &[1.0; MANY]), weight("bias", &[0.25])]);
    graph.value_info = vec![value("a", FLOAT), value("d", FLOAT), value("zero", FLOAT)];
    let cast = cast_graph(&graph);
    let expected = [
        "zero = Sub images mean",
        "zero_fp16 = Cast zero",
        "a_fp16 = Conv zero_fp16 w_fp16",
        "b_fp16 = Sigmoid a_fp16",
        "c_fp16 = Mul a_fp16 b_fp16",
        "d_fp16 = Conv c_fp16 v_fp16 bias_fp16",
        "d = Cast d_fp16",
        "output0 = Sigmoid d",
    ];
    assert_eq!(lines(&cast), expected);
    let half = (FLOAT16, 2 * MANY);
    let expected = [("bias_fp16", (FLOAT16, 2)), ("mean", (FLOAT, 4)), ("v_fp16", half), ("w_fp16", half)];
    assert_eq!(weights(&cast), BTreeMap::from(expected));
    let bias = cast.initializer.iter().find(|weight| weight.name == "bias_fp16").unwrap();
    assert_eq!(bias.raw_data[..], f16::from_f32(0.25).to_le_bytes());
    let infos: Vec<_> =
        cast.value_info.iter().map(|info| (info.name.as_str(), info.clone() == value(&info.name, FLOAT))).collect();
    assert_eq!(infos, [("a_fp16", false), ("d_fp16", false), ("d", true), ("zero", true)]);
    let short = cast_to(&graph, Half::Bf16);
    assert_eq!(weights(&short)["w_bf16"], (BFLOAT16, 2 * MANY));
}

#[test]
fn attention_and_normalisation_stay_exact() {
    let nodes = vec![
        node("MatMul", &["images", "w"], &["q"]),
        node("MatMul", &["q", "q"], &["scores"]),
        node("Mul", &["scores", "scale"], &["scaled"]),
        node("Softmax", &["scaled"], &["soft"]),
        node("MatMul", &["soft", "q"], &["values"]),
        node("MatMul", &["values", "w"], &["projected"]),
        node("Add", &["projected", "q"], &["sum"]),
        node("LayerNormalization", &["sum", "gain", "gain"], &["normal"]),
        node("MatMul", &["normal", "w"], &["last"]),
        node("Identity", &["last"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.extend([weight("scale", &[0.125]), weight("gain", &[1.0; 8])]);
    let lines = lines(&cast_graph(&graph));
    for line in [
        "scores = MatMul q q",
        "scaled = Mul scores scale",
        "soft = Softmax scaled",
        "values_fp16 = MatMul soft_fp16 q_fp16",
        "projected_fp16 = MatMul values_fp16 w_fp16",
        "sum = Add projected q",
        "normal = LayerNormalization sum gain gain",
        "normal_fp16 = Cast normal",
        "output0 = Identity last",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
    }
}

#[test]
fn weights_that_would_lose_too_much_keep_their_step() {
    for (numbers, is_cast) in [
        ([0.1; MANY], true),
        ([70000.0; MANY], false),
        ([3e-8; MANY], false),
        ([0.0; MANY], true),
        ([f32::NEG_INFINITY; MANY], true),
        ([1e-4; MANY], true),
    ] {
        let nodes = vec![node("Conv", &["images", "v"], &["a"]), node("Conv", &["a", "w"], &["output0"])];
        let mut graph = graph(nodes);
        graph.initializer.push(weight("v", &numbers));
        let cast = try_cast(&graph, Path::new("m.onnx"), Half::F16).unwrap().unwrap();
        assert_eq!((cast.nodes, cast.of), (1 + usize::from(is_cast), 2), "{}", numbers[0]);
        assert_eq!(cast.kept.len(), usize::from(!is_cast), "{}", numbers[0]);
        is_consistent(&ModelProto::decode(&cast.onnx[..]).unwrap().graph.unwrap());
    }
    // A number that keeps a divisor from zero.
    let nodes = vec![
        node("Conv", &["images", "w"], &["a"]),
        node("Add", &["a", "epsilon"], &["b"]),
        node("Div", &["a", "b"], &["c"]),
        node("Conv", &["c", "w"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.push(weight("epsilon", &[1e-9]));
    let lines = lines(&cast_graph(&graph));
    assert!(lines.contains(&"b = Add a epsilon".to_string()), "{lines:#?}");
    let short = try_cast(&graph, Path::new("m.onnx"), Half::Bf16).unwrap().unwrap();
    assert!(short.kept.is_empty(), "bf16 has its range: {short:?}");
}

#[test]
fn constants_are_converted_once_and_for_both_sides() {
    let nodes = vec![
        with("value", |attribute| attribute.t = Some(weight("", &[0.5; MANY])), node("Constant", &[], &["k"])),
        with("value_float", |attribute| attribute.f = Some(2.0), node("Constant", &[], &["two"])),
        node("Identity", &["w"], &["same"]),
        node("Conv", &["images", "k"], &["a"]),
        node("Mul", &["a", "two"], &["b"]),
        node("Conv", &["b", "same"], &["c"]),
        node("Conv", &["c", "w"], &["d"]),
        node("Add", &["d", "w"], &["output0"]),
    ];
    let cast = cast_graph(&graph(nodes));
    let expected = [
        "images_fp16 = Cast images",
        "a_fp16 = Conv images_fp16 k_fp16",
        "b_fp16 = Mul a_fp16 two_fp16",
        "c_fp16 = Conv b_fp16 w_fp16",
        "d_fp16 = Conv c_fp16 w_fp16",
        "d = Cast d_fp16",
        "output0 = Add d w",
    ];
    assert_eq!(lines(&cast), expected);
    let (half, single) = ((FLOAT16, 2 * MANY), (FLOAT, 4 * MANY));
    let expected = [("k_fp16", half), ("two_fp16", (FLOAT16, 2)), ("w", single), ("w_fp16", half)];
    assert_eq!(weights(&cast), BTreeMap::from(expected));
}

/// What is made of constants alone is as those want it that use it.
#[test]
fn computed_constants_are_as_they_are_used() {
    for (last, is_half) in [("Conv", true), ("Add", false)] {
        let nodes = vec![
            node("Transpose", &["w"], &["turned"]),
            node("Conv", &["images", "turned"], &["a"]),
            node(last, &["a", "turned"], &["output0"]),
        ];
        let lines = lines(&cast_graph(&graph(nodes)));
        let expected = if is_half { "turned_fp16 = Transpose w_fp16" } else { "turned = Transpose w" };
        assert!(lines.contains(&expected.to_string()), "{lines:#?}");
    }
}

#[test]
fn what_is_not_known_keeps_its_types() {
    const INT64: i32 = 7;
    let branch =
        GraphProto { node: vec![node("Relu", &["a"], &["r"])], output: vec![value("r", FLOAT)], ..Default::default() };
    let nodes = vec![
        node("Conv", &["images", "w"], &["a"]),
        with("then_branch", |attribute| attribute.g = Some(branch), node("If", &["yes"], &["b"])),
        node("Conv", &["b", "w"], &["c"]),
        NodeProto { domain: "com.microsoft".into(), ..node("FusedConv", &["a", "w"], &["f"]) },
        node("EfficientNMS_TRT", &["a"], &["count", "boxes"]),
        node("Shape", &["a"], &["shape"]),
        node("Mul", &["shape", "shape"], &["size"]),
        node("Resize", &["a", "", "scales"], &["large"]),
        node("TopK", &["a", "k"], &["best", "which"]),
        node("Gather", &["a", "which"], &["rows"]),
        node("MaxPool", &["a"], &["most", "where"]),
        node("NonMaxSuppression", &["best", "rows"], &["kept"]),
        node("Conv", &["large", "w"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.extend([numbers_of("yes", 9), weight("scales", &[1e-9]), numbers_of("k", INT64)]);
    let cast = cast_to(&graph, Half::F16);
    let lines = lines(&cast);
    for line in [
        "a_fp16 = Conv images_fp16 w_fp16",
        "a = Cast a_fp16",
        "b = If yes",
        "c = Conv b w",
        "f = FusedConv a w",
        "count boxes = EfficientNMS_TRT a",
        "shape = Shape a",
        "size = Mul shape shape",
        "large_fp16 = Resize a_fp16  scales",
        "best which = TopK a k",
        "rows_fp16 = Gather a_fp16 which",
        "most_fp16 where = MaxPool a_fp16",
        "kept = NonMaxSuppression best rows",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
    }
    let made = lines.iter().position(|line| line == "a = Cast a_fp16").unwrap();
    assert!(lines.iter().position(|line| line == "b = If yes").unwrap() > made);
    // Declared, its type is known.
    graph.value_info = vec![value("b", FLOAT)];
    let cast = cast_to(&graph, Half::F16);
    assert!(cast.node.iter().any(|node| node.input == ["b_fp16", "w_fp16"]), "{cast:?}");
}

#[test]
fn names_are_new() {
    let nodes =
        vec![node("Conv", &["images", "w"], &["images_fp16"]), node("Conv", &["images_fp16", "w"], &["output0"])];
    let lines = lines(&cast_graph(&graph(nodes)));
    let expected = [
        "images_fp16_ = Cast images",
        "images_fp16_fp16 = Conv images_fp16_ w_fp16",
        "output0_fp16 = Conv images_fp16_fp16 w_fp16",
        "output0 = Cast output0_fp16",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_constant_of_a_constant_keeps_what_it_is_made_of() {
    let nodes = vec![
        node("Identity", &["mean"], &["b"]),
        node("Identity", &["b"], &["c"]),
        node("Sub", &["images", "c"], &["zero"]),
        node("Conv", &["zero", "w"], &["a"]),
        node("Conv", &["a", "v"], &["d"]),
        node("Sigmoid", &["d"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.extend([weight("mean", &[0.5]), weight("v", &[1.0; MANY])]);
    let cast = cast_graph(&graph);
    assert_eq!(lines(&cast)[..3], ["b = Identity mean", "c = Identity b", "zero = Sub images c"]);
}

#[test]
fn weights_among_the_inputs_are_none_where_they_are_gone() {
    let nodes = vec![
        node("Conv", &["images", "w"], &["a"]),
        node("Conv", &["a", "v"], &["d"]),
        node("Sigmoid", &["d"], &["output0"]),
    ];
    let mut graph = graph(nodes);
    graph.initializer.push(weight("v", &[1.0; MANY]));
    graph.input.extend([value("w", FLOAT), value("v", FLOAT)]);
    let cast = cast_graph(&graph);
    let weights = weights(&cast);
    assert!(!weights.contains_key("w"), "{weights:?}");
    for input in &cast.input {
        assert!(input.name == "images" || weights.contains_key(input.name.as_str()), "{}", input.name);
    }
}

#[test]
fn what_is_in_the_file_stays_in_it() {
    let mut model = ModelProto { ir_version: 3, producer_name: "an exporter".into(), ..Default::default() };
    let entry = crate::onnx::MetadataEntry { key: "names".into(), value: vec![0xff, 0x41].into() };
    model.metadata_props.push(entry.clone());
    model.graph = Some(graph(vec![node("Conv", &["images", "w"], &["output0"])]));
    // A text in an attribute, which this crate does not read.
    #[derive(Clone, PartialEq, Message)]
    struct Attribute {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(bytes = "vec", tag = "4")]
        s: Vec<u8>,
    }
    let attribute = Bytes::from(Attribute { name: "auto_pad".into(), s: b"SAME_UPPER".into() }.encode_to_vec());
    let mut raw = RawModel::decode(&model.encode_to_vec()[..]).unwrap();
    let nodes = &mut raw.graph.as_mut().unwrap().node;
    nodes[0] = RawNode { attribute: vec![attribute.clone()], ..RawNode::decode(nodes[0].clone()).unwrap() }
        .encode_to_vec()
        .into();
    let how = Casting { half: Half::F16, exact: ExactLayers::Head, path: Path::new("m.onnx"), cancelled: &GO_ON };
    let cast = cast(raw.encode_to_vec().into(), &model, &how).unwrap().unwrap();
    let found = ModelProto::decode(&cast.onnx[..]).unwrap();
    assert_eq!(
        (found.ir_version, &found.producer_name, &found.metadata_props),
        (4, &model.producer_name, &vec![entry])
    );
    let raw = RawModel::decode(&cast.onnx[..]).unwrap().graph.unwrap();
    let conv = raw.node.into_iter().map(|node| RawNode::decode(node).unwrap()).find(|node| node.op_type == "Conv");
    assert_eq!(conv.unwrap().attribute, [attribute]);
}

fn outside(location: &str, entries: &[(&str, &str)]) -> TensorProto {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
    let external_data = entries.iter().chain(&[("location", location)]).map(entry).collect();
    TensorProto { name: "v".into(), data_type: FLOAT, dims: vec![MANY as i64], external_data, ..Default::default() }
}

#[test]
fn weights_in_other_files_are_read() {
    let folder = scratch("cast-external");
    let path = folder.join("m.onnx");
    let bytes: Vec<u8> = (0..MANY).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect();
    fs::write(folder.join("m.onnx.data"), [&[7; 16][..], &bytes].concat()).unwrap();
    let with = |weight: TensorProto| {
        let mut graph = graph(vec![node("Conv", &["images", "v"], &["a"]), node("Add", &["a", "v"], &["output0"])]);
        graph.initializer.push(weight);
        try_cast(&graph, &path, Half::F16)
    };
    let cast = with(outside("m.onnx.data", &[("offset", "16"), ("length", "400")])).unwrap().unwrap();
    let graph = ModelProto::decode(&cast.onnx[..]).unwrap().graph.unwrap();
    let twin = graph.initializer.iter().find(|weight| weight.name == "v_fp16").unwrap();
    let numbers = twin.raw_data.as_chunks::<2>().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32());
    assert_eq!(numbers.collect::<Vec<_>>(), (0..MANY).map(|i| i as f32 / 8.0).collect::<Vec<_>>());
    let single = graph.initializer.iter().find(|weight| weight.name == "v").unwrap();
    assert!(single.raw_data.is_empty() && single.external_data.len() == 3, "f32 stays where it is");

    for (weight, words) in [
        (outside("m.onnx.data", &[("offset", "20")]), "ends before it"),
        (outside("m.onnx.data", &[("offset", "18446744073709551615")]), "ends before it"),
        (outside("m.onnx.data", &[("offset", "x")]), "the offset of its file is no number"),
        (outside("m.onnx.data", &[("length", "8")]), "has 8 bytes of it"),
        (outside("none.data", &[]), "none.data, which holds weights"),
        (outside("../m.data", &[]), "may not be read"),
        (outside("/dev/zero", &[]), "may not be read"),
    ] {
        let error = with(weight).unwrap_err();
        assert!(error.kind() == ErrorKind::Model && error.message().contains(words), "{error}");
    }
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    let conv = || node("Conv", &["images", "w"], &["output0"]);
    let refused = |graph: GraphProto, words: &str| {
        let error = try_cast(&graph, Path::new("m.onnx"), Half::F16).unwrap_err();
        assert!(error.kind() == ErrorKind::Model && error.message().contains(words), "{error}");
    };
    refused(graph(vec![conv(), conv()]), "“output0” is made twice");
    refused(graph(vec![node("Relu", &["images"], &["images"]), conv()]), "“images” is made twice");
    let with_weight = |change: &dyn Fn(&mut TensorProto)| {
        let mut graph = graph(vec![conv()]);
        change(&mut graph.initializer[0]);
        graph
    };
    let mut twice = graph(vec![conv()]);
    twice.initializer.push(weight("w", &[1.0]));
    refused(twice, "“w” is made twice");
    refused(with_weight(&|weight| weight.dims = vec![1 << 40]), "has 100 numbers, and 1099511627776 by its dimensions");
    refused(with_weight(&|weight| weight.dims = vec![i64::MAX, i64::MAX]), "its dimensions");
    refused(with_weight(&|weight| weight.dims = vec![-1]), "its dimensions");
    refused(with_weight(&|weight| weight.raw_data = weight.raw_data.slice(1..)), "399 bytes");
    refused(with_weight(&|weight| weight.raw_data = Bytes::new()), "has 0 numbers");
    refused(
        with_weight(&|weight| (weight.raw_data, weight.float_data) = (Bytes::new(), vec![1.0; 7])),
        "has 7 numbers",
    );
}

#[test]
fn nothing_to_cast_is_said() {
    let none = |graph: &GraphProto| assert!(try_cast(graph, Path::new("m.onnx"), Half::F16).unwrap().is_none());
    none(&graph(vec![node("Relu", &["images"], &["output0"])]));
    none(&GraphProto::default());
    // A circle, and nodes in the wrong order.
    none(&graph(vec![node("Conv", &["b", "w"], &["a"]), node("Relu", &["a"], &["b"])]));
    let cancelled = AtomicBool::new(true);
    let how = Casting { half: Half::F16, exact: ExactLayers::Head, path: Path::new("m.onnx"), cancelled: &cancelled };
    let model =
        ModelProto { graph: Some(graph(vec![node("Conv", &["images", "w"], &["output0"])])), ..Default::default() };
    assert_eq!(cast(model.encode_to_vec().into(), &model, &how).unwrap_err().kind(), ErrorKind::Run);
}
