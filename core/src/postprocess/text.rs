// SPDX-License-Identifier: MPL-2.0
//! The text of a picture, which is read on the host, also where the model has run on a GPU: of each row the character with the
//! greatest score, or of all rows the most probable text.

use std::ops::Range;

use super::ClassScores;
use super::beam::BeamSearch;
use super::classify::{are_logits, to_probabilities};
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Column, Decoder, number};
use crate::memory::{DeviceBlock, Pool};
use crate::tensor::Tensor;

/// A text that a model has read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundText {
    /// Empty where it has read nothing.
    pub text: String,
    /// The mean probability of its characters: 0..1, 0 of none.
    pub confidence: f32,
}

/// Reads the outputs of a model that gives texts, each the one of a picture.
pub(super) struct TextReader {
    /// Which dimension of the output has the rows. Wider pictures have more of them.
    rows_at: usize,
    /// What each score of a row stands for: `None` for the blank, or for what fills the end.
    characters: Vec<Option<String>>,
    /// Equal characters of rows that follow each other are one.
    joins_repeats: bool,
    /// What the file contains about the output.
    has_probabilities: Option<bool>,
    /// Some values were not probabilities.
    saw_logits: bool,
    /// The values of a row.
    values: Vec<f32>,
    /// For outputs in GPU memory.
    pool: Pool,
}

impl TextReader {
    /// `None` for models of other results. `labels` is the dictionary.
    ///
    /// # Errors
    /// `Settings`, where the dictionary is not that of the model, or a first dimension of steps is taken for that of a batch.
    pub fn new(decoder: &Decoder, labels: &[String], has_probabilities: Option<bool>) -> Result<Option<Self>> {
        let (Some([rows, scores]), Some(rows_at)) = (decoder.text_shape(), decoder.text_rows_at()) else {
            return Ok(None);
        };
        let (format, output) = (decoder.format(), decoder.first_output());
        if rows == 1 && output.dims[0] > 1 && format.outputs[0].dims.len() == output.dims.len() {
            let pictures = output.dims[0];
            let what = format!("The model's output {output} has one step of text for each of {pictures} pictures");
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("If its first dimension is that of the steps, set layout=ctc-time-first on trtnms"));
        }
        let column = format.outputs[0].columns[0];
        let (characters, joins_repeats) = match column {
            Column::Slots { pad } => (slots(labels, pad), false),
            Column::Characters { is_blank_last, has_space } => (steps(labels, is_blank_last, has_space), true),
            _ => return Ok(None),
        };
        if characters.len() != scores {
            return Err(wrong_dictionary(decoder, labels.len(), (characters.len(), scores)));
        }
        if !joins_repeats && characters.iter().all(Option::is_some) {
            let what = format!("The alphabet of {format} lacks the character that fills the end of short texts");
            let remedy = "Add it to label-file on trtnms in its place, or set another one in a layout file (pad)";
            return Err(Error::new(ErrorKind::Settings, what).remedy(remedy));
        }
        let (values, pool) = (Vec::new(), Pool::default());
        Ok(Some(TextReader { rows_at, characters, joins_repeats, has_probabilities, saw_logits: false, values, pool }))
    }

    /// The text of an output that is there, and whether its numbers are finite. Rows where they are not are left out. With a
    /// `beam_width` above 1, so many beginnings of texts are kept from row to row, where rows are steps.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn read(&mut self, output: &Tensor, scores: ClassScores, beam_width: u32) -> Result<(FoundText, bool)> {
        let copy = host_copy(output, &self.pool)?;
        let output = copy.as_ref().unwrap_or(output);
        let rows = output.desc().dims.get(self.rows_at).map_or(0, |&rows| usize::try_from(rows).unwrap_or(0));
        let has_logits = self.has_logits(output, rows, scores);
        if self.joins_repeats && beam_width > 1 {
            return Ok(self.search(output, rows, has_logits, beam_width as usize));
        }
        let (mut text, mut sum, mut count, mut last, mut is_finite) = (String::new(), 0.0, 0, None, true);
        for row in 0..rows {
            self.take_row(output, row);
            if !self.values.iter().all(|value| value.is_finite()) {
                (is_finite, last) = (false, None);
                continue;
            }
            let Some(best) = greatest(&self.values) else { continue };
            let is_repeated = self.joins_repeats && last == Some(best);
            last = Some(best);
            let Some(character) = self.characters[best].as_ref().filter(|_| !is_repeated) else { continue };
            text.push_str(character);
            if has_logits {
                to_probabilities(&mut self.values);
            }
            sum += self.values[best];
            count += 1;
        }
        let confidence = if count == 0 { 0.0 } else { sum / count as f32 };
        Ok((FoundText { text, confidence }, is_finite))
    }

    /// The most probable text of steps, and whether their numbers are finite.
    fn search(&mut self, output: &Tensor, rows: usize, has_logits: bool, width: usize) -> (FoundText, bool) {
        let blank = self.characters.iter().position(Option::is_none).unwrap_or_default();
        let (mut search, mut is_finite) = (BeamSearch::new(width, blank), true);
        for row in 0..rows {
            self.take_row(output, row);
            if !self.values.iter().all(|value| value.is_finite()) {
                is_finite = false;
                search.pass();
                continue;
            }
            if has_logits {
                to_probabilities(&mut self.values);
            }
            search.step(&self.values);
        }
        let (characters, confidence) = search.text();
        let text = characters.iter().filter_map(|&character| self.characters[character].as_deref()).collect();
        (FoundText { text, confidence }, is_finite)
    }

    /// Whether the values are logits. Where neither the user says so nor the graph ends in a softmax, those that cannot be probabilities
    /// are, from then on.
    fn has_logits(&mut self, output: &Tensor, rows: usize, scores: ClassScores) -> bool {
        match (scores, self.has_probabilities) {
            (ClassScores::Probabilities, _) | (ClassScores::Auto, Some(true)) => return false,
            (ClassScores::Logits, _) => return true,
            (ClassScores::Auto, _) => {}
        }
        for row in 0..rows {
            if self.saw_logits {
                break;
            }
            self.take_row(output, row);
            self.saw_logits = are_logits(&self.values);
        }
        self.saw_logits
    }

    /// Takes over the values of a row.
    fn take_row(&mut self, output: &Tensor, row: usize) {
        let count = self.characters.len();
        take_floats(output, row * count..(row + 1) * count, &mut self.values);
    }
}

