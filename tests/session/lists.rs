// SPDX-License-Identifier: MPL-2.0
//! Lists of pictures, which are run in batches.

use super::*;

/// A model that finds one box in the middle of each picture. Its score is a tenth of the number of pictures that are run together,
/// and its left edge is at 22, and ten times the brightness of the picture to the right of it.
fn batch_counter(folder: &Path, name: &str, dims: &[&str]) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, dims)
        .weight("place", F32, &[1, 1, 6], floats(&[22.0, 20.0, 42.0, 44.0, 0.0, 0.0]))
        .weight("left", F32, &[1, 1, 6], floats(&[10.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
        .weight("score", F32, &[1, 1, 6], floats(&[0.0, 0.0, 0.0, 0.0, 0.1, 0.0]))
        .weight("rows", I64, &[3], [-1i64, 1, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .weight("first", I64, &[1], 0i64.to_le_bytes().to_vec())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "left"], &["moved"], vec![])
        .node("Shape", &["images"], &["dims"], vec![])
        .node("Gather", &["dims", "first"], &["whole"], vec![])
        .node("Cast", &["whole"], &["count"], vec![int("to", F32.into())])
        .node("Mul", &["count", "score"], &["scored"], vec![])
        .node("Add", &["scored", "place"], &["placed"], vec![])
        .node("Add", &["moved", "placed"], &["output0"], vec![])
        .output("output0", F32, &[dims[0], "1", "6"])
        .metadata("names", "{0: 'a'}")
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&folder.join(name))
}

/// RGB frames of these sizes and brightnesses, in memory that stays as long as the test.
fn frames(kinds: &[(usize, usize, u8)]) -> Vec<(Frame<'static>, Colorimetry)> {
    let frame = |&(width, height, level): &(usize, usize, u8)| {
        let data = vec![level; width * height * 3].leak();
        let planes = [Plane { data, stride: width * 3 }].into_iter().collect();
        (Frame { format: PixelFormat::Rgb, width, height, planes }, Colorimetry::default())
    };
    kinds.iter().map(frame).collect()
}

fn counting(model: &str, batch_size: u32) -> Detector {
    let options = with(on_cpu(), |options| options.batch_size = batch_size);
    let low = with(PostprocessOptions::default(), |options| options.score_threshold = 0.01);
    Detector::open(model, &options, low).unwrap()
}

/// Of each frame, how many were run together.
fn counts(results: &[FrameResults]) -> Vec<u32> {
    results.iter().map(|results| (results.objects[0].confidence * 10.0).round() as u32).collect()
}

#[test]
fn lists_run_in_batches_with_the_results_of_one_by_one() {
    let folder = scratch("session-lists");
    let model = |batch: &str| batch_counter(&folder, &format!("{batch}.onnx"), &[batch, "3", "64", "64"]);
    let kinds = [(64, 64, 10), (90, 40, 200), (64, 64, 30), (20, 60, 90), (90, 40, 50), (64, 64, 250)];
    let frames = frames(&kinds);
    for (batch, batch_size, together) in [
        ("n", 0, [1; 6]),
        ("n", 4, [4, 4, 4, 2, 2, 4]),
        ("n", 6, [6; 6]),
        ("n", 64, [6; 6]),
        // The last one is filled up with black.
        ("4", 0, [4; 6]),
        ("4", 4, [4; 6]),
        ("1", 0, [1; 6]),
    ] {
        let mut detector = counting(&model(batch), batch_size);
        let results = detector.detect_batch(&frames).unwrap();
        assert_eq!(counts(&results), together, "{batch}, batch-size={batch_size}");
        for (results, (frame, color)) in results.iter().zip(&frames) {
            let one = detector.detect(frame, *color).unwrap();
            assert_eq!((results.objects.len(), results.objects[0].bbox), (1, one[0].bbox));
            assert!(results.classes.is_empty() && results.map.is_none());
        }
        assert_eq!(detector.detect_batch(&[]).unwrap(), []);
    }
    let fixed = Session::open(model("4"), &on_cpu()).unwrap();
    assert_eq!((fixed.batch_size(), fixed.input().to_string()), (4, "images f32 1x3x64x64".into()));
    assert_eq!(fixed.outputs()[0].to_string(), "output0 f32 1x1x6");
    let error = Session::open(model("4"), &with(on_cpu(), |options| options.batch_size = 3)).unwrap_err();
    assert!(error.message().contains("batch-size is 3, but the model takes batches of 4"), "{error}");
}

/// On a GPU the next batch runs while the results of one are read.
#[test]
fn gpu_lists_have_the_results_of_one_by_one_in_their_order() {
    let library = crate::common::gpu::context().and_then(|_| crate::common::gpu::setting("TRT_LIBRARY"));
    let Some(library) = library else {
        return crate::common::gpu::skip("there is no GPU, or TRT_LIBRARY is not set");
    };
    let folder = scratch("session-gpu-lists");
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dims = &["n", "3", "64", "64"];
    // One box, further to the right the brighter the picture is.
    let model = Graph::new()
        .input("images", F32, dims)
        .weight("place", F32, &[1, 1, 6], floats(&[22.0, 20.0, 42.0, 44.0, 0.9, 0.0]))
        .weight("left", F32, &[1, 1, 6], floats(&[10.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
        .weight("rows", I64, &[3], [-1i64, 1, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "left"], &["moved"], vec![])
        .node("Add", &["moved", "place"], &["output0"], vec![])
        .output("output0", F32, &["n", "1", "6"])
        .metadata("names", "{0: 'a'}")
        .metadata("end2end", "True")
        .metadata("imgsz", "[64, 64]")
        .metadata("stride", "32")
        .save(&folder.join("bright.onnx"));
    let kinds: Vec<(usize, usize, u8)> =
        (0..23u8).map(|number| if number % 5 == 3 { (90, 40, number * 11) } else { (64, 64, number * 11) }).collect();
    let frames = frames(&kinds);
    for batch_size in [1, 4] {
        let texts = format!(
            "backend=tensorrt trt-library={library} engine-cache={} optimization-level=0 precision=fp32 batch-size={batch_size}",
            folder.display()
        );
        let (options, postprocess) = parse_options(texts.split(' ')).unwrap();
        let mut detector = Detector::open(&model, &options, postprocess).unwrap();
        assert_eq!((detector.session().backend(), detector.session().batch_size()), ("tensorrt", batch_size));
        for _ in 0..3 {
            let results = detector.detect_batch(&frames).unwrap();
            for (number, (results, (frame, color))) in results.iter().zip(&frames).enumerate() {
                let one = detector.detect(frame, *color).unwrap();
                assert_eq!((results.objects.len(), one.len()), (1, 1), "batch-size={batch_size}, frame {number}");
                let (found, wanted) = (results.objects[0].bbox.x1, one[0].bbox.x1);
                assert!(
                    (found - wanted).abs() < 0.01,
                    "batch-size={batch_size}, frame {number}: {found}, not {wanted}"
                );
            }
        }
    }
}

/// Pictures that come to one size of the input are run together, wherever they are in the list.
#[test]
fn lists_of_frames_of_any_size_are_grouped_by_the_size_of_the_input() {
    let model = batch_counter(&scratch("session-grouped"), "open.onnx", &["n", "3", "h", "w"]);
    let mut detector = counting(&model, 2);
    let kinds = [(64, 32, 10), (32, 64, 20), (128, 64, 30), (64, 64, 40), (32, 64, 50), (64, 32, 60)];
    let results = detector.detect_batch(&frames(&kinds)).unwrap();
    assert_eq!(counts(&results), [2, 2, 1, 1, 2, 2]);
    for (results, (width, height, level)) in results.iter().zip(kinds) {
        let scale = width.max(height) as f32 / 64.0;
        let left = (22.0 + 10.0 * f32::from(level) / 255.0) * scale;
        let found = results.objects[0].bbox.x1;
        assert!((found - left).abs() < 0.01, "{width}x{height}: {found}, not {left}");
    }
}

/// All that a model finds, as one by one.
#[test]
fn each_task_has_its_results_in_lists() {
    let folder = scratch("session-tasks");
    let pictures: &'static [_] = elements::pictures("RGB").leak();
    let frame = |(pixels, width, height): &'static (Vec<u8>, usize, usize)| {
        let planes = [Plane { data: pixels, stride: width * 3 }].into_iter().collect();
        (Frame { format: PixelFormat::Rgb, width: *width, height: *height, planes }, Colorimetry::default())
    };
    let frames: Vec<_> = pictures.iter().map(frame).collect();
    for name in ["shapes", "shapes-seg", "figures-pose", "shapes-obb", "shapes-cls", "shapes-sem", "rooms-depth"] {
        let file = path(&format!("tests/models/{name}.onnx"));
        let model = Graph::load(&file).with_batch("n").save(&folder.join(format!("{name}.onnx")));
        let options = with(on_cpu(), |options| options.batch_size = 2);
        // Not all of them know what is in the clip.
        let low = with(PostprocessOptions::default(), |options| options.score_threshold = 1e-5);
        let mut detector = Detector::open(&model, &options, low).unwrap();
        let together = detector.detect_batch(&frames).unwrap();
        let mut found = 0;
        for (results, (frame, color)) in together.iter().zip(&frames) {
            assert_eq!(results.objects, detector.detect(frame, *color).unwrap(), "{name}");
            assert_eq!((&results.classes, results.map.as_ref()), (&detector.classes(), detector.map()), "{name}");
            found += results.objects.len() + results.classes.len() + usize::from(results.map.is_some());
        }
        assert!(found > 0, "{name}");
    }
}

#[test]
fn a_wrong_frame_of_a_list_is_named_and_breaks_nothing() {
    let model = batch_counter(&scratch("session-wrong"), "n.onnx", &["n", "3", "64", "64"]);
    let mut detector = counting(&model, 2);
    let good = frames(&[(64, 64, 10), (64, 64, 20), (32, 32, 30), (64, 64, 40)]);
    for (spoil, kind, says) in [
        ((|frame: &mut Frame| frame.planes[0].stride = 9) as fn(&mut Frame), ErrorKind::WrongType, "stride 9"),
        (|frame| frame.width = 0, ErrorKind::Negotiation, "0x32"),
    ] {
        let mut frames = good.clone();
        spoil(&mut frames[2].0);
        let error = detector.detect_batch(&frames).unwrap_err();
        assert!(error.kind() == kind && error.message().starts_with("frames[2]: "), "{error}");
        assert!(error.message().contains(says), "{error}");
        assert_eq!(counts(&detector.detect_batch(&good).unwrap()), [2, 2, 2, 2]);
    }
}

#[test]
fn a_session_runs_lists_too() {
    let folder = scratch("session-run-lists");
    for (batch, batch_size) in [("n", 0), ("n", 2), ("2", 0), ("1", 0)] {
        let dims = &[batch, "3", "2", "4"];
        let graph = Graph::new().input("images", F32, dims).output("same", F32, dims);
        let graph = graph.node("Identity", &["images"], &["same"], Vec::new());
        let model = graph.save(&folder.join(format!("{batch}.onnx")));
        let mut session = Session::open(&model, &with(on_cpu(), |options| options.batch_size = batch_size)).unwrap();
        let pictures: Vec<Vec<f32>> = (0..5).map(|picture| vec![picture as f32; 24]).collect();
        let inputs: Vec<&[u8]> = pictures.iter().map(|picture| bytemuck::cast_slice(picture)).collect();
        let outputs = session.run_batch(&inputs).unwrap();
        assert_eq!(outputs.len(), 5);
        for (outputs, picture) in outputs.iter().zip(&pictures) {
            assert_eq!(outputs[0].desc().to_string(), "same f32 1x3x2x4");
            assert_eq!(outputs[0].as_slice::<f32>().unwrap(), picture);
        }
        let error = session.run_batch(&[inputs[0], &inputs[1][1..]]).unwrap_err();
        assert!(error.kind() == ErrorKind::WrongType && error.message().starts_with("inputs[1]: "), "{error}");
        let mut output = [0f32; 24];
        session.run(&pictures[3], &mut output).unwrap();
        assert_eq!(output, [3.0; 24]);
        session.copy_input_to_device(&pictures[4]).unwrap();
        session.run_buffers().unwrap();
        session.copy_output_to_host(0, &mut output).unwrap();
        assert_eq!(output, [4.0; 24]);
    }
}
