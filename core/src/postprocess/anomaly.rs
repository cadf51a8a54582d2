// SPDX-License-Identifier: MPL-2.0
//! The score of a picture that models of anomalies give, most of them next to a map. It becomes the one class of the picture.
//!
//! Anomalib 2 normalises both in its graph: 0.5 is where it parts what is usual from what is not, by the pictures of its validation.
//! Anomalib 1 leaves both raw, and writes what is needed into a file next to the model. From a layout file that has these numbers,
//! scores become what Anomalib 1 makes of them: (score - threshold) / (max - min) + 0.5, held in 0..1, each operation rounded in f32.

use std::path::Path;

use half::f16;

use super::suppress::device::address;
use super::text::host_copy;
use crate::cuda::driver::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::layout_file::AnomalyRange;
use crate::heads::{Decoder, Dim, Task, number};
use crate::memory::{Mapped, Pool};
use crate::tensor::{DType, Tensor};

/// The score above which a pixel is an anomaly in Anomalib 2, and with which a picture is one in Anomalib 1.
const USUAL: f32 = 0.5;

/// The least score with which a picture is one in Anomalib 2, which wants more than 0.5.
const ABOVE_USUAL: f32 = f32::from_bits(USUAL.to_bits() + 1);

/// The least score with which a picture is an anomaly, if the user sets none.
pub(super) fn usual_score(decoder: &Decoder) -> f32 {
    if decoder.format().anomaly_range().is_some() { USUAL } else { ABOVE_USUAL }
}

/// The score above which a pixel is one, if the user sets none. Of raw scores the threshold itself is enough.
pub(super) fn usual_pixel(decoder: &Decoder) -> f32 {
    let raw = decoder.format().anomaly_range().and_then(|range| range.pixel_threshold);
    raw.map_or(USUAL, f32::next_down)
}

/// What the class is called where no file names it.
const USUAL_LABEL: &str = "anomaly";

/// Bytes of a score, of the wider type.
const BYTES: usize = size_of::<f32>();

/// Names the class of such a model where nothing else does.
///
/// # Errors
/// `Settings`, where there are several names.
pub(super) fn name_class(decoder: &Decoder, labels: &mut Vec<String>) -> Result<()> {
    if decoder.format().task != Task::Anomaly {
        return Ok(());
    }
    if labels.is_empty() {
        labels.push(USUAL_LABEL.into());
    }
    let count = labels.len();
    if count == 1 {
        return Ok(());
    }
    let what = format!("{} has one class, the anomaly, against {count} labels", decoder.format());
    Err(Error::new(ErrorKind::Settings, what).remedy("Set label-file on trtnms to a file of one line"))
}

/// What is wrong where a score is above 1.
pub(super) fn not_normalised(file: &Path, score: f32) -> Error {
    let what = format!("{} gives scores above 1 for pictures, such as {score}", file.display());
    Error::new(ErrorKind::Model, what)
        .cause("Anomalib's scores lie in 0..1 once they are normalised, and this export does not do that")
        .remedy(
            "Export the model by Anomalib 2 with its post-processing. Or describe it in a layout file with [anomaly], which has the \
             thresholds, min and max that Anomalib 1 writes into metadata.json: docs/layout-file.md has an example",
        )
}

/// Reads the scores of one model, of a picture at a time.
pub(super) struct ScoreReader {
    /// The place of the score among the outputs of the head, one of which may be a map.
    place: usize,
    /// For scores without a map, in GPU memory.
    pool: Pool,
    /// Where the scores are raw.
    range: Option<AnomalyRange>,
    /// That of a picture in GPU memory, and its type.
    copied: Option<(Mapped, DType)>,
}

impl ScoreReader {
    /// `None` for models of other results.
    pub fn new(decoder: &Decoder) -> Option<Self> {
        let mut outputs = decoder.format().outputs.iter();
        let place = outputs.position(|output| !output.dims.contains(&Dim::Height))?;
        let range = decoder.format().anomaly_range();
        let is_one = decoder.format().task == Task::Anomaly;
        is_one.then(|| ScoreReader { place, pool: Pool::default(), range, copied: None })
    }

    /// A score that was read, in 0..1 where its range is known.
    pub fn normalised(&self, score: f32) -> f32 {
        match self.range {
            Some(AnomalyRange { image_threshold, min, max, .. }) if score.is_finite() => {
                ((score - image_threshold) / (max - min) + USUAL).clamp(0.0, 1.0)
            }
            _ => score,
        }
    }

    /// Of outputs on the host.
    pub fn read(&self, outputs: &[&Tensor]) -> f32 {
        outputs.get(self.place).map_or(f32::NAN, |output| number(output, 0))
    }

