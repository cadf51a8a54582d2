// SPDX-License-Identifier: MPL-2.0
//! The text side of CLIP: tokens in, a vector of each text out.

use std::iter::{repeat, repeat_n};
use std::path::Path;

use gsttrt_core::backends::options::Options;
use gsttrt_core::backends::{Backend, BackendPreference, TensorModel, TensorNet, floats};
use gsttrt_core::error::Error;
use gsttrt_core::tensor::{DType, Dims, Tensor, TensorDesc, list};
use gsttrt_core::vector::normalise;

use super::vocabulary::MAX_CONTEXT;
use crate::failure::Failure;

/// Texts of a run, where the file leaves that open.
const USUAL_ROWS: usize = 32;

/// Texts of a run that a file may ask for.
const MAX_ROWS: usize = 1024;

/// Tokens of a text, where neither the model nor its tokenizer says it: those of CLIP.
const USUAL_LENGTH: usize = 77;

const TOKENS: &str = "input_ids";
const MASK: &str = "attention_mask";
/// An output that is not yet in the space that pictures have vectors in, but where no other one is there either.
const POOLED: &str = "pooler_output";

const EXPORT: &str = "Export the text side of CLIP with input_ids and attention_mask, and the output text_embeds: in transformers \
                      this is CLIPTextModelWithProjection";

/// A model of texts whose description was read.
pub struct TextModel {
    model: TensorModel,
    /// As it is shown.
    name: String,
    /// The place of the tokens among the inputs. All others are masks.
    tokens: usize,
    /// Texts of a run, where the file fixes that.
    rows: Option<usize>,
    /// Tokens of a text.
    length: usize,
    /// Numbers of a vector, where the file says it.
    vector_length: Option<usize>,
}

impl TextModel {
    /// `context` are the tokens of a text, where the file leaves them open.
    ///
    /// # Errors
    /// Where it cannot be read, takes something else than texts, or gives something else than vectors.
    pub fn open(
        path: &Path,
        preference: BackendPreference,
        options: Options,
        context: Option<usize>,
    ) -> Result<Self, Failure> {
        let model = TensorModel::open(path, preference, options)?;
        let name = path.display().to_string();
        let inputs = model.inputs();
        let tokens = tokens_among(inputs).ok_or_else(|| {
            Failure::from(format!("{name} takes no texts: its inputs are {}. {EXPORT}.", list(inputs)))
        })?;
        let shape = &inputs[tokens];
        for (at, input) in inputs.iter().enumerate() {
            if at != tokens && input.name != MASK {
                return Err(format!("{name} has the input {input}, and texts are only tokens. {EXPORT}.").into());
            }
            let is_of_integers = matches!(input.dtype, DType::I64 | DType::I32);
            let is_alike = |(one, other): (&i64, &i64)| one == other || [one, other].contains(&&Dims::DYNAMIC);
            if !is_of_integers || input.dims.len() != 2 || !input.dims.iter().zip(shape.dims.iter()).all(is_alike) {
                let wanted = "i64 or i32 with two dimensions, texts and tokens";
                return Err(format!("The input {input} of {name} is not {wanted}. {EXPORT}.").into());
            }
        }
        let [rows, length] =
            [0, 1].map(|at| inputs.iter().map(|input| input.dims[at]).find(|&dim| dim != Dims::DYNAMIC));
        let within = |dim: Option<i64>, least: usize, most: usize, what: &str| match dim.map(usize::try_from) {
            None => Ok(None),
            Some(Ok(count)) if (least..=most).contains(&count) => Ok(Some(count)),
            Some(_) => Err(Failure::from(format!("{name} takes {shape}, and {what} are {least} to {most}. {EXPORT}."))),
        };
        let rows = within(rows, 1, MAX_ROWS, "texts of a run")?;
        let length = within(length, 3, MAX_CONTEXT, "tokens of a text")?.or(context).unwrap_or(USUAL_LENGTH);
        // Some files do not say how many dimensions their outputs have.
        let vector_length = match model.outputs().iter().all(|output| !output.dims.is_empty()) {
            true => usize::try_from(model.outputs()[vectors_among(&name, model.outputs())?].dims[1]).ok(),
            false => None,
        };
        Ok(TextModel { model, name, tokens, rows, length, vector_length })
    }

