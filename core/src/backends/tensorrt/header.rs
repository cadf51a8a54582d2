// SPDX-License-Identifier: MPL-2.0
//! The headers of engine files: the version that built them, read before anything is loaded.

use std::ops::Range;

use super::version::{Product, Version};
use crate::error::{Error, ErrorKind, Result};

/// The header of an engine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub product: Product,
    /// The release that built it.
    pub version: Version,
    /// The GPU generations it was built for, like 86 for 8.6. Only RTX has them.
    pub compute_capabilities: Vec<u32>,
    /// It carries the lean runtime of the release that built it, which runs on the host: built version-compatible.
    pub carries_runtime: bool,
    /// What Ultralytics writes before the plan: JSON with class names, stride, task.
    pub metadata: Option<String>,
    /// Where the plan itself lies in the file.
    pub plan: Range<usize>,
}

/// Bytes of a plan's header that are always there: the tag at 0, the size of the whole at 16 (u64), the version at 24 (four
/// u8), and for RTX the GPU generations at 32 (u32, a bit for each).
const SIZE: usize = 36;

/// Tags of a TensorRT plan's parts, whose number is the u32 at offset 8: 24 bytes for each, tag first.
fn sections(plan: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = u32::from_le_bytes([8, 9, 10, 11].map(|i| plan[i]));
    plan[32..].chunks_exact(24).take(count as usize).map(|section| &section[..4])
}

/// RTX's GPU generations, by bit.
const GENERATIONS: [u32; 6] = [75, 80, 86, 89, 120, 121];

impl Header {
    /// # Errors
    /// `Model`, with what the file is instead, or that it is cut short. The caller adds the file's name.
    pub fn read(file: &[u8]) -> Result<Self> {
        let (metadata, start) = match product(file) {
            Some(_) => (None, 0),
            None => match prefix(file) {
                Some((metadata, start)) => (Some(metadata), start),
                None => return Err(no_engine(file)),
            },
        };
        let plan = &file[start..];
        let Some(product) = product(plan) else { return Err(no_engine(plan)) };
        let whole =
            plan.get(16..24).map_or(SIZE as u64, |size| u64::from_le_bytes(size.try_into().expect("eight bytes")));
        let again = "Copy the file again, or build it again";
        if whole < SIZE as u64 {
            return Err(
                Error::new(ErrorKind::Model, format!("The header of the {product} engine is damaged")).remedy(again)
            );
        }
        if (plan.len() as u64) < whole {
            return Err(Error::new(ErrorKind::Model, format!("The {product} engine is cut short"))
                .cause(format!("there are {} of {whole} bytes", plan.len()))
                .remedy(again));
        }
        // TensorRT accepts no byte more.
        let plan = &plan[..whole as usize];
        let [major, minor, patch, build] = [24, 25, 26, 27].map(|i| u32::from(plan[i]));
        let capabilities = u32::from_le_bytes([32, 33, 34, 35].map(|i| plan[i]));
        let of_bit = |(bit, &capability): (usize, &u32)| (capabilities >> bit & 1 == 1).then_some(capability);
        Ok(Header {
            product,
            version: Version { major, minor, patch, build: Some(build) },
            compute_capabilities: match product {
                Product::TensorRt => Vec::new(),
                Product::Rtx => GENERATIONS.iter().enumerate().filter_map(of_bit).collect(),
            },
            carries_runtime: product == Product::TensorRt && sections(plan).any(|tag| tag == b"NAEL"),
            metadata,
            plan: start..start + plan.len(),
        })
    }

    /// "TensorRT 8.6.0.12"
    pub fn builder(&self) -> String {
        format!("{} {}", self.product, self.version)
    }

    #[cfg(test)]
    pub fn of(product: Product, version: Version) -> Self {
        Header {
            product,
            version,
            compute_capabilities: Vec::new(),
            carries_runtime: false,
            metadata: None,
            plan: 0..0,
        }
    }
}

fn product(plan: &[u8]) -> Option<Product> {
    match plan.get(..4)? {
        b"ftrt" => Some(Product::TensorRt),
        b"vtrt" => Some(Product::Rtx),
        _ => None,
    }
}

/// Ultralytics puts the length of its JSON, the JSON, and then the plan.
fn prefix(file: &[u8]) -> Option<(String, usize)> {
    let length = u32::from_le_bytes(file.get(..4)?.try_into().ok()?) as usize;
    let json = file.get(4..4usize.checked_add(length)?)?;
    let text = std::str::from_utf8(json).ok()?;
    (text.starts_with('{') && text.trim_end().ends_with('}')).then(|| (text.to_string(), 4 + length))
}

