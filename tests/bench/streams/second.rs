// SPDX-License-Identifier: MPL-2.0
//! The row of a second model, on the objects of the first.

use std::error::Error;

use serde_json::json;

use crate::arguments::{Arguments, Second};
use crate::clip::queue;
use crate::pipeline::{Figures, SECOND};
use crate::{Alone, Bench, Decoding, median};

pub struct Chain<'a> {
    pub streams: usize,
    /// Of the first model.
    pub batch: usize,
    pub interval: usize,
    pub second: &'a Second,
    /// The engine of the second.
    pub alone: &'a Alone,
    pub decoding: &'a Decoding,
    /// Frames a second without the second model.
    pub plain: f64,
}

impl Bench {
    pub fn second(&self, chain: Chain) -> Result<(), Box<dyn Error>> {
        let Chain { streams, batch, interval, second, alone, decoding, plain } = chain;
        let Arguments { model, properties, timeout, draw, preprocess, nms, .. } = &self.arguments;
        let Second { model: classes, batch: crops_batch, runs, regions, .. } = second;
        let room = queue((2 * batch).div_ceil(streams).max(4));
        let elements = format!(
            "! trtpreprocess {preprocess} ! trtinfer model-file={model} {properties} shared-model=streams batch-size={batch} \
             batch-timeout={timeout} ! {room} ! trtnms draw={draw} {nms} ! trttrack \
             ! trtpreprocess name={SECOND}trtpreprocess{{i}} regions=objects reclassify-interval={interval} {regions} \
             ! trtinfer name={SECOND}trtinfer{{i}} model-file={classes} {properties} shared-model=objects \
             batch-size={crops_batch} batch-timeout={timeout} parallel-runs={runs} ! {room} \
             ! trtnms name={SECOND}trtnms{{i}} draw=false"
        );
        let measured = self.runs(streams, &elements, 0)?;
        let figure = |get: fn(&Figures) -> f64| median(measured.iter().map(get));
        let (fps, cpu) = (figure(|run| run.fps), figure(|run| run.cpu));
        let (objects, crops) = (figure(|run| run.objects[0]), figure(|run| run.objects[1]));
        let bytes = [figure(|run| run.bytes[0]), figure(|run| run.bytes[1])];
        let first = self.engines[&batch].fps;
        let engines = 1.0 / (1.0 / first + crops / alone.fps);
        let ceiling = decoding.fps.min(engines);
        println!(
            "{streams:>7}{batch:>7}{fps:>9.0}{ceiling:>9.0}{:>8.3}  second model, reclassify-interval={interval}: {objects:.1} objects and \
             {crops:.2} pictures a frame, {:.3} of the chain without it; {:.0} bytes a frame to the GPU, {:.0} from it",
            fps / ceiling,
            fps / plain,
            bytes[0],
            bytes[1],
        );
        self.arguments.note(json!({
            "row": "second", "model": model, "second": classes, "properties": properties, "streams": streams, "batch": batch,
            "second_batch": crops_batch, "second_runs": runs, "reclassify_interval": interval, "regions": regions,
            "fps": fps, "decode_fps": decoding.fps,
            "engine_fps": first, "second_pictures_per_s": alone.fps, "engines_fps": engines, "objects": objects, "pictures": crops,
            "of_ceiling": fps / ceiling, "plain_fps": plain, "of_plain": fps / plain, "cpu_s_per_1000": cpu,
            "bytes_to_and_from_gpu": bytes,
        }));
        Ok(())
    }
}
