// SPDX-License-Identifier: MPL-2.0
//! Outputs of models that tests/zoo/families.py made, and what their packages find in them.

use std::path::Path;

use crate::tensor::Tensor;

/// In the folder of this crate.
const FILE: &str = "src/test/families.txt";

/// A model of the file.
pub(crate) struct RecordedModel {
    pub name: String,
    pub outputs: Vec<Tensor>,
    /// What its package finds: the first word of a line, and its numbers.
    lines: Vec<(String, Vec<f64>)>,
}

impl RecordedModel {
    /// The numbers of the lines that begin with this word.
    pub fn lines(&self, word: &str) -> Vec<&[f64]> {
        self.lines.iter().filter(|(own, _)| own == word).map(|(_, numbers)| &numbers[..]).collect()
    }
}

/// An output that is read: most elements have the same number, and the others are written.
struct WrittenOutput<'a> {
    name: &'a str,
    is_of_ids: bool,
    dims: Vec<i64>,
    values: Vec<f32>,
}

impl<'a> WrittenOutput<'a> {
    /// `NAME TYPE NUMBER DIMENSIONS`
    fn begin(text: &'a str) -> Self {
        let mut words = text.split(' ');
        let mut next = || words.next().expect("an output has a name, a type and a number");
        let (name, kind, usual) = (next(), next(), number(next()));
        let dims: Vec<i64> = words.map(|word| word.parse().unwrap()).collect();
        let count = dims.iter().product::<i64>() as usize;
        WrittenOutput { name, is_of_ids: kind == "i64", dims, values: vec![usual; count] }
    }

    /// `FIRST NUMBERS`
    fn take(&mut self, text: &str) {
        let (first, rest) = text.split_once(' ').unwrap();
        let first: usize = first.parse().unwrap();
        for (at, word) in rest.split(' ').enumerate() {
            self.values[first + at] = number(word);
        }
    }

    fn tensor(&self) -> Tensor {
        if self.is_of_ids {
            let ids: Vec<i64> = self.values.iter().map(|&id| id as i64).collect();
            return Tensor::from_slice(self.name, &self.dims, &ids);
        }
        Tensor::from_slice(self.name, &self.dims, &self.values)
    }
}

fn number(word: &str) -> f32 {
    word.parse().unwrap_or_else(|_| panic!("“{word}” is no number"))
}

/// All models of the file, in its order.
pub(crate) fn all() -> Vec<RecordedModel> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let read = std::fs::read_to_string(&path);
    let text = read.unwrap_or_else(|error| panic!("{}: {error}. Run tests/zoo/families.sh", path.display()));
    let mut found = Vec::new();
    for model in text.split("model ").skip(1) {
        let (name, rest) = model.split_once('\n').unwrap();
        let (mut outputs, mut lines): (Vec<WrittenOutput>, Vec<_>) = Default::default();
        for line in rest.lines() {
            let (word, text) = line.split_once(' ').unwrap();
            match word {
                "output" => outputs.push(WrittenOutput::begin(text)),
                "values" => outputs.last_mut().expect("values are of an output").take(text),
                _ => {
                    let numbers: Vec<f64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
                    lines.push((word.to_string(), numbers));
                }
            }
        }
        let outputs = outputs.iter().map(WrittenOutput::tensor).collect();
        found.push(RecordedModel { name: name.into(), outputs, lines });
    }
    found
}

/// The model of that name.
pub(crate) fn of(name: &str) -> RecordedModel {
    let found = all().into_iter().find(|recording| recording.name == name);
    found.unwrap_or_else(|| panic!("{FILE} has no {name}. Run tests/zoo/families.sh"))
}
