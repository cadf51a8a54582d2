//! How a head writes its boxes: recognise it, decode it.
//!
//! Layouts are data. A new one is a variant of [`Layout`], its row in `TABLE`, a function in `decode.rs` and a gold case
//! beside it, and for the GPU an arm in `cuda/kernels/boxes.rs`. The row says which outputs the layout reads,
//! what makes it likely, how its input is prepared, and whether its boxes still repeat each other.
//!
//! [`recognise`] lays the rows over a model's outputs, whose dimensions may still be open; [`Decoder::new`] does the same
//! with those of the first inference and then turns tensors into [`Detection`]s.
//!
//! Sources: the exporters and post-processing of each family (Ultralytics, YOLOv5/6/7, YOLOX, RT-DETR, D-FINE, TensorRT's
//! EfficientNMS plugin, TensorFlow's detection zoo, DeepStream-Yolo).

mod decode;
mod recognise;
mod thresholds;

use smallvec::SmallVec;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::tensor::{DType, Tensor, TensorDesc};
use crate::image::Detection;
use crate::image::geometry::ResizeMode;
use crate::image::transform::{Chroma, Colors, InputTransform};

use Dim::{Batch, Classes, Is, Rows};
pub(crate) use decode::Head;
use decode::Sink;
use recognise::{Cells, Evidence, Sight};
pub use recognise::{Hints, recognise, recognise_outputs};
pub use thresholds::Thresholds;

/// How a head writes its boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    Yolov5,
    Yolov8,
    Yolov8Transposed,
    EndToEnd,
    Yolox,
    EfficientNms,
    Detr,
    DetrUltralytics,
    DetrTopK,
    Ssd,
    DeepstreamYolo,
}

/// Everything about a layout.
struct Row {
    layout: Layout,
    name: &'static str,
    description: &'static str,
    outputs: &'static [Output],
    /// What a row of the outputs holds, in order.
    holds: &'static str,
    recipe: InputTransform,
    needs_nms: bool,
    /// What speaks for this layout where the outputs fit; asked only of layouts with one output, names decide the others.
    likely: fn(&Sight) -> Option<Evidence>,
    decode: fn(&Head, &[&Tensor], &mut Sink),
}

/// A tensor that a layout reads.
struct Output {
    /// Empty where any name will do.
    name: &'static str,
    numbers: Numbers,
    /// A trailing dimension of 1 more than these is no harm.
    dims: &'static [Dim],
}

#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// f32 or f16.
    Float,
    /// Those, and integers: counts and class ids.
    Any,
}

#[derive(Clone, Copy, PartialEq)]
enum Dim {
    Batch,
    /// Anchors, queries or boxes; the same number in all outputs of a layout.
    Rows,
    /// So many more than there are classes.
    Classes(i64),
    Is(i64),
}

/// Letterboxed RGB in 0..1, as the YOLO family wants it.
const YOLO: InputTransform = InputTransform {
    colors: Colors::Rgb,
    chroma: Chroma::Nearest,
    fit: ResizeMode::Letterbox,
    pad: 114,
    scale: 1.0 / 255.0,
    mean: [0.0; 3],
    std: [1.0; 3],
};
/// RGB in 0..1 without regard to aspect, as transformers want it.
const STRETCH: InputTransform = InputTransform { fit: ResizeMode::Stretch, ..YOLO };

const fn floats(name: &'static str, dims: &'static [Dim]) -> Output {
    Output { name, numbers: Numbers::Float, dims }
}

const fn numbers(name: &'static str, dims: &'static [Dim]) -> Output {
    Output { name, numbers: Numbers::Any, dims }
}