    /// Of outputs that are there, in either memory: the host waits for the copy.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn read_there(&self, outputs: &[&Tensor]) -> Result<f32> {
        let copy = outputs.get(self.place).map(|output| host_copy(output, &self.pool)).transpose()?.flatten();
        Ok(copy.map_or_else(|| self.read(outputs), |copy| number(&copy, 0)))
    }

    /// Queues a copy from GPU memory. The outputs stay until it is done.
    ///
    /// # Errors
    /// `WrongType` for a tensor that is not on this GPU, `Run` where CUDA fails.
    pub fn queue(&mut self, stream: &Stream, outputs: &[&Tensor]) -> Result<()> {
        let Some(output) = outputs.get(self.place) else { return Ok(()) };
        let (from, dtype) = (address(output, stream.context())?, output.desc().dtype);
        let host = match self.copied.take().filter(|(host, _)| host.context() == stream.context()) {
            Some((host, _)) => host,
            None => Mapped::new(stream.context(), BYTES)?,
        };
        let (host, _) = self.copied.insert((host, dtype));
        // SAFETY: a head of this kind has floats alone, so that the score has so many bytes. `self` keeps what is written, and the
        // caller what is read, until the work is done; the host reads it only then.
        unsafe { stream.download(from, &mut host.host_mut()[..dtype.size().min(BYTES)]) }
    }

    /// What was copied, once that is done.
    pub fn copied(&self) -> f32 {
        match &self.copied {
            Some((host, DType::F32)) => {
                host.host().first_chunk::<4>().map_or(f32::NAN, |bytes| f32::from_ne_bytes(*bytes))
            }
            Some((host, DType::F16)) => {
                host.host().first_chunk::<2>().map_or(f32::NAN, |bytes| f16::from_ne_bytes(*bytes).to_f32())
            }
            _ => f32::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::{HeadFormat, ModelHints, Thresholds, anomaly, anomaly_score, depth};
    use crate::image::geometry::{Letterbox, ResizeMode};
    use crate::image::map::PixelMap;
    use crate::memory::DevicePool;
    use crate::postprocess::map::MapFinder;
    use crate::recorded;
    use crate::tensor::TensorDesc;

    fn decoder(head: &'static HeadFormat, outputs: &[TensorDesc]) -> Decoder {
        let hints = ModelHints { input: Some((8, 8)), ..ModelHints::default() };
        Decoder::new(Some(head), outputs, &hints).unwrap()
    }

    fn outputs(dtype: DType) -> [TensorDesc; 2] {
        [TensorDesc::new("anomaly_map", dtype, &[1, 1, 2, 2]), TensorDesc::new("pred_score", dtype, &[1, 1])]
    }

    #[test]
    fn the_usual_threshold_is_that_of_anomalib() {
        assert!(ABOVE_USUAL > 0.5 && ABOVE_USUAL.next_down() == 0.5, "{ABOVE_USUAL}");
    }

    #[test]
    fn raw_scores_become_those_of_anomalib_1() {
        let text = "name = 'own'\ntask = 'anomaly'\n[anomaly]\nimage-threshold = 12.5\npixel-threshold = 9\nmin = 4.5\nmax = 20.5\n\
                    [[output]]\ndims = ['batch', 'one', 'height', 'width']\ncolumns = ['anomaly-score']\n\
                    [[output]]\ndims = ['batch']\ncolumns = ['anomaly-score']\n";
        let decoder = decoder(HeadFormat::of_name(text).unwrap(), &outputs(DType::F32));
        let reader = ScoreReader::new(&decoder).unwrap();
        for (raw, wanted) in [
            (12.5, 0.5),
            (4.5, 0.0),
            (20.5, 1.0),
            (16.5, 0.75),
            (1000.0, 1.0),
            (-1000.0, 0.0),
            (f32::MAX, 1.0),
            (f32::MIN, 0.0),
        ] {
            assert_eq!(reader.normalised(raw), wanted, "{raw}");
        }
        assert!(reader.normalised(f32::NAN).is_nan() && reader.normalised(f32::INFINITY).is_infinite());
        assert_eq!((usual_score(&decoder), usual_pixel(&decoder)), (0.5, 9f32.next_down()));
        let decoder = self::decoder(&anomaly::HEAD, &outputs(DType::F32));
        assert_eq!((usual_score(&decoder), usual_pixel(&decoder)), (ABOVE_USUAL, 0.5));
        assert_eq!(ScoreReader::new(&decoder).unwrap().normalised(34.5), 34.5);
    }

    #[test]
    fn there_is_one_class() {
        let decoder = decoder(&anomaly::HEAD, &outputs(DType::F32));
        let named = |labels: &[&str]| {
            let mut labels = labels.iter().map(|label| label.to_string()).collect();
            name_class(&decoder, &mut labels).map(|()| labels)
        };
        assert_eq!(named(&[]).unwrap(), ["anomaly"]);
        assert_eq!(named(&["scratch"]).unwrap(), ["scratch"]);
        let error = named(&["normal", "anomalous"]).unwrap_err().message();
        assert!(error.contains("anomaly has one class, the anomaly, against 2 labels"), "{error}");
        let depth = self::decoder(&depth::HEAD, &[TensorDesc::new("o", DType::F32, &[1, 2, 2])]);
        let mut labels = Vec::new();
        name_class(&depth, &mut labels).unwrap();
        assert!(labels.is_empty() && ScoreReader::new(&depth).is_none(), "a model of something else");
    }

    /// Anomalib's normalisation of scores of three pictures, and what it takes for an anomaly then: of the first one, none of the second
    /// one, and pixels of the third one, which is at the threshold itself.
    #[test]
    fn anomalies_are_those_of_anomalib() {
        for (number, (is_wanted, has_pixels)) in [(true, true), (false, false), (false, true)].into_iter().enumerate() {
            let recording = recorded::of(&format!("anomaly-{number}"));
            let [map_output, score_output] = &recording.outputs[..] else { panic!("{number}") };
            let (width, height) = (map_output.desc().dims[3] as u32, map_output.desc().dims[2] as u32);
            let hints = ModelHints { input: Some((width, height)), ..ModelHints::default() };
            let descs = [map_output.desc().clone(), score_output.desc().clone()];
            let decoder = Decoder::new(None, &descs, &hints).unwrap();
            assert_eq!(decoder.format(), &anomaly::HEAD);
            let score = ScoreReader::new(&decoder).unwrap().read(&[map_output, score_output]);
            let is_anomaly = score >= usual_score(&decoder);
            assert_eq!((is_anomaly, f64::from(u8::from(is_anomaly))), (is_wanted, recording.lines("picture")[0][0]));
            let mut finder = MapFinder::new(&decoder, 1).unwrap().unwrap();
            finder.keep(&Thresholds::uniform(0.0), usual_pixel(&decoder));
            let mut map = finder.map();
            let letterbox = Letterbox::new((width, height), (width, height), ResizeMode::Stretch);
            finder.find(map_output, &letterbox, &mut map).unwrap();
            let mut wanted = vec![PixelMap::NO_CLASS; (width * height) as usize];
            for run in recording.lines("mask") {
                wanted[run[0] as usize..run[1] as usize].fill(0);
            }
            assert_eq!(map.values(), wanted, "{number}");
            assert_eq!(wanted.contains(&0), has_pixels, "{number}");
        }
    }

    #[test]
    fn scores_are_read_from_both_memories() {
        let reader = ScoreReader::new(&decoder(&anomaly::HEAD, &outputs(DType::F32))).unwrap();
        let map = Tensor::from_slice("anomaly_map", &[1, 1, 2, 2], &[0.0f32; 4]);
        for dims in [&[1][..], &[1, 1]] {
            assert_eq!(reader.read(&[&map, &Tensor::from_slice("pred_score", dims, &[0.625f32])]), 0.625);
            assert_eq!(reader.read(&[&map, &Tensor::from_slice("pred_score", dims, &[f16::from_f32(0.625)])]), 0.625);
        }
        let alone = ScoreReader::new(&decoder(&anomaly_score::HEAD, &outputs(DType::F32)[1..])).unwrap();
        assert_eq!(alone.read_there(&[&Tensor::from_slice("pred_score", &[1, 1], &[0.625f32])]).unwrap(), 0.625);
        assert!(reader.copied().is_nan(), "nothing was copied");
        let Some(context) = crate::test::gpu() else { return };
        let (stream, pool) = (Stream::new(&context).unwrap(), DevicePool::new(&context));
        let mut reader = reader;
        for (dtype, bytes) in [
            (DType::F32, [0.25f32.to_ne_bytes(), 0.75f32.to_ne_bytes()].concat()),
            (DType::F16, [0.25f32, 0.75].map(|score| f16::from_f32(score).to_ne_bytes()).concat()),
        ] {
            let mut block = pool.take(bytes.len()).unwrap();
            block.write(&bytes).unwrap();
            let batch = Tensor::on_device(TensorDesc::new("pred_score", dtype, &[2, 1]), block);
            for (row, wanted) in [(0, 0.25), (1, 0.75)] {
                let score = batch.row(row);
                reader.queue(&stream, &[&map, &score]).unwrap();
                stream.synchronize().unwrap();
                assert_eq!(reader.copied(), wanted, "{dtype:?} {row}");
                assert_eq!(alone.read_there(&[&score]).unwrap(), wanted, "{dtype:?} {row}");
            }
        }
        let on_host = Tensor::from_slice("pred_score", &[1], &[0.5f32]);
        assert!(reader.queue(&stream, &[&map, &on_host]).is_err(), "it is not on the GPU");
    }
}