    /// As it is shown.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens of a text, start and end included.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Numbers of a vector, where the file says it.
    pub fn vector_length(&self) -> Option<usize> {
        self.vector_length
    }

    /// How many tokens it knows, where its graph says it.
    pub fn vocabulary(&self) -> Option<u64> {
        self.model.table_rows(self.tokens)
    }

    pub fn backend(&self) -> &'static dyn Backend {
        self.model.backend()
    }

    /// Loads it for so many texts, filled up with a token. The warning says what is other than it was wanted.
    pub fn load(self, texts: usize, padding: u32) -> Result<(TextNet, Option<Error>), Failure> {
        let TextModel { model, name, tokens, rows, length, .. } = self;
        let rows = rows.unwrap_or(texts.clamp(1, USUAL_ROWS));
        let dims = Dims::new(&[rows as i64, length as i64]);
        let (net, warning) = model.load(&vec![dims; model.inputs().len()])?;
        let inputs = model.inputs().to_vec();
        Ok((TextNet { net, name, inputs, tokens, rows, length, padding, is_pooled: false }, warning))
    }
}

/// The input of the tokens: by its name, or the only one.
fn tokens_among(inputs: &[TensorDesc]) -> Option<usize> {
    let is_of_tokens = |input: &TensorDesc| input.dims.len() == 2 && matches!(input.dtype, DType::I64 | DType::I32);
    let only = matches!(inputs, [input] if is_of_tokens(input)).then_some(0);
    inputs.iter().position(|input| input.name == TOKENS).or(only)
}

/// The output with a vector of each text.
fn vectors_among(model: &str, outputs: &[TensorDesc]) -> Result<usize, Failure> {
    let is_of_texts = |output: &TensorDesc| output.dims.len() == 2 && matches!(output.dtype, DType::F32 | DType::F16);
    let found: Vec<usize> = (0..outputs.len()).filter(|&at| is_of_texts(&outputs[at])).collect();
    let named = |name: &str| found.iter().copied().find(|&at| outputs[at].name == name);
    let mut others = found.iter().copied().filter(|&at| outputs[at].name != POOLED);
    let only = others.next().filter(|_| others.next().is_none());
    if let Some(at) = named("text_embeds").or_else(|| named("sentence_embedding")).or(only) {
        return Ok(at);
    }
    match named(POOLED) {
        Some(pooled) if found.len() == 1 => Ok(pooled),
        _ if found.is_empty() && outputs.iter().any(|output| output.dims.len() == 3) => {
            let all = list(outputs);
            Err(format!("{model} gives a vector of each token, and none of the whole text: {all}. {EXPORT}.").into())
        }
        _ if found.is_empty() => Err(format!("{model} gives no vector of a text: {}. {EXPORT}.", list(outputs)).into()),
        _ => {
            let all = list(outputs);
            Err(format!("{model} has several outputs that may be the vector of a text: {all}. {EXPORT}.").into())
        }
    }
}

/// A model that is loaded.
pub struct TextNet {
    net: Box<dyn TensorNet>,
    name: String,
    inputs: Vec<TensorDesc>,
    tokens: usize,
    rows: usize,
    length: usize,
    padding: u32,
    is_pooled: bool,
}