/// In the order of [`Layout`].
static TABLE: [Row; Layout::ALL.len()] = [
    Row {
        layout: Layout::Yolov5,
        name: "yolov5",
        description: "YOLOv5, YOLOv6 and YOLOv7: rows with objectness",
        outputs: &[floats("", &[Batch, Rows, Classes(5)])],
        holds: "centre x, centre y, width, height in pixels, objectness, class scores",
        recipe: YOLO,
        needs_nms: true,
        likely: |sight| match sight.cells {
            _ if sight.hints.ultralytics => None,
            Cells::Three => Some(Evidence::Sign),
            Cells::One if sight.name == "output" => None, // YOLOX
            Cells::One if sight.name == "outputs" => Some(Evidence::Sign), // YOLOv6
            Cells::One | Cells::Unknown => Some(Evidence::Shape),
            Cells::Few | Cells::Other => None,
        },
        decode: decode::yolov5,
    },
    Row {
        layout: Layout::Yolov8,
        name: "yolov8",
        description: "YOLOv8, 9, 10, 11, 12, 26 and YOLOv5u by Ultralytics: columns without objectness",
        outputs: &[floats("", &[Batch, Classes(4), Rows])],
        holds: "centre x, centre y, width, height in pixels, class scores",
        recipe: YOLO,
        needs_nms: true,
        likely: |sight| match sight.cells {
            Cells::One | Cells::Unknown if sight.hints.ultralytics => Some(Evidence::Sign),
            Cells::One | Cells::Three | Cells::Unknown => Some(Evidence::Shape),
            Cells::Few | Cells::Other => None,
        },
        decode: decode::yolov8,
    },
    Row {
        layout: Layout::Yolov8Transposed,
        name: "yolov8-transposed",
        description: "YOLOv8 and later with a transpose at the end: rows without objectness",
        outputs: &[floats("", &[Batch, Rows, Classes(4)])],
        holds: "centre x, centre y, width, height in pixels, class scores",
        recipe: YOLO,
        needs_nms: true,
        likely: |sight| match sight.cells {
            _ if sight.hints.ultralytics => None,
            Cells::One | Cells::Unknown => Some(Evidence::Shape),
            Cells::Three | Cells::Few | Cells::Other => None,
        },
        decode: decode::yolov8_transposed,
    },
    Row {
        layout: Layout::EndToEnd,
        name: "end-to-end",
        description: "YOLOv10 and YOLO26 without NMS, or any Ultralytics model with NMS in the graph",
        outputs: &[floats("", &[Batch, Rows, Is(6)])],
        holds: "left, top, right, bottom in pixels, score, class; zeros where there are fewer boxes",
        recipe: YOLO,
        needs_nms: false,
        likely: |sight| match sight.cells {
            _ if sight.hints.rtdetr() => None,
            _ if sight.hints.end_to_end || sight.hints.ultralytics => Some(Evidence::Sign),
            Cells::Few | Cells::Unknown => Some(Evidence::Shape),
            Cells::One | Cells::Three | Cells::Other => None,
        },
        decode: decode::end_to_end,
    },
    Row {
        layout: Layout::Yolox,
        name: "yolox",
        description: "YOLOX as exported by default, undecoded; with --decode_in_inference it is yolov5",
        outputs: &[floats("", &[Batch, Rows, Classes(5)])],
        holds: "centre x, centre y, log width, log height in grid cells, objectness, class scores",
        recipe: InputTransform { colors: Colors::Bgr, fit: ResizeMode::LetterboxTopLeft, scale: 1.0, ..YOLO },
        needs_nms: true,
        likely: |sight| {
            (sight.cells == Cells::One && sight.name == "output" && !sight.hints.ultralytics).then_some(Evidence::Sign)
        },
        decode: decode::yolox,
    },
    Row {
        layout: Layout::EfficientNms,
        name: "efficientnms",
        description: "Models with TensorRT's EfficientNMS plugin at the end",
        outputs: &[
            numbers("num_dets", &[Batch]),
            floats("det_boxes", &[Batch, Rows, Is(4)]),
            floats("det_scores", &[Batch, Rows]),
            numbers("det_classes", &[Batch, Rows]),
        ],
        holds: "boxes are left, top, right, bottom in pixels",
        recipe: YOLO,
        needs_nms: false,
        likely: |_| None,
        decode: decode::efficientnms,
    },
    Row {
        layout: Layout::Detr,
        name: "detr",
        description: "RT-DETR, D-FINE and DEIM by their own exporters",
        outputs: &[
            numbers("labels", &[Batch, Rows]),
            floats("boxes", &[Batch, Rows, Is(4)]),
            floats("scores", &[Batch, Rows]),
        ],
        holds: "boxes are left, top, right, bottom in the units of orig_target_sizes, which must be the input's size",
        recipe: STRETCH,
        needs_nms: false,
        likely: |_| None,
        decode: decode::detr,
    },
    Row {
        layout: Layout::DetrUltralytics,
        name: "detr-ultralytics",
        description: "RT-DETR by Ultralytics until 8.4: a score for each class",
        outputs: &[floats("", &[Batch, Rows, Classes(4)])],
        holds: "centre x, centre y, width, height in 0..1, class scores",
        recipe: STRETCH,
        needs_nms: false,
        likely: |sight| match sight.cells {
            // Releases that write only the best class say which head they have.
            _ if sight.hints.rtdetr() && sight.hints.head.is_empty() => Some(Evidence::Sign),
            _ if sight.hints.rtdetr() => Some(Evidence::Shape),
            _ if sight.hints.ultralytics || sight.columns == 6 || sight.columns >= sight.rows => None,
            Cells::Few => Some(Evidence::Shape),
            _ => None,
        },
        decode: decode::detr_ultralytics,
    },
    Row {
        layout: Layout::DetrTopK,
        name: "detr-topk",
        description: "RT-DETR by Ultralytics since 8.4: the best class only",
        outputs: &[floats("", &[Batch, Rows, Is(6)])],
        holds: "centre x, centre y, width, height in 0..1, score, class",
        recipe: STRETCH,
        needs_nms: false,
        likely: |sight| match sight.hints.rtdetr() {
            true if sight.hints.head.is_empty() => Some(Evidence::Shape),
            true => Some(Evidence::Sign),
            false => None,
        },
        decode: decode::detr_topk,
    },
    Row {
        layout: Layout::Ssd,
        name: "ssd",
        description: "SSD and the like from TensorFlow's detection zoo",
        outputs: &[
            floats("detection_boxes", &[Batch, Rows, Is(4)]),
            numbers("detection_classes", &[Batch, Rows]),
            floats("detection_scores", &[Batch, Rows]),
            numbers("num_detections", &[Batch]),
        ],
        holds: "boxes are top, left, bottom, right in 0..1; classes count from 1, so the first label is class 1",
        recipe: InputTransform { scale: 1.0, ..STRETCH },
        needs_nms: false,
        likely: |_| None,
        decode: decode::ssd,
    },
    Row {
        layout: Layout::DeepstreamYolo,
        name: "deepstream-yolo",
        description: "Any family re-exported by DeepStream-Yolo",
        outputs: &[floats("", &[Batch, Rows, Is(6)])],
        holds: "left, top, right, bottom in pixels, score, class; boxes repeat",
        recipe: YOLO,
        needs_nms: true,
        likely: |sight| {
            (matches!(sight.cells, Cells::One | Cells::Three) && sight.name == "output").then_some(Evidence::Sign)
        },
        decode: decode::end_to_end,
    },
];

