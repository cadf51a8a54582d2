// SPDX-License-Identifier: MPL-2.0
//! What a detector has of the sessions that it runs.

use super::*;
use crate::backends::BackendPreference;
use crate::error::{Error, ErrorKind};
use crate::image::frame::Plane;

/// As a backend that is loaded for one size of the input is loaded for a second one.
#[test]
fn what_the_model_for_another_size_warns_of_is_told() {
    let options = SessionOptions { backend: BackendPreference::Named("rten"), ..SessionOptions::default() };
    let open = || Session::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/shapes.onnx"), &options).unwrap();
    let mut detector = Detector::new(open(), PostprocessOptions::default()).unwrap();
    let (mut fitted, warning) = (open(), Error::new(ErrorKind::Model, "It differs from the CPU"));
    fitted.warnings.push(warning.clone());
    (detector.fitted_spec, detector.fitted) = (Some(fitted.request.spec.clone()), Some(fitted));
    let pixels = vec![128; 512 * 512 * 3];
    let planes = [Plane { data: &pixels, stride: 512 * 3 }].into_iter().collect();
    let frame = Frame { format: PixelFormat::Rgb, width: 512, height: 512, planes };
    for _ in 0..2 {
        detector.detect(&frame, Colorimetry::default()).unwrap();
        assert!(detector.is_fitted && *detector.session().warnings() == [warning.clone()]);
    }
}