/// The same tensor in host memory, where it is in that of a GPU.
///
/// # Errors
/// `Run`, where CUDA fails.
pub(super) fn host_copy(output: &Tensor, pool: &Pool) -> Result<Option<Tensor>> {
    let copy = |block: &DeviceBlock| Tensor::fill(pool, output.desc().clone(), |bytes| block.read_into(bytes));
    output.device().map(copy).transpose()
}

/// Takes over some numbers of a tensor.
pub(super) fn take_floats(output: &Tensor, range: Range<usize>, to: &mut Vec<f32>) {
    to.clear();
    match output.as_slice::<f32>().and_then(|all| all.get(range.clone())) {
        Some(values) => to.extend_from_slice(values),
        None => to.extend(range.map(|at| number(output, at))),
    }
}

/// The scores of a step: the blank and the dictionary and, if it is not in that, a space.
fn steps(labels: &[String], is_blank_last: bool, has_space: bool) -> Vec<Option<String>> {
    let [first, last] = [!is_blank_last, is_blank_last].map(|is_here| is_here.then_some(None));
    let space = has_space.then(|| Some(" ".to_string()));
    first.into_iter().chain(labels.iter().cloned().map(Some)).chain(space).chain(last).collect()
}

/// Those of a place.
fn slots(labels: &[String], pad: char) -> Vec<Option<String>> {
    let is_pad = |label: &str| label.chars().eq([pad]);
    labels.iter().map(|label| Some(label.clone()).filter(|label| !is_pad(label))).collect()
}

/// The first of those with the greatest value.
fn greatest(values: &[f32]) -> Option<usize> {
    let better = |best: usize, at: usize| if values[at] > values[best] { at } else { best };
    (0..values.len()).reduce(better)
}