impl Layout {
    pub const ALL: [Layout; 11] = [
        Layout::Yolov5,
        Layout::Yolov8,
        Layout::Yolov8Transposed,
        Layout::EndToEnd,
        Layout::Yolox,
        Layout::EfficientNms,
        Layout::Detr,
        Layout::DetrUltralytics,
        Layout::DetrTopK,
        Layout::Ssd,
        Layout::DeepstreamYolo,
    ];

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The value of the property `layout`; stable.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Which models write it, in one line.
    pub fn description(self) -> &'static str {
        self.row().description
    }

    /// The outputs it reads: `float [N,A,5+classes]: centre x, …`.
    pub fn expects(self) -> String {
        let outputs: Vec<String> = self.row().outputs.iter().map(Output::to_string).collect();
        format!("{}: {}", outputs.join(", "), self.row().holds)
    }

    /// How the input of such models is prepared, unless the model or the user says otherwise.
    pub fn recipe(self) -> InputTransform {
        self.row().recipe
    }

    /// Whether the boxes still repeat each other.
    pub fn needs_nms(self) -> bool {
        self.row().needs_nms
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Layout::ALL.into_iter().find(|layout| layout.name() == text).ok_or_else(|| {
            let names: Vec<_> = Layout::ALL.iter().map(|layout| layout.name()).collect();
            Error::new(ErrorKind::Settings, format!("There is no layout “{text}”"))
                .remedy(format!("Use one of {}", names.join(", ")))
        })
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.numbers == Numbers::Float { "f32 or f16" } else { "numbers" };
        let dims: Vec<String> = (self.dims.iter())
            .map(|dim| match dim {
                Batch => "N".into(),
                Rows => "A".into(),
                Classes(more) => format!("{more}+classes"),
                Is(size) => size.to_string(),
            })
            .collect();
        let space = if self.name.is_empty() { "" } else { " " };
        write!(f, "{}{space}{kind} {}", self.name, dims.join("x"))
    }
}