impl TextNet {
    /// Texts of a run.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the vectors of the last run were of an output before the last step of CLIP.
    pub fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// The vector of each text, of the length 1; `None` where its numbers make none. At most as many texts as a run has.
    pub fn vectors(&mut self, texts: &[&[u32]]) -> Result<Vec<Option<Vec<f32>>>, Failure> {
        // Where there are fewer, the last one comes again.
        let again = texts.last().copied().into_iter().cycle();
        let rows: Vec<&[u32]> = texts.iter().copied().chain(again).take(self.rows).collect();
        let filled =
            |row: &&[u32]| -> Vec<u32> { row.iter().copied().chain(repeat(self.padding)).take(self.length).collect() };
        let tokens: Vec<i64> = rows.iter().flat_map(filled).map(i64::from).collect();
        let mask = |row: &&[u32]| repeat_n(1, row.len()).chain(repeat(0)).take(self.length);
        let mask: Vec<i64> = rows.iter().flat_map(mask).collect();
        let dims = [rows.len() as i64, self.length as i64];
        let tensors: Vec<Tensor> = (0..)
            .zip(&self.inputs)
            .map(|(at, input)| {
                let numbers = if at == self.tokens { &tokens } else { &mask };
                integers(input, &dims, numbers)
            })
            .collect();
        let made = self.net.run(&tensors.iter().collect::<Vec<_>>())?;
        let outputs: Vec<TensorDesc> = made.iter().map(|tensor| tensor.desc().clone()).collect();
        let at = vectors_among(&self.name, &outputs)?;
        self.is_pooled = outputs[at].name == POOLED;
        let numbers = floats(&made[at]).unwrap_or_default();
        if outputs[at].dims.first() != dims.first() || numbers.is_empty() {
            let (name, output, rows) = (&self.name, &outputs[at], self.rows);
            return Err(format!("{name} gives {output} for {rows} texts, and not a vector for each. {EXPORT}.").into());
        }
        let vectors = numbers.chunks_exact(numbers.len() / self.rows).map(|row| {
            let mut vector = row.to_vec();
            normalise(&mut vector).then_some(vector)
        });
        Ok(vectors.take(texts.len()).collect())
    }
}

/// A tensor of the type that an input has.
fn integers(input: &TensorDesc, dims: &[i64], numbers: &[i64]) -> Tensor {
    match input.dtype {
        DType::I32 => {
            let narrow: Vec<i32> = numbers.iter().map(|&number| number as i32).collect(); // vocabularies are smaller
            Tensor::from_slice(&input.name, dims, &narrow)
        }
        _ => Tensor::from_slice(&input.name, dims, numbers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_a_text_is_found_among_outputs() {
        let tokens = TensorDesc::new("last_hidden_state", DType::F32, &[-1, 77, 512]);
        let pooled = TensorDesc::new("pooler_output", DType::F32, &[-1, 512]);
        let vectors = TensorDesc::new("text_embeds", DType::F16, &[-1, 512]);
        let sentence = TensorDesc::new("sentence_embedding", DType::F32, &[-1, 512]);
        let other = TensorDesc::new("features", DType::F32, &[-1, 512]);
        let ids = TensorDesc::new("ids", DType::I64, &[-1, 77]);
        let found = |outputs: &[&TensorDesc]| {
            let outputs: Vec<TensorDesc> = outputs.iter().copied().cloned().collect();
            vectors_among("m.onnx", &outputs).map_err(|failure| failure.to_string())
        };
        for (outputs, at) in [
            (&[&tokens, &pooled, &other, &vectors][..], 3),
            (&[&sentence, &other, &pooled], 0),
            (&[&ids, &pooled, &other], 2),
            (&[&tokens, &pooled], 1),
            (&[&vectors], 0),
        ] {
            assert_eq!(found(outputs), Ok(at), "{outputs:?}");
        }
        for (outputs, says) in [
            (
                &[&tokens][..],
                "m.onnx gives a vector of each token, and none of the whole text: last_hidden_state f32 ?x77x512. Export",
            ),
            (&[&ids], "m.onnx gives no vector of a text: ids i64 ?x77. Export"),
            (
                &[&other, &pooled, &TensorDesc::new("x", DType::F32, &[-1, 4])],
                "m.onnx has several outputs that may be the vector",
            ),
        ] {
            let said = found(outputs).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        }
    }

    #[test]
    fn the_tokens_are_an_input_of_that_name_or_the_only_one() {
        let desc = |name: &str, dtype, dims: &[i64]| TensorDesc::new(name, dtype, dims);
        let mask = desc("attention_mask", DType::I64, &[-1, -1]);
        assert_eq!(tokens_among(&[mask, desc("input_ids", DType::I64, &[-1, -1])]), Some(1));
        assert_eq!(tokens_among(&[desc("text", DType::I32, &[1, 77])]), Some(0));
        assert_eq!(tokens_among(&[desc("images", DType::F32, &[1, 3, 32, 32])]), None);
        assert_eq!(tokens_among(&[desc("a", DType::I64, &[1, 77]), desc("b", DType::I64, &[1, 77])]), None);
    }
}
