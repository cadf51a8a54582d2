// SPDX-License-Identifier: MPL-2.0
//! The elements' `stats` property, made of [`counters`](gsttrt_core::counters).

use gst::glib;
use gst::prelude::*;
use gsttrt_core::counters::{Snapshot, ms};

use super::cuda::registry;

/// The element's own counts, then what all elements report.
pub fn structure<const N: usize>(snapshot: &Snapshot, counts: [(&str, u64); N]) -> gst::Structure {
    let Snapshot { busy, waits, gpu, counters, .. } = snapshot;
    let counts = counts.into_iter().fold(gst::Structure::builder("stats"), |built, (name, n)| built.field(name, n));
    counts
        .field("mean-ms", busy.mean())
        .field("last-ms", ms(busy.last))
        .field("p50-ms", busy.quantile(0.50))
        .field("p95-ms", busy.quantile(0.95))
        .field("p99-ms", busy.quantile(0.99))
        .field("max-ms", ms(busy.max))
        .field("wait-mean-ms", waits.mean())
        .field("wait-p99-ms", waits.quantile(0.99))
        .field("gpu-mean-ms", gpu.mean())
        .field("gpu-p50-ms", gpu.quantile(0.50))
        .field("gpu-p95-ms", gpu.quantile(0.95))
        .field("gpu-p99-ms", gpu.quantile(0.99))
        .field("bytes-uploaded", counters.uploaded)
        .field("bytes-downloaded", counters.downloaded)
        .field("pool-hits", counters.pool_hits)
        .field("pool-misses", counters.pool_misses)
        .field("cuda-contexts", registry::count())
        .build()
}

/// The property by which the GPU's times are asked for.
pub fn measure_property() -> glib::ParamSpec {
    glib::ParamSpecBoolean::builder("measure")
        .nick("Measure")
        .blurb("Take the GPU's time for each frame too, for stats; costs some microseconds a frame")
        .mutable_playing()
        .build()
}

/// The property that all elements have.
pub fn property(blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecBoxed::builder::<gst::Structure>("stats").nick("Statistics").blurb(blurb).read_only().build()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gsttrt_core::counters::{Span, Stats, downloaded, pooled, uploaded, waiting};

    use super::*;

    #[test]
    fn a_stage_has_the_counts_of_its_thread() {
        gst::init().unwrap();
        let stats = Stats::default();
        uploaded(1000); // before it
        let stage = Span::begin(false);
        uploaded(20);
        downloaded(3);
        let waited = waiting(|| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(4) {}
            begun.elapsed()
        });
        pooled(false);
        pooled(true);
        pooled(true);
        std::thread::scope(|scope| drop(scope.spawn(|| uploaded(1000)))); // at the same time
        let time = stats.add(stage, 5);
        uploaded(1000); // after it
        stats.skip();

        let totals = stats.read();
        assert_eq!([totals.done, totals.skipped, totals.objects], [1, 1, 5]);
        let said = structure(&totals, [("frames", 7)]);
        let count = |name| said.get::<u64>(name).unwrap();
        assert_eq!(
            ["frames", "bytes-uploaded", "bytes-downloaded", "pool-hits", "pool-misses"].map(count),
            [7, 20, 3, 2, 1]
        );
        for wait in ["wait-mean-ms", "wait-p99-ms"].map(|name| said.get::<f64>(name).unwrap()) {
            assert!((ms(waited)..=ms(time)).contains(&wait) && wait >= 4.0, "{said}");
        }

        assert_eq!(said.get::<f64>("gpu-mean-ms"), Ok(0.0), "nothing was measured");

        stats.reset();
        let totals = stats.read();
        assert_eq!([totals.done, totals.skipped, totals.objects], [0, 0, 0]);
        assert_eq!(structure(&totals, []).get::<f64>("max-ms"), Ok(0.0));
    }
}
