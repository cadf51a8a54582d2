// SPDX-License-Identifier: MPL-2.0
//! Detections in tests: models that always find the same boxes, a line of our elements that frames are pushed through, and
//! the metas that trtnms attached to a frame.

use gst::prelude::*;
use gst_video::VideoRegionOfInterestMeta;

use super::onnx::{F32, Graph, I64, int, ints};

/// Side of the input of [`model`], in pixels.
pub const SIDE: u32 = 64;

/// A model over 64x64 with the classes a, b and c that finds these rows in every picture: left, top, right, bottom in pixels
/// of its input, score, class.
pub fn model(folder: &std::path::Path, rows: &[[f32; 6]]) -> String {
    graph("output0", rows).metadata("names", "{0: 'a', 1: 'b', 2: 'c'}").save(&folder.join("boxes.onnx"))
}

/// The same without labels, and with an output of that name.
pub fn graph(output: &str, rows: &[[f32; 6]]) -> Graph {
    Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant(
        output,
        &[1, rows.len() as i64, 6],
        rows.as_flattened(),
    )
}

/// A classifier (bright, dark) of pictures of 16x16, for batches of that many.
pub fn classifier(folder: &std::path::Path, batch: &str) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &[batch, "3", "16", "16"])
        .weight("factor", F32, &[1, 2], floats(&[8.0, -8.0]))
        .weight("addend", F32, &[1, 2], floats(&[-4.0, 4.0]))
        .weight("rows", I64, &[2], [-1i64, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .node("ReduceMean", &["images"], &["mean"], vec![ints("axes", &[1, 2, 3]), int("keepdims", 0)])
        .node("Reshape", &["mean", "rows"], &["column"], vec![])
        .node("Mul", &["column", "factor"], &["scaled"], vec![])
        .node("Add", &["scaled", "addend"], &["logits"], vec![])
        .node("Softmax", &["logits"], &["output0"], vec![int("axis", 1)])
        .output("output0", F32, &[batch, "2"])
        .metadata("author", "Ultralytics")
        .metadata("task", "classify")
        .metadata("names", "{0: 'bright', 1: 'dark'}")
        .save(&folder.join("kind.onnx"))
}

/// A classifier of clips of two frames of 16x16, in batches of any size: which of them is how bright.
pub fn actions(folder: &std::path::Path) -> String {
    Graph::new()
        .input("clip", F32, &["n", "3", "2", "16", "16"])
        .node("ReduceMean", &["clip"], &["output0"], vec![ints("axes", &[1, 3, 4]), int("keepdims", 0)])
        .output("output0", F32, &["n", "2"])
        .metadata("task", "classify")
        .metadata("names", "{0: 'first', 1: 'last'}")
        .save(&folder.join("actions.onnx"))
}

/// A model of sequences of so many vectors of so many numbers, whose classes are the first number of each.
pub fn steps(folder: &std::path::Path, dims: [&str; 3]) -> String {
    let length: usize = dims[2].parse().unwrap();
    // The mean of the numbers times this is the first of them.
    let factor = (0..length).map(|at| if at == 0 { length as f32 } else { 0.0 });
    let factor = factor.flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("steps", F32, &dims)
        .weight("factor", F32, &[1, 1, length as i64], factor)
        .node("Mul", &["steps", "factor"], &["first"], Vec::new())
        .node("ReduceMean", &["first"], &["output0"], vec![ints("axes", &[2]), int("keepdims", 0)])
        .output("output0", F32, &[dims[0], dims[1]])
        .metadata("task", "classify")
        .save(&folder.join("steps.onnx"))
}

/// A model of pictures of 16x16 whose vector is the mean of their red, green and blue, for batches of that many.
pub fn embedder(folder: &std::path::Path, batch: &str) -> String {
    Graph::new()
        .input("images", F32, &[batch, "3", "16", "16"])
        .node("ReduceMean", &["images"], &["vector"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .output("vector", F32, &[batch, "3"])
        .metadata("task", "embed")
        .save(&folder.join("colours.onnx"))
}

/// The same of pictures of any size, with the names of an export of Hugging Face's packages: the channels are open, too.
pub fn open_embedder(folder: &std::path::Path) -> String {
    Graph::new()
        .input("pixel_values", F32, &["batch_size", "num_channels", "height", "width"])
        .node("ReduceMean", &["pixel_values"], &["image_embeds"], vec![ints("axes", &[2, 3]), int("keepdims", 0)])
        .output("image_embeds", F32, &["batch_size", "3"])
        .metadata("task", "embed")
        .save(&folder.join("vision_model.onnx"))
}

/// A model of pictures of 64x16 that reads “Hi” in any of them, with its dictionary in the metadata.
pub fn reader(folder: &std::path::Path) -> String {
    text_graph().metadata("character", "H\ni").save(&folder.join("reader.onnx"))
}

/// The same without a dictionary: its steps have scores of the blank, of two characters and of a space.
pub fn text_graph() -> Graph {
    let steps: [[f32; 4]; 3] = [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.75, 0.25]];
    let graph = Graph::new().input("images", F32, &["1", "3", "16", "64"]);
    graph.constant("text", &[1, 3, 4], steps.as_flattened())
}

/// A model that reads pictures of any width, and in each as many characters as it has columns.
pub fn wide_reader(folder: &std::path::Path) -> String {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Graph::new()
        .input("images", F32, &["n", "3", "16", "w"])
        .weight("shape", I64, &[3], [0i64, 0, 1].iter().flat_map(|dim| dim.to_le_bytes()).collect())
        .weight("factor", F32, &[1, 1, 3], floats(&[0.0; 3]))
        .weight("addend", F32, &[1, 1, 3], floats(&[0.75, 0.125, 0.125]))
        .node("ReduceMean", &["images"], &["columns"], vec![ints("axes", &[1, 2]), int("keepdims", 0)])
        .node("Reshape", &["columns", "shape"], &["steps"], vec![])
        .node("Mul", &["steps", "factor"], &["nothing"], vec![])
        .node("Add", &["nothing", "addend"], &["scores"], vec![])
        .output("scores", F32, &["n", "w", "3"])
        .save(&folder.join("reader.onnx"))
}

/// A model that finds a text of 40x8 pixels around the middle of each picture of 64x64, rotated by that angle.
pub fn text_map(angle: f64) -> Graph {
    let (sin, cos) = angle.sin_cos();
    let pixel = |at: usize| {
        let (dx, dy) = ((at % 64) as f64 - 31.5, (at / 64) as f64 - 31.5);
        let is_text = (dx * cos + dy * sin).abs() <= 20.0 && (dy * cos - dx * sin).abs() <= 4.0;
        if is_text { 0.875 } else { 0.0 }
    };
    let pixels: Vec<f32> = (0..64 * 64).map(pixel).collect();
    Graph::new().input("images", F32, &["1", "3", "64", "64"]).constant("maps", &[1, 1, 64, 64], &pixels)
}

/// The numbers in a structure of a vector, as metas have it.
pub fn numbers(vector: &gst::StructureRef) -> Vec<f32> {
    let values = vector.get::<gst::Buffer>("values").unwrap();
    let bytes = values.map_readable().unwrap();
    let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    assert_eq!(vector.get::<u32>("dims").unwrap() as usize, numbers.len());
    numbers
}

/// An object of a GstVideoRegionOfInterestMeta.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub id: i32,
    pub label: String,
    pub class: i32,
    pub confidence: f64,
    /// Left, top, width and height in whole pixels.
    pub rect: (u32, u32, u32, u32),
    /// Left, top, right and bottom in 0..1 of the frame.
    pub corners: [f64; 4],
}

pub fn found(buffer: &gst::BufferRef) -> Vec<Found> {
    let read = |meta: gst::MetaRef<VideoRegionOfInterestMeta>| {
        let params = meta.param("detection").expect("a structure called detection");
        Found {
            id: meta.id(),
            label: meta.roi_type().to_string(),
            class: params.get("label_id").unwrap(),
            confidence: params.get("confidence").unwrap(),
            rect: meta.rect(),
            corners: ["x_min", "y_min", "x_max", "y_max"].map(|field| params.get(field).unwrap()),
        }
    };
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(read).collect()
}

/// trtpreprocess ! trtinfer ! trtnms without threads: a frame goes in, and has come out.
pub struct Line {
    harness: gst_check::Harness,
    bus: gst::Bus,
}

impl Line {
    /// Takes RGB frames of 64x64 until [`Line::caps`] changes that. `nms` are properties of trtnms.
    pub fn new(model: &str, nms: &str) -> Self {
        Line::parse(&format!("trtpreprocess ! trtinfer model-file={model} ! trtnms {nms}"))
    }

    pub fn parse(elements: &str) -> Self {
        super::init();
        let (harness, bus) = super::elements::harness(elements);
        let mut line = Line { harness, bus };
        line.caps("RGB", SIDE, SIDE);
        line
    }

    pub fn caps(&mut self, format: &str, width: u32, height: u32) {
        self.harness.set_src_caps_str(&format!(
            "video/x-raw,format={format},width={width},height={height},framerate=30/1,colorimetry=bt601"
        ));
    }

    /// Frames come with these caps from now on.
    pub fn set_caps(&mut self, caps: &gst::Caps) {
        self.harness.set_src_caps(caps.clone());
    }

    #[track_caller]
    pub fn push(&mut self, buffer: gst::Buffer) -> gst::Buffer {
        self.harness.push(buffer).unwrap_or_else(|flow| panic!("{flow}: {:?}", self.said()));
        self.harness.pull().expect("each frame comes out")
    }

    /// A frame that may be refused.
    pub fn try_push(&mut self, buffer: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.harness.push(buffer)
    }

    /// What comes before the next frame.
    pub fn push_event(&mut self, event: gst::Event) {
        assert!(self.harness.push_event(event));
    }

    /// Messages of that type on the bus since the last call.
    pub fn messages_of(&self, kind: gst::MessageType) -> Vec<gst::Message> {
        std::iter::from_fn(|| self.bus.pop_filtered(&[kind])).collect()
    }

    /// Notes on the bus since the last call, but for the one about the backend, which depends on the machine.
    pub fn notes(&self) -> Vec<String> {
        let pop = || self.bus.pop_filtered(&[gst::MessageType::Info]);
        let text = |message: gst::Message| match message.view() {
            gst::MessageView::Info(note) => note.error().to_string(),
            _ => unreachable!("filtered"),
        };
        std::iter::from_fn(pop).map(text).filter(|note| !note.starts_with("Running the model on ")).collect()
    }

    /// Lets go of the events that have come out, which the harness keeps.
    pub fn drop_events(&mut self) {
        while self.harness.try_pull_event().is_some() {}
    }

    /// How many events of that name have come out upstream since the last call.
    pub fn upstream_events(&mut self, name: &str) -> usize {
        let harness = &mut self.harness;
        std::iter::from_fn(|| harness.try_pull_upstream_event()).filter(|event| event.type_().name() == name).count()
    }

    /// What is found in a grey frame of 64x64.
    #[track_caller]
    pub fn found(&mut self) -> Vec<Found> {
        found(&self.push(grey(SIDE * SIDE * 3)))
    }

    /// Their labels alone.
    #[track_caller]
    pub fn labels(&mut self) -> Vec<String> {
        self.found().into_iter().map(|found| found.label).collect()
    }

    pub fn nms(&mut self) -> gst::Element {
        self.element("trtnms")
    }

    /// The one that such a factory made.
    pub fn element(&mut self, factory: &str) -> gst::Element {
        self.harness.find_element(factory).unwrap()
    }

    /// The element of that name in a line of several.
    pub fn by_name(&mut self, name: &str) -> gst::Element {
        let bin = self.harness.element().unwrap().downcast::<gst::Bin>().unwrap();
        bin.by_name(name).unwrap()
    }

    /// Waits until that model has been loaded, and gives the texts of all progress messages until then.
    #[track_caller]
    pub fn wait_for_model(&self, path: &str) -> Vec<String> {
        let name = path.rsplit('/').next().unwrap();
        let mut texts = Vec::new();
        loop {
            let message = self.bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Progress]);
            let message = message.unwrap_or_else(|| panic!("it never comes: {texts:?}, {:?}", self.said()));
            let gst::MessageView::Progress(progress) = message.view() else { unreachable!("filtered") };
            // Not through the binding's getters, which leak both strings of the message.
            let structure = progress.structure().unwrap();
            texts.push(structure.get::<String>("text").unwrap());
            let kind: gst::ProgressType = structure.get("type").unwrap();
            if kind == gst::ProgressType::Complete && texts.last().unwrap().contains(name) {
                return texts;
            }
        }
    }

    /// Waits for a warning.
    #[track_caller]
    pub fn wait_for_warning(&self) -> String {
        let message = self.bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Warning]);
        match message.expect("it never comes").view() {
            gst::MessageView::Warning(warning) => warning.error().to_string(),
            _ => unreachable!("filtered"),
        }
    }

    /// Errors and warnings since the last call.
    pub fn said(&self) -> Vec<String> {
        let pop = || self.bus.pop_filtered(&[gst::MessageType::Error, gst::MessageType::Warning]);
        let text = |message: gst::Message| match message.view() {
            gst::MessageView::Error(error) => error.error().to_string(),
            gst::MessageView::Warning(warning) => warning.error().to_string(),
            _ => unreachable!("filtered"),
        };
        std::iter::from_fn(pop).map(text).collect()
    }

    /// The structures of element messages since the last call.
    pub fn messages(&self) -> Vec<gst::Structure> {
        let pop = || self.bus.pop_filtered(&[gst::MessageType::Element]);
        std::iter::from_fn(pop).filter_map(|message| message.structure().map(|s| s.to_owned())).collect()
    }
}

/// A buffer of so many bytes of one value that no colour of a class has.
pub fn grey(bytes: u32) -> gst::Buffer {
    gst::Buffer::from_mut_slice(vec![GREY; bytes as usize])
}

pub const GREY: u8 = 77;

/// A grey frame of that format and size, as it comes out of a line of elements.
pub fn drawn(elements: &str, format: &str, (width, height): (u32, u32)) -> Vec<u8> {
    let info =
        gst_video::VideoInfo::builder(gst_video::VideoFormat::from_string(format), width, height).build().unwrap();
    let mut line = Line::parse(elements);
    line.caps(format, width, height);
    let buffer = line.push(grey(info.size() as u32));
    buffer.map_readable().unwrap().to_vec()
}

/// Where the buffer's first memory lies.
pub fn address(buffer: &gst::BufferRef) -> usize {
    buffer.map_readable().unwrap().as_ptr() as usize
}