/// `characters` of the dictionary make so many scores of a row, and the model has others.
fn wrong_dictionary(decoder: &Decoder, characters: usize, (made, scores): (usize, usize)) -> Error {
    let (format, output) = (decoder.format(), decoder.first_output());
    if characters == 0 {
        let what = format!("The model has no dictionary, and {format} needs one to read {output}");
        let remedy = "Set label-file on trtnms to the dictionary that belongs to the model, with a character a line";
        return Error::new(ErrorKind::Settings, what).remedy(remedy);
    }
    let wanted = (characters + scores).saturating_sub(made);
    let has = format!("The dictionary has {characters} characters");
    let what = format!("{has}, and the model's output {output} is for {wanted} as {format}");
    Error::new(ErrorKind::Settings, what).cause(format!("{format} reads {}", format.holds)).remedy(
        "Set label-file on trtnms to the dictionary that belongs to the model, one character a line. If blank or space \
         are elsewhere, say it in a layout file",
    )
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::heads::{HeadFormat, ModelHints, ctc, ctc_time_first, slots};
    use crate::tensor::TensorDesc;

    const DICTIONARY: [&str; 3] = ["a", "b", "ä"];

    fn labels(characters: &[&str]) -> Vec<String> {
        characters.iter().map(|character| character.to_string()).collect()
    }

    fn decoder(format: &'static HeadFormat, output: &TensorDesc) -> Decoder {
        let hints = ModelHints { input: Some((32, 16)), ..ModelHints::default() };
        Decoder::new(Some(format), std::slice::from_ref(output), &hints).unwrap()
    }

    fn read(
        format: &'static HeadFormat,
        dictionary: &[&str],
        output: &Tensor,
        scores: ClassScores,
    ) -> (FoundText, bool) {
        let decoder = decoder(format, output.desc());
        let mut reader = TextReader::new(&decoder, &labels(dictionary), None).unwrap().unwrap();
        reader.read(output, scores, 1).unwrap()
    }

    /// Rows in which these have a probability of 0.75, and their neighbours the rest.
    fn rows(best: &[usize], count: usize) -> Vec<f32> {
        let row = |&best: &usize| {
            let mut row = vec![0.0; count];
            row[best] = 0.75;
            row[(best + 1) % count] = 0.25;
            row
        };
        best.iter().flat_map(row).collect()
    }

    fn found(text: &str, confidence: f32) -> (FoundText, bool) {
        (FoundText { text: text.into(), confidence }, true)
    }

    #[test]
    fn equal_characters_are_one_unless_a_blank_is_between_them() {
        // The blank, a, b, ä and a space.
        for (best, text) in [
            (&[0, 1, 1, 0, 1, 2, 2, 4, 3][..], "aab ä"),
            (&[0, 0, 0], ""),
            (&[4, 4, 4], " "),
            (&[2, 0, 2, 2, 0, 0], "bb"),
        ] {
            let values = rows(best, 5);
            let dims = [1, best.len() as i64, 5];
            let wanted = found(text, if text.is_empty() { 0.0 } else { 0.75 });
            let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
            for output in [Tensor::from_slice("o", &dims, &values), Tensor::from_slice("o", &dims, &halves)] {
                assert_eq!(read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Auto), wanted);
            }
        }
        let first = Tensor::from_slice("o", &[5, 1, 4], &rows(&[1, 1, 0, 1, 3], 4));
        assert_eq!(read(&ctc_time_first::HEAD, &DICTIONARY, &first, ClassScores::Auto), found("aaä", 0.75));
    }

    #[test]
    fn places_are_read_until_they_are_filled_up() {
        let output = Tensor::from_slice("o", &[1, 5, 4], &rows(&[0, 0, 1, 3, 3], 4));
        assert_eq!(read(&slots::HEAD, &["7", "B", "C", "_"], &output, ClassScores::Auto), found("77B", 0.75));
        let decoder = decoder(&slots::HEAD, output.desc());
        let error = TextReader::new(&decoder, &labels(&["7", "B", "C", "D"]), None).err().unwrap();
        assert!(error.message().contains("lacks the character"), "{error}");
    }

    #[test]
    fn logits_become_probabilities() {
        let row = [0.0, 3f32.ln(), 0.0, f32::MIN, f32::MIN];
        let output = Tensor::from_slice("o", &[1, 1, 5], &row);
        let (text, is_finite) = read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Auto);
        assert!(text.text == "a" && (text.confidence - 0.6).abs() < 1e-6 && is_finite, "{text:?}");
        let output = Tensor::from_slice("o", &[1, 1, 5], &[0.125f32, 0.5, 0.125, 0.125, 0.125]);
        assert_eq!(read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Auto), found("a", 0.5));
        assert_eq!(read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Probabilities), found("a", 0.5));
        let (text, _) = read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Logits);
        assert!(text.text == "a" && text.confidence < 0.3, "{text:?}");
    }

    #[test]
    fn a_beam_finds_the_text_with_the_most_ways() {
        // The best of each step is the blank; the ways to “a” are more probable together.
        let steps = [[0.55f32, 0.45, 0.0, 0.0, 0.0]; 2];
        let output = Tensor::from_slice("o", &[1, 2, 5], steps.as_flattened());
        let decoder = decoder(&ctc::HEAD, output.desc());
        let mut reader = TextReader::new(&decoder, &labels(&DICTIONARY), None).unwrap().unwrap();
        let mut read = |output: &Tensor, scores, width| reader.read(output, scores, width).unwrap();
        assert_eq!(read(&output, ClassScores::Probabilities, 1), found("", 0.0));
        assert_eq!(read(&output, ClassScores::Probabilities, 4), found("a", 0.45));
        let logits = steps.map(|step| step.map(|value: f32| value.max(1e-9).ln()));
        let (text, _) = read(&Tensor::from_slice("o", &[1, 2, 5], logits.as_flattened()), ClassScores::Logits, 4);
        assert!(text.text == "a" && (text.confidence - 0.45).abs() < 1e-5, "{text:?}");
        // Where nothing is in doubt, both read the same.
        let one = |best: usize| [0, 1, 2, 3, 4].map(|at| if at == best { 1f32 } else { 0.0 });
        let certain = Tensor::from_slice("o", &[1, 9, 5], [0, 1, 1, 0, 1, 2, 2, 4, 3].map(one).as_flattened());
        for width in [1, 8] {
            assert_eq!(read(&certain, ClassScores::Auto, width), found("aab ä", 1.0), "{width}");
        }
        let lost = Tensor::from_slice("o", &[1, 3, 5], &{
            let mut values = rows(&[1, 2, 1], 5);
            values[7] = f32::NAN;
            values
        });
        assert_eq!(read(&lost, ClassScores::Auto, 8), (FoundText { text: "aa".into(), confidence: 0.75 }, false));
    }

    #[test]
    fn wider_pictures_have_more_rows() {
        let narrow = Tensor::from_slice("o", &[1, 2, 5], &rows(&[1, 2], 5));
        let wide = Tensor::from_slice("o", &[1, 4, 5], &rows(&[1, 2, 1, 2], 5));
        let decoder = decoder(&ctc::HEAD, narrow.desc());
        let mut reader = TextReader::new(&decoder, &labels(&DICTIONARY), None).unwrap().unwrap();
        for (output, text) in [(&narrow, "ab"), (&wide, "abab"), (&narrow, "ab")] {
            let picked = decoder.pick(std::slice::from_ref(output)).unwrap();
            assert_eq!(reader.read(picked[0], ClassScores::Auto, 1).unwrap(), found(text, 0.75));
        }
        let other = Tensor::from_slice("o", &[1, 2, 4], &rows(&[1, 2], 4));
        assert!(decoder.pick(std::slice::from_ref(&other)).is_err(), "another dictionary");
    }

    #[test]
    fn rows_that_are_not_finite_are_left_out() {
        let mut values = rows(&[1, 2, 2], 5);
        values[7] = f32::NAN;
        let output = Tensor::from_slice("o", &[1, 3, 5], &values);
        let wanted = (FoundText { text: "ab".into(), confidence: 0.75 }, false);
        assert_eq!(read(&ctc::HEAD, &DICTIONARY, &output, ClassScores::Auto), wanted);
    }

    #[test]
    fn a_dictionary_of_another_length_is_an_error() {
        let output = TensorDesc::new("o", crate::tensor::DType::F32, &[1, 40, 5]);
        let decoder = decoder(&ctc::HEAD, &output);
        for (dictionary, says) in [
            (&["a", "b"][..], "has 2 characters, and the model's output o f32 1x40x5 is for 3 as ctc"),
            (&["a", "b", "c", "d"], "has 4 characters, and the model's output o f32 1x40x5 is for 3 as ctc"),
            (&[], "The model has no dictionary"),
        ] {
            let error = TextReader::new(&decoder, &labels(dictionary), None).err().unwrap();
            assert!(error.message().contains(says), "{error}");
        }
        // Steps that are taken for pictures.
        let output = TensorDesc::new("o", crate::tensor::DType::F32, &[40, 1, 5]);
        let steps = super::tests::decoder(&ctc::HEAD, &output);
        let error = TextReader::new(&steps, &labels(&DICTIONARY), None).err().unwrap();
        assert!(error.message().contains("layout=ctc-time-first"), "{error}");
    }
}
