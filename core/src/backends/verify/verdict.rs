// SPDX-License-Identifier: MPL-2.0
//! What was found out about an engine.

use std::fmt;

use serde_json::{Value, json};

/// What was found out about an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is wrong, in the order in which it was seen; empty where nothing is.
    pub faults: Vec<String>,
    /// What computed the outputs that it was compared with; or why there are none, and its runs were compared with each other
    /// only.
    pub reference: Result<String, String>,
    /// The precision whose tolerance counts.
    pub precision: String,
    pub pictures: usize,
    pub runs: usize,
    pub largest_batch: usize,
    pub outputs: Vec<OutputFigures>,
    /// The results that were looked for and found again, where the head is known.
    pub results: Option<(usize, usize)>,
    /// What was done so that it is right.
    pub repair: Option<String>,
    pub milliseconds: u64,
}

/// An output, by `Difference::relative`.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputFigures {
    pub name: String,
    /// From the reference.
    pub error: Option<f32>,
    /// From run to run of one picture.
    pub runs: f32,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }

    /// The largest difference of an output from the reference, and its name.
    pub fn worst(&self) -> Option<(&str, f32)> {
        let errors = self.outputs.iter().filter_map(|output| Some((output.name.as_str(), output.error?)));
        errors.max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    pub fn to_json(&self) -> Value {
        let outputs = self.outputs.iter().map(|OutputFigures { name, error, runs }| {
            json!({"name": name, "error": error.map(number), "runs": number(*runs)})
        });
        json!({
            "passed": self.passed(),
            "faults": self.faults,
            "reference": self.reference.as_ref().ok(),
            "not-compared": self.reference.as_ref().err(),
            "precision": self.precision,
            "pictures": self.pictures,
            "runs": self.runs,
            "largest-batch": self.largest_batch,
            "outputs": outputs.collect::<Vec<_>>(),
            "results": self.results.map(|(sought, found)| json!({"sought": sought, "found": found})),
            "repair": self.repair,
            "milliseconds": self.milliseconds,
        })
    }

    /// `None` where it is damaged, or of another version.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_string);
        let count = |value: &Value| Some(value.as_u64()? as usize);
        let faults = value["faults"].as_array()?.iter().map(|fault| Some(fault.as_str()?.to_string()));
        let outputs = value["outputs"].as_array()?.iter().map(|output| {
            let error = if output["error"].is_null() { None } else { Some(of_number(&output["error"])?) };
            Some(OutputFigures { name: output["name"].as_str()?.into(), error, runs: of_number(&output["runs"])? })
        });
        let results = &value["results"];
        let verdict = Verdict {
            faults: faults.collect::<Option<_>>()?,
            reference: text("reference").ok_or_else(|| text("not-compared").unwrap_or_default()),
            precision: text("precision")?,
            pictures: count(&value["pictures"])?,
            runs: count(&value["runs"])?,
            largest_batch: count(&value["largest-batch"])?,
            outputs: outputs.collect::<Option<_>>()?,
            results: if results.is_null() {
                None
            } else {
                Some((count(&results["sought"])?, count(&results["found"])?))
            },
            repair: text("repair"),
            milliseconds: value["milliseconds"].as_u64()?,
        };
        (value["passed"].as_bool()? == verdict.passed()).then_some(verdict)
    }
}

/// JSON has no infinity.
fn number(value: f32) -> Value {
    if value.is_finite() { json!(value) } else { json!("infinite") }
}

fn of_number(value: &Value) -> Option<f32> {
    match value.as_str() {
        Some("infinite") => Some(f32::INFINITY),
        _ => Some(value.as_f64()? as f32),
    }
}

/// As a clause: “as the CPU (rten) on 4 pictures in batches of 1 to 16: …”.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(worst) = self.faults.first() {
            return write!(f, "{worst}");
        }
        let batches = match self.largest_batch {
            1 => String::new(),
            largest => format!(" in batches of 1 to {largest}"),
        };
        match &self.reference {
            Ok(reference) => write!(f, "as {reference} on {} pictures{batches}", self.pictures)?,
            Err(why) => write!(f, "the same in {} runs{batches}, but not compared: {why}", self.runs)?,
        }
        if let Some((output, error)) = self.worst() {
            write!(f, "; {output} differs by {:.2} %", 100.0 * error)?;
        }
        if let Some((sought, found)) = self.results {
            write!(f, "; {found} of {sought} results are the same")?;
        }
        match &self.repair {
            Some(repair) => write!(f, "; {repair}"),
            None => Ok(()),
        }
    }
}