/// Reads detections from a model's outputs.
pub struct Decoder {
    row: &'static Row,
    /// Which outputs are read, and what they were when this was made.
    outputs: SmallVec<[(usize, TensorDesc); 4]>,
    head: Head,
    classes: Option<usize>,
}

impl Decoder {
    /// For tensors as described by `outputs`, the descriptions of a first inference; `choice` is the user's.
    ///
    /// # Errors
    /// As [`recognise`]; also where the input's size is unknown, or a dimension is open.
    pub fn new(choice: Option<Layout>, outputs: &[TensorDesc], hints: &Hints) -> Result<Self> {
        let found = recognise::find(choice, outputs, hints)?;
        let row = found.row;
        let outputs: SmallVec<[_; 4]> = found.outputs.iter().map(|&i| (i, outputs[i].clone())).collect();
        if let Some((_, open)) = outputs.iter().find(|(_, desc)| desc.bytes().is_none()) {
            return Err(Error::new(ErrorKind::WrongType, format!("The size of the output {open} is still open")));
        }
        let unknown = || {
            Error::new(ErrorKind::Settings, format!("The layout {} needs the size of the model's input", row.name))
                .remedy("Export the model with a fixed input size, or set input-size")
        };
        let head = Head {
            rows: found.rows as usize,
            columns: found.columns as usize,
            input: hints.input.ok_or_else(unknown)?,
        };
        if row.layout == Layout::Yolox && head.strides().is_none() {
            let (width, height) = head.input;
            let what = format!("{} rows are no YOLOX grid over an input of {width}x{height}", head.rows);
            return Err(Error::new(ErrorKind::Settings, what).remedy("Choose another layout on trtnms"));
        }
        Ok(Decoder { row, outputs, head, classes: found.classes.or(hints.classes) })
    }

    pub fn layout(&self) -> Layout {
        self.row.layout
    }

    /// How many classes there are: what the outputs have room for, else what the hints say.
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    pub fn needs_nms(&self) -> bool {
        self.row.needs_nms
    }

    /// Appends the detections of the batch's first item whose score reaches the threshold of their class.
    ///
    /// Boxes are in pixels of the model's input, not clipped. `anchor` is the row. Of independent class scores the best
    /// counts, the first of equals, and only it is compared with its threshold: a filter never promotes a second best
    /// class. That is what Ultralytics' predict does. Boxes without width or height or with a number that is not finite
    /// are left out, as are class ids below 0 or beyond the classes; smaller than a pixel is no reason.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where an output is not what [`Decoder::new`] was shown.
    pub fn decode(&self, outputs: &[Tensor], thresholds: &Thresholds, out: &mut Vec<Detection>) -> Result<()> {
        let read = self.pick(outputs)?;
        (self.row.decode)(&self.head, &read, &mut Sink { thresholds, classes: self.class_limit(), out });
        Ok(())
    }

    /// Of a model's outputs those that this layout reads, in its own order.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] where one is not what [`Decoder::new`] was shown.
    pub fn pick<'a>(&self, outputs: &'a [Tensor]) -> Result<SmallVec<[&'a Tensor; 4]>> {
        let pick = |(index, wanted): &(usize, TensorDesc)| {
            let tensor = outputs.get(*index).filter(|tensor| tensor.desc() == wanted);
            tensor.ok_or_else(|| {
                let have = outputs.get(*index).map_or("nothing".into(), |tensor| tensor.desc().to_string());
                Error::new(ErrorKind::WrongType, format!("The model's output is {have} now, and was {wanted} at first"))
            })
        };
        self.outputs.iter().map(pick).collect()
    }

    /// The element types of those outputs.
    pub(crate) fn dtypes(&self) -> impl Iterator<Item = DType> {
        self.outputs.iter().map(|(_, desc)| desc.dtype)
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Class ids that a head names are below this.
    pub(crate) fn class_limit(&self) -> usize {
        self.classes.unwrap_or(decode::ANY_CLASS)
    }
}

#[cfg(test)]
mod tests;