fn no_engine(file: &[u8]) -> Error {
    let again = "Copy the file again, or build it again";
    let (is, remedy) = match file {
        [] => ("it is empty".to_string(), again),
        file if file.starts_with(b"version https://git-lfs") => {
            ("it is a Git LFS pointer".into(), "Fetch the file itself: git lfs pull")
        }
        // An ONNX file begins with its version, a small number in field 1.
        [0x08, 1..=32, ..] => ("it looks like an ONNX file".into(), "Name it .onnx"),
        file if file.starts_with(b"PK") => ("it is a ZIP archive or a PyTorch model".into(), "Export it to ONNX"),
        file if file.len() < 4 || file.starts_with(b"ftr") => ("it is cut short".into(), again),
        file => {
            let first: Vec<String> = file.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            (
                format!("it begins with the bytes {}", first.join(" ")),
                "Give an .onnx file, or a plan that TensorRT wrote",
            )
        }
    };
    Error::new(ErrorKind::Model, "This is not a TensorRT engine").cause(is).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tag: &[u8; 4], version: [u8; 4]) -> Vec<u8> {
        let mut plan = vec![0; 80];
        plan[16] = 80;
        plan[..4].copy_from_slice(tag);
        plan[24..28].copy_from_slice(&version);
        plan
    }

    #[test]
    fn plans_have_the_version_that_built_them() {
        let header = Header::read(&plan(b"ftrt", [8, 6, 0, 12])).unwrap();
        assert_eq!((header.builder().as_str(), header.plan.clone()), ("TensorRT 8.6.0.12", 0..80));
        let mut longer = plan(b"ftrt", [8, 6, 0, 12]);
        longer.extend(b"what follows");
        assert_eq!(Header::read(&longer).unwrap().plan, 0..80);
        let mut rtx = plan(b"vtrt", [1, 7, 1, 116]);
        rtx[32] = 0b1_0100;
        let header = Header::read(&rtx).unwrap();
        assert!(!header.carries_runtime);
        assert_eq!((header.builder().as_str(), header.compute_capabilities), ("TensorRT-RTX 1.7.1.116", vec![86, 120]));
    }

    /// As TensorRT 8.6.0 writes them.
    #[test]
    fn version_compatible_plans_carry_a_runtime() {
        for (count, tags, carries) in [(1, [b"NGNE", b"ptrt"], false), (2, [b"NAEL", b"NGNE"], true)] {
            let mut plan = plan(b"ftrt", [8, 6, 0, 12]);
            plan[8] = count;
            plan[32..36].copy_from_slice(tags[0]);
            plan[56..60].copy_from_slice(tags[1]);
            assert_eq!(Header::read(&plan).unwrap().carries_runtime, carries);
        }
    }

    #[test]
    fn ultralytics_metadata_comes_first() {
        let json = br#"{"task": "detect", "names": {"0": "a"}}"#;
        let mut file = (json.len() as u32).to_le_bytes().to_vec();
        file.extend(json);
        let start = file.len();
        file.extend(plan(b"ftrt", [10, 13, 3, 9]));
        let header = Header::read(&file).unwrap();
        assert_eq!(header.metadata.as_deref().map(str::as_bytes), Some(&json[..]));
        assert_eq!((header.plan.start, header.version.major), (start, 10));
        // The same cut off within the JSON, at its end, and within the plan.
        for (end, words) in
            [(20, "begins with the bytes"), (start, "it is empty"), (start + 30, "there are 30 of 80 bytes")]
        {
            let error = Header::read(&file[..end]).unwrap_err();
            assert!(error.message().contains(words), "{end}: {error}");
        }
    }

    #[test]
    fn other_files_are_named() {
        let cases = [
            (&b""[..], "it is empty"),
            (b"ft", "cut short"),
            (b"ftrt\0\0\0\0", "there are 8 of 36 bytes"),
            (b"ftrt\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "is damaged"),
            (b"\x08\x0a\x12\x07pytorch", "ONNX"),
            (b"PK\x03\x04rest", "PyTorch"),
            (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
            (b"garbage!!", "67 61 72 62 61 67 65 21"),
            (&[0xff; 64], "ff ff ff ff"),
        ];
        for (file, words) in cases {
            let error = Header::read(file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Model);
            assert!(error.message().contains(words), "{words}: {error}");
        }
    }
}
