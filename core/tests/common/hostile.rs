// SPDX-License-Identifier: MPL-2.0
//! Model files that are damaged or made to do harm. What a file is depends on nothing but the state of [`Random`].

use std::ops::Range;

use super::onnx::{BOOL, F32, Graph, I64, endless, int, ints};
use super::path;
use super::random::Random;

/// Pieces of the texts that exporters write into the metadata of a model.
pub const LITERALS: [&str; 24] = [
    "{", "}", "[", "]", "(", ")", "0:", "1: ", ",", "'a'", "\"b\"", "'", "\\", "\\u12", "\\ud83d", "32", "-1", "1e99",
    "nan", "True", "None", "é", "\0", " ",
];

const NUMBERS: [i64; 16] =
    [0, 1, -1, 2, 3, 8, 64, 300, 65_536, 1 << 24, 1 << 31, 1 << 40, 1 << 62, i64::MAX, i64::MIN, -(1 << 31)];

const TEXTS: [&str; 10] = ["", "\0", "\x1b[2J", "%n%s", "\u{202e}a", "images", "output0", "../x", "/dev/zero", "NaN"];

const METADATA: [&str; 7] = ["names", "stride", "imgsz", "task", "args", "end2end", "description"];

/// A text of pieces that mean something to a parser.
pub fn text(random: &mut Random, pieces: &[&str]) -> String {
    let mut text = String::new();
    for _ in 0..random.below(40) {
        let times = if random.below(20) == 0 { 1 + random.below(200) } else { 1 };
        text += &random.one_of(pieces).repeat(times);
    }
    text
}

/// Flips, cuts, doubles or overwrites some of the bytes.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        damage_at(random, bytes, at);
    }
}

fn damage_at(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => bytes[at] = random.one_of(&[0, 1, 0x7f, 0x80, 0xff]),
        2 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
        3 => {
            let piece = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => bytes[at] ^= 1 << random.below(8),
    }
}

/// A graph that takes a small picture.
pub fn picture() -> Graph {
    Graph::new().input("images", F32, &["1", "3", "8", "8"])
}

/// A model file with something wrong in it. It may never come to an end.
pub fn model(random: &mut Random) -> Vec<u8> {
    chosen(random, true)
}

/// The same, without those that are made to run for hours.
pub fn finite_model(random: &mut Random) -> Vec<u8> {
    chosen(random, false)
}

fn chosen(random: &mut Random, may_be_endless: bool) -> Vec<u8> {
    match random.below(100) {
        0..25 => flipped(random),
        25..40 => {
            let mut bytes = detector(random);
            bytes.truncate(random.below(bytes.len() / 1024) * 1024);
            bytes
        }
        40..50 => {
            let mut graph = picture().constant("output0", &[1, 1, 6], &[0.0; 6]);
            for key in METADATA {
                if random.below(2) == 0 {
                    graph = graph.metadata(key, &text(random, &LITERALS));
                }
            }
            graph.bytes()
        }
        50..70 => wild(random, may_be_endless),
        _ => {
            let mut bytes = detector(random);
            for _ in 0..=random.below(3) {
                bytes = mutated(random, &bytes, 0);
            }
            bytes
        }
    }
}

/// One of the trained detectors of this project.
fn detector(random: &mut Random) -> Vec<u8> {
    // Half of them are of the small pictures: those that still run do so in a tenth of the time.
    let small = "shapes-160.onnx";
    let name = random.one_of(&["shapes-e2e.onnx", small, "shapes-f16.onnx", small, "shapes-v8.onnx", small]);
    std::fs::read(path(&format!("tests/models/{name}"))).unwrap()
}

/// A detector with damaged bytes: 19 of 20 are not of its weights, which are nearly the whole file.
fn flipped(random: &mut Random) -> Vec<u8> {
    let mut bytes = detector(random);
    let of_weights = fields(&bytes)
        .into_iter()
        .flatten()
        .filter(|field| field.number == 7) // ModelProto.graph
        .flat_map(|field| inner(&bytes, &field, 5)) // GraphProto.initializer
        .flat_map(|field| inner(&bytes, &field, 9)) // TensorProto.raw_data
        .map(|field| field.payload)
        .collect::<Vec<_>>();
    for _ in 0..=random.below(3) {
        let anywhere = random.below(20) == 0;
        while !bytes.is_empty() {
            let at = random.below(bytes.len());
            if anywhere || !of_weights.iter().any(|weights| weights.contains(&at)) {
                damage_at(random, &mut bytes, at);
                break;
            }
        }
    }
    bytes
}

