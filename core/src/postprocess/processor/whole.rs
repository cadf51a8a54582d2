// SPDX-License-Identifier: MPL-2.0
//! Results of whole pictures: their classes, orientation, vectors and texts, and the score of an anomaly.

use std::sync::Arc;

use super::{MOST_SCORE, Postprocessor, fence_of_another_stream};
use crate::cuda::driver::Stream;
use crate::error::Result;
use crate::postprocess::classify::{ClassSelection, RankedClass};
use crate::postprocess::{ClipSpan, FoundText, PostprocessOptions, orientation};
use crate::tensor::{Tensor, Tensors};

impl Postprocessor {
    /// What was found last is that of a clip from then to then.
    pub fn set_span(&mut self, span: Option<ClipSpan>) {
        self.instances.span = span;
    }

    /// Takes over the score of a frame, if the model gives one with its map.
    pub(super) fn take_score(&mut self, score: Option<f32>) {
        let Some(score) = score else { return };
        let class = self.class_of_score(score);
        if let Some(classes) = &mut self.instances.classes {
            classes.clear();
            classes.extend(class);
        }
    }

    /// The one class of a picture with that score, where it reaches the threshold.
    fn class_of_score(&mut self, score: f32) -> Option<RankedClass> {
        if !score.is_finite() {
            self.lost.not_finite += 1;
            return None;
        }
        let score = self.score.as_ref().map_or(score, |reader| reader.normalised(score));
        self.above_one = Some(score).filter(|&score| score > MOST_SCORE).or(self.above_one);
        (score >= self.thresholds.of(0)).then_some(RankedClass { class: 0, score })
    }

    /// The one class of several pictures of a frame, if the model gives a score of each and no map.
    fn take_scores(&mut self, pictures: &[&Tensors], found: &mut Vec<Vec<RankedClass>>) -> Result<()> {
        for tensors in pictures {
            let outputs = self.decoder.pick(tensors)?;
            tensors.wait()?;
            let score = self.score.as_ref().map(|reader| reader.read_there(&outputs)).transpose()?;
            found.push(score.and_then(|score| self.class_of_score(score)).into_iter().collect());
        }
        Ok(())
    }

    /// The classes of several pictures of a frame, if the model is a classifier. If they are in GPU memory, the host
    /// waits once for all of them, and for each by itself where the model gives a score alone.
    ///
    /// # Errors
    /// As [`Postprocessor::find`].
    pub fn classify(&mut self, pictures: &[&Tensors], found: &mut Vec<Vec<RankedClass>>) -> Result<()> {
        found.clear();
        if self.decoder.format().is_score() {
            return self.take_scores(pictures, found);
        }
        let outputs = self.first_outputs(pictures)?;
        let stream = self.stream_of(pictures, &outputs)?;
        let Some(classifier) = &mut self.classifier else { return Ok(()) };
        let PostprocessOptions { class_scores, top_k, .. } = self.options;
        let selection = ClassSelection { scores: class_scores, thresholds: &self.thresholds, top_k: top_k as usize };
        match stream {
            Some(stream) => {
                classifier.find_on(&stream, &outputs, &selection, found)?;
            }
            None => {
                pictures.iter().try_for_each(|tensors| tensors.wait())?;
                classifier.find(&outputs, &selection, found);
            }
        }
        self.lost.not_finite += classifier.take_not_finite();
        Ok(())
    }

    /// The one output that is read of each picture.
    fn first_outputs<'a>(&self, pictures: &[&'a Tensors]) -> Result<Vec<&'a Tensor>> {
        pictures.iter().map(|&tensors| Ok(self.decoder.pick(tensors)?[0])).collect()
    }

    /// The stream on which outputs in GPU memory are read, and on which they are there.
    fn stream_of(&mut self, pictures: &[&Tensors], outputs: &[&Tensor]) -> Result<Option<Arc<Stream>>> {
        let memory = outputs.first().and_then(|output| output.device());
        let (Some(tensors), Some(memory)) = (pictures.first(), memory) else { return Ok(None) };
        let stream = self.stream(tensors, memory.context())?;
        stream.wait_for_all(pictures.iter().filter_map(|tensors| fence_of_another_stream(tensors, &stream)))?;
        Ok(Some(stream))
    }

    /// Whether the model tells how lines of text are turned. It is a classifier.
    pub fn finds_orientation(&self) -> bool {
        orientation::is_one(&self.decoder)
    }

    /// By how many degrees what is of that class is turned.
    pub fn degrees_of(&self, class: u32) -> Option<u32> {
        let label = self.finds_orientation().then(|| self.labels.get(class as usize))??;
        orientation::degrees(label)
    }

    /// The vectors of several pictures of a frame, if the model gives vectors: empty for a picture whose numbers make none. If they
    /// are in GPU memory, the host waits once for all of them.
    ///
    /// # Errors
    /// As [`Postprocessor::find`].
    pub fn embed(&mut self, pictures: &[&Tensors], found: &mut Vec<Vec<f32>>) -> Result<()> {
        found.clear();
        if self.vectors.is_none() {
            return Ok(());
        }
        let outputs = self.first_outputs(pictures)?;
        let stream = self.stream_of(pictures, &outputs)?;
        let Some(reader) = &mut self.vectors else { return Ok(()) };
        if let Some(stream) = stream {
            self.lost.not_finite += reader.read_on(&stream, &outputs, found)?;
            return Ok(());
        }
        for (tensors, output) in pictures.iter().zip(outputs) {
            tensors.wait()?;
            let (vector, is_finite) = reader.read(output);
            self.lost.not_finite += usize::from(!is_finite);
            found.push(vector);
        }
        Ok(())
    }

    /// The texts of several pictures of a frame, if the model reads text: empty for a picture in which nothing is read whose mean
    /// probability reaches the threshold.
    ///
    /// # Errors
    /// As [`Postprocessor::find`].
    pub fn read_texts(&mut self, pictures: &[&Tensors], found: &mut Vec<FoundText>) -> Result<()> {
        found.clear();
        let Some(reader) = &mut self.texts else { return Ok(()) };
        for tensors in pictures {
            let output = self.decoder.pick(tensors)?[0];
            tensors.wait()?;
            let (text, is_finite) = reader.read(output, self.options.class_scores, self.options.beam_width)?;
            self.lost.not_finite += usize::from(!is_finite);
            let passes = text.confidence >= self.options.score_threshold;
            found.push(if passes { text } else { FoundText::default() });
        }
        Ok(())
    }
}
