// SPDX-License-Identifier: MPL-2.0
//! A model as nvinfer has it: `config_infer_primary.txt`.

use std::path::Path;

use super::classes::{self, ClassSettings};
use super::ini::IniGroup;
use super::read;
use super::written::NoteKind::{Differs, Elsewhere, NoEffect};
use super::written::{KnownKey, PropertyTexts, TomlTable, WrittenConfig};
use crate::failure::Failure;

const SUPPRESSED: &str = "boxes are suppressed by their overlap, as with mode 2, unless the model does so itself";
const LAYOUT: &str = "the layout of the outputs is recognised; where it is not, set layout in nms, or layout-file";
const UNCALIBRATED: &str =
    "without int8-calib-file only models with Q/DQ nodes run in INT8: for others set precision=fp16 in infer";
/// Why keys are not taken over.
const REASONS: [KnownKey; 29] = [
    ("custom-lib-path", Elsewhere, LAYOUT),
    ("parse-bbox-func-name", Elsewhere, LAYOUT),
    ("parse-bbox-instance-mask-func-name", Elsewhere, LAYOUT),
    ("parse-classifier-func-name", Elsewhere, LAYOUT),
    ("engine-create-func-name", NoEffect, "engines are built from ONNX"),
    ("output-blob-names", NoEffect, "all outputs of the model are read"),
    ("num-detected-classes", NoEffect, "the model tells it"),
    ("gie-unique-id", NoEffect, "objects have no number of their model"),
    ("operate-on-gie-id", Differs, "a model sees the objects of all models before it; classes chooses among them"),
    ("operate-on-class-ids", NoEffect, "the model sees frames"),
    ("classifier-async-mode", NoEffect, "a frame waits for the classes of its objects"),
    ("input-object-max-width", Differs, "only the least size can be chosen: min-object-size in preprocess"),
    ("input-object-max-height", Differs, "only the least size can be chosen: min-object-size in preprocess"),
    ("force-implicit-batch-dim", Differs, "such models cannot be read"),
    ("model-file", Differs, "Caffe and UFF cannot be read: give an ONNX model"),
    ("proto-file", Differs, "Caffe and UFF cannot be read: give an ONNX model"),
    ("uff-file", Differs, "Caffe and UFF cannot be read: give an ONNX model"),
    ("tlt-encoded-model", Differs, "it cannot be read: export the model as ONNX"),
    ("tlt-model-key", Differs, "it cannot be read: export the model as ONNX"),
    ("output-tensor-meta", Elsewhere, "serve publishes objects; in a pipeline it is tensor-meta of trtinfer"),
    ("input-tensor-meta", NoEffect, "trtpreprocess makes the tensor"),
    ("strongly-typed", NoEffect, "it is so with TensorRT 11, and for models cast to 16 bits"),
    ("scaling-filter", Differs, "frames are scaled as in training, bilinear"),
    ("scaling-compute-hw", NoEffect, "frames are scaled where the model runs"),
    ("crop-objects-to-roi-boundary", Differs, "boxes are cut at the edge of the frame"),
    ("classifier-threshold", NoEffect, "the model is no classifier"),
    ("layer-device-precision", Elsewhere, "precision in infer is that of all layers"),
    ("mode", NoEffect, "nvinfer's documentation has no such key; that of the precision is network-mode"),
    ("segmentation-threshold", Differs, "masks have the threshold that models are trained with"),
];

fn is_classifier(property: &IniGroup) -> Result<bool, Failure> {
    let kind = property.number::<u32>("network-type")?;
    Ok(kind == Some(1) || property.is_on("is-classifier") == Some(true))
}

/// What a file says of a model, with what the application sets instead.
pub struct NvInfer<'a> {
    /// As notes name it.
    pub file: &'a str,
    /// Its relative paths begin there.
    pub folder: &'a Path,
    pub groups: &'a [IniGroup],
    /// `[primary-gie]` or `[secondary-gie0]`, whose keys count more.
    pub own: Option<&'a IniGroup>,
    /// Whether the application runs it on objects. Without one, the file says it.
    pub is_secondary: Option<bool>,
}