/// A small graph whose operators, sizes or weights are beyond measure.
fn wild(random: &mut Random, may_be_endless: bool) -> Vec<u8> {
    let number = |random: &mut Random| random.one_of(&NUMBERS);
    let weight = |graph: Graph, name: &str, numbers: &[i64]| {
        graph.weight(name, I64, &[numbers.len() as i64], numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
    };
    let some = |random: &mut Random, count: usize| (0..count).map(|_| number(random)).collect::<Vec<_>>();
    let graph = match random.below(40) {
        0..8 => {
            let ops: [(&str, &[usize]); 10] = [
                ("ConstantOfShape", &[2]),
                ("Expand", &[0, 4]),
                ("Tile", &[0, 4]),
                ("Pad", &[0, 8]),
                ("Range", &[1, 1, 1]),
                ("TopK", &[0, 1]),
                ("Reshape", &[0, 4]),
                ("Slice", &[0, 2, 2]),
                ("OneHot", &[2, 1, 2]),
                ("Gather", &[0, 2]),
            ];
            let (op, inputs) = random.one_of(&ops);
            let mut graph = picture();
            let mut names = Vec::new();
            for (i, &count) in inputs.iter().enumerate() {
                if count == 0 {
                    names.push("images".to_string());
                } else {
                    names.push(format!("w{i}"));
                    graph = weight(graph, &names[i], &some(random, count));
                }
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            graph.node(op, &names, &["output0"], Vec::new())
        }
        8..16 => {
            let op = random.one_of(&["MaxPool", "AveragePool"]);
            let attributes = vec![
                ints("kernel_shape", &some(random, 2)),
                ints("pads", &some(random, 4)),
                ints("strides", &some(random, 2)),
            ];
            picture().node(op, &["images"], &["output0"], attributes)
        }
        16..22 => {
            let dims: Vec<String> = some(random, 4).iter().map(i64::to_string).collect();
            let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
            Graph::new().input("images", F32, &dims).node("Identity", &["images"], &["output0"], Vec::new())
        }
        22..28 => {
            let file =
                random.one_of(&["../x.data", "/etc/passwd", "/dev/zero", "x.data", "pipe.data", "hole.data", "a.bin"]);
            picture().external_weight("w", file).node("Mul", &["images", "w"], &["output0"], Vec::new())
        }
        28..32 => {
            // Rows of a head with values that no network gives.
            let value =
                |random: &mut Random| random.one_of(&[f32::NAN, f32::INFINITY, -f32::INFINITY, 1e38, -1.0, 0.5]);
            let rows = random.one_of(&[0, 1, 300, 8400]);
            let columns = random.one_of(&[0, 1, 4, 5, 6, 7, 84, 85]);
            let values: Vec<f32> = (0..rows * columns).map(|_| value(random)).collect();
            return picture().constant("output0", &[1, rows, columns], &values).bytes();
        }
        32 if may_be_endless => {
            // Loops that take hours, also in constants, which are folded while the model is loaded.
            return endless("1", "8", random.below(2) == 0).bytes();
        }
        33 => {
            let mut graph = picture();
            let count = random.one_of(&[100, 1000, 5000, 19_000, 30_000]);
            for i in 0..count {
                let from = if i == 0 { "images".to_string() } else { format!("v{i}") };
                graph = graph.node("Relu", &[&from], &[&format!("v{}", i + 1)], Vec::new());
            }
            graph.node("Identity", &[&format!("v{count}")], &["output0"], Vec::new())
        }
        34 => picture().weight("c", BOOL, &[], vec![1]).node("Identity", &["output0"], &["output0"], Vec::new()),
        _ => {
            let mut graph = picture();
            for i in 0..random.below(60) {
                let from = if i == 0 { "images".to_string() } else { format!("v{i}") };
                let op = random.one_of(&["Concat", "Relu", "Softmax"]);
                let inputs = if op == "Concat" { vec![from.as_str(); 2] } else { vec![from.as_str()] };
                graph = graph.node(op, &inputs, &[&format!("v{}", i + 1)], vec![int("axis", 1)]);
            }
            graph.node("Identity", &["v5"], &["output0"], Vec::new())
        }
    };
    graph.output("output0", F32, &["1", "1", "6"]).bytes()
}

// Protocol buffers as they are on the wire, so that any field of any message can be changed with the lengths around it
// kept right.

/// One field of a message: where it and its content lie.
#[derive(Clone)]
struct Field {
    number: u64,
    wire: u64,
    payload: Range<usize>,
}

const VARINT: u64 = 0;
const I64_BITS: u64 = 1;
const BYTES: u64 = 2;
const I32_BITS: u64 = 5;

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The fields of a message, or `None` where the bytes are something else.
fn fields(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let (number, wire, begin) = (tag >> 3, tag & 7, at);
        let payload = match wire {
            VARINT => varint(bytes, &mut at).map(|_| begin..at)?,
            I64_BITS => begin..begin + 8,
            I32_BITS => begin..begin + 4,
            BYTES => {
                let length = usize::try_from(varint(bytes, &mut at)?).ok()?;
                at..at.checked_add(length)?
            }
            _ => return None,
        };
        at = payload.end;
        if number == 0 || number > 100 || at > bytes.len() {
            return None;
        }
        fields.push(Field { number, wire, payload });
    }
    Some(fields)
}

/// The fields of that number in a message within another one.
fn inner(bytes: &[u8], outer: &Field, number: u64) -> Vec<Field> {
    let begin = outer.payload.start;
    let found = fields(&bytes[outer.payload.clone()]).unwrap_or_default().into_iter();
    let shift = |field: Field| Field { payload: field.payload.start + begin..field.payload.end + begin, ..field };
    found.filter(|field| field.number == number).map(shift).collect()
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put(out: &mut Vec<u8>, field: &Field, payload: &[u8]) {
    put_varint(out, field.number << 3 | field.wire);
    if field.wire == BYTES {
        put_varint(out, payload.len() as u64);
    }
    out.extend_from_slice(payload);
}

/// The message with one field, at any depth, removed, doubled, exchanged or changed.
fn mutated(random: &mut Random, bytes: &[u8], depth: usize) -> Vec<u8> {
    let Some(fields) = fields(bytes).filter(|fields| !fields.is_empty()) else { return other_bytes(random, bytes) };
    // The graph is one field among several of the file, and has nearly all that there is.
    let largest = fields.iter().position(|field| field.payload.len() > bytes.len() / 2);
    let chosen = largest.filter(|_| random.below(10) > 0).unwrap_or_else(|| random.below(fields.len()));
    let other = random.below(fields.len());
    let how = if depth == 0 { 9 } else { random.below(12) };
    let mut out = Vec::with_capacity(bytes.len());
    for (i, field) in fields.iter().enumerate() {
        let payload = &bytes[field.payload.clone()];
        if i != chosen {
            put(&mut out, field, payload);
            continue;
        }
        match how {
            0 => {}
            1 => [(); 2].map(|()| put(&mut out, field, payload)).into_iter().collect(),
            2 => put(&mut out, &fields[other], &bytes[fields[other].payload.clone()]),
            // What stands elsewhere: inputs rewired, weights exchanged.
            3 | 4 => {
                let alike = fields.iter().filter(|other| other.number == field.number).collect::<Vec<_>>();
                put(&mut out, field, &bytes[random.one_of(&alike).payload.clone()]);
            }
            _ => {
                let changed = match field.wire {
                    VARINT => {
                        let mut number = Vec::new();
                        put_varint(&mut number, random.one_of(&NUMBERS) as u64);
                        number
                    }
                    I64_BITS => random.one_of(&NUMBERS).to_le_bytes().into(),
                    I32_BITS => random.one_of(&[f32::NAN, f32::INFINITY, -1e38, 0.0]).to_le_bytes().into(),
                    _ if depth < 8 => mutated(random, payload, depth + 1),
                    _ => other_bytes(random, payload),
                };
                put(&mut out, field, &changed);
            }
        }
    }
    out
}

/// Something else in the place of a text, of packed numbers or of weights.
fn other_bytes(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    match random.below(8) {
        0 | 1 => random.one_of(&TEXTS).into(),
        2 => "x".repeat(1 << random.below(21)).into(),
        3 => text(random, &LITERALS).into(),
        4 => [bytes.as_slice(); 3].concat(),
        5 => NUMBERS.iter().flat_map(|number| number.to_le_bytes()).take(bytes.len()).collect(),
        _ => {
            damage(random, &mut bytes);
            bytes
        }
    }
}