impl NvInfer<'_> {
    fn property(&self) -> Result<&IniGroup, Failure> {
        let found = self.groups.iter().find(|group| group.name == "property");
        found.ok_or_else(|| format!("{} has no group [property]", self.file).into())
    }

    fn path(&self, text: &str) -> String {
        self.folder.join(text.strip_prefix("file://").unwrap_or(text)).to_string_lossy().into_owned()
    }

    /// The table `[[model]]`, of that name.
    ///
    /// # Errors
    /// There is no model in it, or a value that is no number.
    pub fn write(&self, name: &str, into: &mut WrittenConfig) -> Result<(), Failure> {
        let property = self.property()?;
        // What the application says counts, and the file's is used, too.
        let text = |key: &str| {
            let of_file = property.text(key);
            self.own.and_then(|own| own.text(key)).or(of_file)
        };
        let number = |key: &str| -> Result<Option<u32>, Failure> {
            let of_file = property.number(key)?;
            Ok(self.own.map(|own| own.number(key)).transpose()?.flatten().or(of_file))
        };
        let (onnx, engine) = (property.text("onnx-file"), text("model-engine-file"));
        let file = onnx.or(engine).ok_or_else(|| {
            format!("{} has neither onnx-file nor model-engine-file: export the model as ONNX", self.file)
        })?;
        let of_file = property.number::<u32>("process-mode")? == Some(2);
        let is_secondary = self.is_secondary.unwrap_or(of_file);
        let mut table = TomlTable::new("[[model]]");
        table.text("name", name);
        table.text("file", &self.path(file));
        if is_secondary {
            table.text("on", "objects");
            if self.own.is_none() {
                table.comment("It sees the objects of another [[model]], which is to be added.");
            }
            let of_file = property.list("operate-on-class-ids");
            let classes = self.own.and_then(|own| own.list("operate-on-class-ids")).or(of_file);
            let classes: Vec<&str> = classes.into_iter().flatten().filter(|class| !class.is_empty()).collect();
            if !classes.is_empty() {
                table.value("classes", serde_json::Value::from(classes));
            }
        }
        if let (Some(_), Some(engine)) = (onnx, engine) {
            let why = format!("{engine} is not used: engines are built from the model, and kept in engine-cache");
            into.note(NoEffect, self.file, "property", "model-engine-file", &why);
        } else if onnx.is_none() {
            table.comment("An engine runs with the TensorRT and the GPU that it was built for.");
        }
        if let Some(labels) = text("labelfile-path") {
            let path = self.path(labels);
            table.text("labels", &path);
            if read(Path::new(&path)).is_ok_and(|text| text.contains(';')) {
                let why = "classes are one a line here: write those with ; between them on lines of their own";
                into.note(Differs, self.file, "property", "labelfile-path", why);
            }
        }
        if let Some(size) = number("batch-size")?.filter(|size| *size > 1) {
            table.value("batch-size", size.min(1024));
        }
        let (mut preprocess, mut infer, mut nms) =
            (PropertyTexts::default(), PropertyTexts::default(), PropertyTexts::default());
        self.write_preprocess(property, &mut preprocess, into)?;
        if is_secondary {
            let sizes = [property.number("input-object-min-width")?, property.number("input-object-min-height")?];
            let least: Option<u32> = sizes.into_iter().flatten().max();
            least.filter(|size| *size > 0).iter().for_each(|size| preprocess.set("min-object-size", size));
            let interval = number("secondary-reinfer-interval")?;
            interval.iter().for_each(|interval| preprocess.set("reclassify-interval", interval));
        }
        if let Some(interval) = number("interval")?.filter(|interval| *interval > 0) {
            infer.set("interval", interval.saturating_add(1)); // here each n-th frame, there so many are left out
        }
        self.write_infer(property, &mut infer, into)?;
        // A value that is none is an error, not an unknown number of classes.
        property.number::<u32>("num-detected-classes")?;
        let labels = text("labelfile-path").map(|labels| self.path(labels));
        let count = || {
            let told = property.number::<u32>("num-detected-classes").ok().flatten();
            told.or_else(|| classes::count(labels.as_deref(), onnx.map(|file| self.path(file)).as_deref()))
        };
        let mut classes = ClassSettings::read(self.file, self.groups, property, into)?;
        if self.finds_objects(property, into)? {
            classes = classes.with_defaults();
        } else if is_classifier(property)? {
            classes = classes.of_classifier(property.number("classifier-threshold")?);
        }
        classes.write(count, &mut nms, into);
        table.comment("What nvinfer's file does not say is as nvinfer has it.");
        preprocess.write(&mut table, "preprocess");
        infer.write(&mut table, "infer");
        nms.write(&mut table, "nms");
        into.push(table);
        into.note_unused(self.file, property, &REASONS);
        Ok(())
    }

    /// Whether it has boxes: else thresholds of boxes are for nothing.
    fn finds_objects(&self, property: &IniGroup, into: &mut WrittenConfig) -> Result<bool, Failure> {
        let kind = property.number::<u32>("network-type")?.unwrap_or_default();
        let finds = [0, 3].contains(&kind) && property.is_on("is-classifier") != Some(true);
        let mode = property.number::<u32>("cluster-mode")?;
        if finds && mode != Some(2) {
            let what = mode.map_or("cluster-mode (0, as it is not set)".into(), |mode| format!("cluster-mode={mode}"));
            into.note(Differs, self.file, "property", &what, SUPPRESSED);
        }
        Ok(finds)
    }

    fn write_preprocess(
        &self,
        property: &IniGroup,
        preprocess: &mut PropertyTexts,
        into: &mut WrittenConfig,
    ) -> Result<(), Failure> {
        match property.number::<u32>("model-color-format")? {
            Some(0) => preprocess.set("tensor-colors", "rgb"),
            Some(1) => preprocess.set("tensor-colors", "bgr"),
            Some(2) => preprocess.set("tensor-colors", "gray"),
            Some(other) => {
                into.note(Differs, self.file, "property", &format!("model-color-format={other}"), "is not known here")
            }
            None => {}
        }
        match property.number::<u32>("network-input-order")? {
            Some(0) => preprocess.set("tensor-order", "nchw"),
            Some(1) => preprocess.set("tensor-order", "nhwc"),
            Some(other) => {
                into.note(Differs, self.file, "property", &format!("network-input-order={other}"), "is not known here")
            }
            None => {}
        }
        let factor = property.number::<f64>("net-scale-factor")?.unwrap_or(1.0);
        preprocess.set("scale", factor);
        if let Some(offsets) = property.list("offsets") {
            // There the factor is of the difference.
            let scaled = |text: &&str| text.parse::<f64>().ok().map(|offset| (offset * factor).to_string());
            let means: Option<Vec<_>> = offsets.iter().map(scaled).collect();
            let means = means.ok_or_else(|| format!("{}: offsets are numbers with ; between them", self.file))?;
            preprocess.set("mean", means.join(","));
        }
        let is_symmetric = property.is_on("symmetric-padding").unwrap_or_default();
        if property.is_on("maintain-aspect-ratio") == Some(true) {
            preprocess.set("resize", if is_symmetric { "letterbox" } else { "letterbox-top-left" });
            preprocess.set("pad-value", 0); // of models of YOLO, 114 is nearer to their training
        } else {
            preprocess.set("resize", "stretch");
        }
        Ok(())
    }

    fn write_infer(
        &self,
        property: &IniGroup,
        infer: &mut PropertyTexts,
        into: &mut WrittenConfig,
    ) -> Result<(), Failure> {
        match property.number::<u32>("network-mode")? {
            Some(0) => infer.set("precision", "fp32"),
            Some(1) => {
                infer.set("precision", "int8");
                if property.text("onnx-file").is_some() && property.text("int8-calib-file").is_none() {
                    into.note(Differs, self.file, "property", "network-mode=1", UNCALIBRATED);
                }
            }
            Some(2) => infer.set("precision", "fp16"),
            other => {
                let unset = || "network-mode (0, as it is not set)".into();
                let what = other.map_or_else(unset, |mode| format!("network-mode={mode}"));
                into.note(Differs, self.file, "property", &what, "precision stays auto")
            }
        }
        if let Some(file) = property.text("int8-calib-file") {
            infer.set_text("int8-calibration-cache", &self.path(file));
        }
        property.number::<u32>("workspace-size")?.iter().for_each(|mib| infer.set("workspace-mib", mib));
        let core = property.number::<u32>("use-dla-core")?;
        if property.is_on("enable-dla") == Some(true) {
            infer.set("dla-core", core.unwrap_or_default());
        }
        if let Some(dims) = property.list("infer-dims") {
            match dims[..] {
                [_, height, width] => infer.set("input-size", format!("{width}x{height}")),
                _ => into.note(Differs, self.file, "property", "infer-dims", "it has not three numbers"),
            }
        }
        Ok(())
    }
}
