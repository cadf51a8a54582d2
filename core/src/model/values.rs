// SPDX-License-Identifier: MPL-2.0
//! What goes into a model besides the picture, from files of the user: for detectors that look for words, the vectors that a text
//! model makes of them.
//!
//! The files are NumPy's (`numpy.save`): see `npy`.

use std::path::{Path, PathBuf};

use half::f16;

use super::labels::read_labels;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::memory::Pool;
use crate::npy::NpyArray;
use crate::tensor::{DType, Dims, Tensor, TensorDesc};
use crate::words::nearest;

/// Bytes of a file: 512 numbers for each of 10,000 words take 20 MiB.
const MAX_FILE: u64 = 256 << 20;

/// Values for inputs of a model, each from a file.
#[derive(Debug, Default)]
pub struct InputValues {
    /// The option that they are from.
    text: String,
    values: Vec<InputValue>,
    /// Names of classes that come with them; empty where there are none.
    labels: Vec<String>,
}

/// The value of one input.
#[derive(Debug)]
struct InputValue {
    path: PathBuf,
    /// It has the name of the input.
    tensor: Tensor,
}

impl InputValues {
    /// Reads the files that a text like `txt_feats=words.npy` names, and the names of classes next to the first one that has some.
    /// Behind a backslash a comma, an equals sign and a backslash are characters of a name.
    ///
    /// # Errors
    /// `NotFound` and `Read`, where a file is not there or cannot be read; `Settings`, where it is not what it should be.
    pub fn read(text: &str) -> Result<Self> {
        let (mut values, mut labels) = (Vec::<InputValue>::new(), Vec::new());
        for entry in entries(text) {
            let (input, path) = input_and_path(entry)?;
            if values.iter().any(|value| value.input() == input) {
                let what = format!("input-values has two files for the input {input}");
                return Err(Error::new(ErrorKind::Settings, what).remedy("Give one file for each input"));
            }
            let tensor = read_array(&input, path.as_ref())?;
            let value = InputValue { path: path.into(), tensor };
            if labels.is_empty() {
                labels = value.labels()?;
            }
            values.push(value);
        }
        Ok(InputValues { text: text.into(), values, labels })
    }

    /// The option that they are from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Of what size they are, behind that of the picture: ` with tpe f32 1x80x512`.
    pub(crate) fn shapes(&self) -> String {
        self.values.iter().map(|value| format!(" with {}", value.tensor.desc())).collect()
    }

    /// Names of classes that come with them; empty where there are none.
    pub(super) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Checks that a model has the inputs, of which that one takes the picture.
    ///
    /// # Errors
    /// `Settings`, where it does not.
    pub(super) fn check(&self, inputs: &[TensorDesc], image: usize) -> Result<()> {
        let others = || inputs.iter().enumerate().filter(move |(at, _)| *at != image).map(|(_, input)| &*input.name);
        for input in self.values.iter().map(InputValue::input) {
            if others().any(|other| other == input) {
                continue;
            }
            let names: Vec<&str> = others().collect();
            let what = if inputs[image].name == *input {
                format!("input-values has a file for {input}, which is the input of the picture")
            } else {
                let near = nearest(input, &names).map_or(String::new(), |near| format!("; did you mean “{near}”?"));
                format!("input-values has a file for {input}, and it has no such input{near}")
            };
            return Err(Error::new(ErrorKind::Settings, what).remedy(match &names[..] {
                [] => "The picture is its only input: leave input-values unset".into(),
                names => format!("Name one of its inputs in input-values: {}", names.join(", ")),
            }));
        }
        Ok(())
    }

    /// How many words there were in the former values and are in these, where that is another number.
    #[doc(hidden)]
    pub fn other_count(&self, former: &InputValues) -> Option<[usize; 2]> {
        let counts = |value: &InputValue| {
            let before = former.values.iter().find(|other| other.input() == value.input())?;
            Some([before.words()?, value.words()?])
        };
        self.values.iter().filter_map(counts).find(|[before, now]| before != now)
    }

    /// What goes into an input, where there is a file for it. `pictures` are those of a batch, if the input has a row for each.
    ///
    /// # Errors
    /// `Settings`, where it does not fit the input.
    pub(super) fn tensor(&self, input: &TensorDesc, pictures: Option<usize>) -> Result<Option<Tensor>> {
        let value = self.values.iter().find(|value| value.input() == input.name);
        value.map(|value| value.fitted(input, pictures)).transpose()
    }
}

/// The text before and behind the first such separator. One behind a backslash is none.
fn split_once(text: &str, separator: char) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let is_separator = |(_, c): &(usize, char)| {
        let is_plain = !is_escaped;
        is_escaped = is_plain && *c == '\\';
        is_plain && *c == separator
    };
    let (at, _) = text.char_indices().find(is_separator)?;
    Some((&text[..at], &text[at + separator.len_utf8()..]))
}

/// Each character behind a backslash is itself.
fn unescaped(text: &str) -> String {
    let (mut chars, mut plain) = (text.chars(), String::new());
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    plain
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    let next = move || {
        let text = rest?;
        let (entry, behind) = split_once(text, ',').map_or((text, None), |(entry, behind)| (entry, Some(behind)));
        rest = behind;
        Some(entry.trim())
    };
    std::iter::from_fn(next).filter(|entry| !entry.is_empty())
}

/// An entry like `txt_feats=words.npy`.
fn input_and_path(entry: &str) -> Result<(String, String)> {
    let parts = split_once(entry, '=').map(|(input, path)| (unescaped(input.trim()), unescaped(path.trim())));
    parts.filter(|(input, path)| !input.is_empty() && !path.is_empty()).ok_or_else(|| {
        Error::new(ErrorKind::Settings, format!("input-values: “{entry}” cannot be read"))
            .remedy("Write input=file, like txt_feats=words.npy, several with commas between them")
    })
}

impl InputValue {
    /// The name of the input.
    fn input(&self) -> &str {
        &self.tensor.desc().name
    }

    /// How many words it has, where it is a list of vectors, or one for each picture of a batch.
    fn words(&self) -> Option<usize> {
        match self.tensor.desc().dims[..] {
            [words, _] | [_, words, _] => usize::try_from(words).ok(),
            _ => None,
        }
    }

    /// The names in the text file next to it, one for each word.
    fn labels(&self) -> Result<Vec<String>> {
        let files = ["txt", "names"].map(|extension| self.path.with_extension(extension));
        let file = files.into_iter().find(|file| file.exists());
        let Some((file, words)) = file.zip(self.words()) else { return Ok(Vec::new()) };
        let one_each = "Write the name of one word of the array in each line, or give the file another name";
        let labels = read_labels(&file).map_err(|error| error.remedy(one_each))?;
        if labels.len() != words {
            let (names, array) = (file.display(), self.path.display());
            let what = format!("{names} has {} names, and {array} is for {words} words", labels.len());
            return Err(Error::new(ErrorKind::Settings, what).remedy(one_each));
        }
        Ok(labels)
    }

    /// For an input that has a row for each of so many pictures, if some are given. What is there once is for all of them.
    fn fitted(&self, input: &TensorDesc, pictures: Option<usize>) -> Result<Tensor> {
        let mut desc = self.tensor.desc().clone();
        if desc.dims.len() + 1 == input.dims.len() {
            desc.dims.0.insert(0, 1);
        }
        let is_open = input.dims.first() == Some(&Dims::DYNAMIC);
        let is_for_all = desc.dims.first() == Some(&1);
        let copies = match (pictures, input.dims.first()) {
            (Some(pictures), Some(&rows)) if is_for_all => usize::try_from(rows).unwrap_or(pictures),
            _ => 1,
        };
        if copies > 1 {
            desc.dims.0[0] = copies as i64;
        }
        // A batch may have fewer pictures than another, so values of their own would be those of other pictures.
        let has_place = is_for_all || !is_open || pictures.is_none();
        if desc.dtype != input.dtype || !desc.dims.fits(&input.dims) || !has_place {
            return Err(self.misfit(input, pictures.is_some()));
        }
        let memory = self.tensor.host().expect("it was read into the host's memory");
        let bytes = memory.bytes();
        if copies == 1 {
            return Ok(Tensor::on_host(desc, memory.part(0, bytes.len())));
        }
        if desc.bytes().is_none() {
            let what = format!("its input {input} is larger than any memory");
            return Err(Error::new(ErrorKind::Model, what)
                .remedy("Export the model for batches of pictures, or with a dynamic one"));
        }
        Tensor::fill(&Pool::default(), desc, |all| {
            all.chunks_exact_mut(bytes.len()).for_each(|copy| copy.copy_from_slice(bytes));
            Ok(())
        })
    }

    fn misfit(&self, input: &TensorDesc, has_rows: bool) -> Error {
        let TensorDesc { dtype, dims, .. } = self.tensor.desc();
        let mut wanted = input.dims.clone();
        if has_rows {
            wanted.0[0] = 1;
        }
        let any = if wanted.is_static() { "" } else { ", where ? is any number" };
        Error::new(ErrorKind::Settings, format!("{} does not fit its input {input}", self.path.display()))
            .cause(format!("it is {dtype} {dims}"))
            .remedy(format!("Save an array of {} {wanted}{any}", numpy_name(input.dtype)))
    }
}

/// A type as NumPy calls it.
fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::Bool => "bool",
    }
}

/// The array in a file, as a tensor for that input.
fn read_array(input: &str, path: &Path) -> Result<Tensor> {
    const SAVE: &str = "Save one array of float32, float16, int32, int64, uint8, int8 or bool, with an element or more: \
                        numpy.save(file, numpy.ascontiguousarray(array, \"float32\"))";
    const NO_NUMBERS: &str = "Find out what makes them, such as a vector of zeros divided by its length";
    let file = files::read_regular(path, MAX_FILE).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("There is no file {} for the input {input}", path.display()))
                .remedy("Check the path given in input-values; a comma in it is written \\,")
        }
        _ => Error::new(ErrorKind::Read, format!("Cannot read the values in {}", path.display()))
            .cause(error)
            .remedy("Set input-values to a file of numpy.save, which this user may read"),
    })?;
    let unusable = |why: &str, remedy: &str| {
        let what = format!("Cannot use the values in {}", path.display());
        Error::new(ErrorKind::Settings, what).cause(why).remedy(remedy)
    };
    let (desc, values) = array(input, &file).map_err(|why| unusable(&why, SAVE))?;
    if !are_finite(desc.dtype, values) {
        return Err(unusable("some of its numbers are infinite or NaN", NO_NUMBERS));
    }
    Tensor::fill(&Pool::default(), desc, |bytes| {
        bytes.copy_from_slice(values);
        Ok(())
    })
}

/// The array in the bytes of a file, or what is wrong with them.
fn array<'a>(input: &str, file: &'a [u8]) -> std::result::Result<(TensorDesc, &'a [u8]), String> {
    let array = NpyArray::parse(file)?;
    let dtype = match array.descr() {
        Some("<f4") => DType::F32,
        Some("<f2") => DType::F16,
        Some("<i4") => DType::I32,
        Some("<i8") => DType::I64,
        Some("|u1") => DType::U8,
        Some("|i1") => DType::I8,
        Some("|b1") => DType::Bool,
        _ => return Err(array.wrong_type()),
    };
    let dims = array.dims()?;
    if dims.contains(&0) {
        return Err(array.wrong_shape());
    }
    let desc = TensorDesc::new(input, dtype, &dims);
    if desc.bytes() != Some(array.values.len()) {
        return Err(format!("its header says {dtype} {}, and {} bytes follow", desc.dims, array.values.len()));
    }
    // Another byte is no bool for what runs the model.
    if dtype == DType::Bool && array.values.iter().any(|&byte| byte > 1) {
        return Err("some of its elements are neither True nor False".into());
    }
    Ok((desc, array.values))
}

fn are_finite(dtype: DType, values: &[u8]) -> bool {
    match dtype {
        DType::F32 => values.as_chunks::<4>().0.iter().all(|&bytes| f32::from_le_bytes(bytes).is_finite()),
        DType::F16 => values.as_chunks::<2>().0.iter().all(|&bytes| f16::from_le_bytes(bytes).is_finite()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::npy::{npy, save_floats};
    use crate::test::scratch;

    fn of(input: &str, dims: &[i64]) -> TensorDesc {
        TensorDesc::new(input, DType::F32, dims)
    }

    /// A table of so many words, with two numbers each.
    fn words(test: &str, shape: &[usize]) -> InputValues {
        let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|number| number as f32).collect();
        let file = save_floats(&scratch(test).join("words.npy"), shape, &numbers);
        InputValues::read(&format!("tpe={file}")).unwrap()
    }

    fn fits(values: &InputValues, dims: &[i64], rows: usize) -> std::result::Result<(String, Vec<f32>), String> {
        let pictures = (dims.len() > 2).then_some(rows);
        let tensor = values.tensor(&of("tpe", dims), pictures).map_err(|error| error.message())?.unwrap();
        Ok((tensor.desc().to_string(), tensor.as_slice::<f32>().unwrap().to_vec()))
    }

    #[test]
    fn arrays_are_read_in_each_type_and_version() {
        let of_type = |descr: &str, values: &[u8]| {
            let file = npy(descr, "(2,)", values);
            let (desc, read) = array("a", &file).unwrap();
            assert_eq!(read, values);
            desc.to_string()
        };
        assert_eq!(of_type("<f4", &[0; 8]), "a f32 2");
        assert_eq!(of_type("<f2", &[0; 4]), "a f16 2");
        assert_eq!(of_type("<i4", &[255; 8]), "a i32 2");
        assert_eq!(of_type("<i8", &[255; 16]), "a i64 2");
        assert_eq!(of_type("|u1", &[255; 2]), "a u8 2");
        assert_eq!(of_type("|i1", &[255; 2]), "a i8 2");
        assert_eq!(of_type("|b1", &[0, 1]), "a bool 2");
        let first = npy("<f4", "(1, 2)", &[0; 8]);
        for version in [2, 3] {
            let mut file = [&first[..6], &[version, 0], &first[8..10], &[0, 0], &first[10..]].concat();
            assert_eq!(array("a", &file).unwrap().0.to_string(), "a f32 1x2");
            file[6] = 4;
            assert!(array("a", &file).unwrap_err().contains("version 4"));
        }
        assert_eq!(array("a", &npy("<f4", "()", &[0; 4])).unwrap().0.to_string(), "a f32 scalar");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let whole = npy("<f4", "(1, 2)", &[0; 8]);
        for end in 0..whole.len() {
            assert!(array("a", &whole[..end]).is_err(), "{end}");
        }
        let header = |text: &str| {
            let length = u16::try_from(text.len()).unwrap().to_le_bytes();
            [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes()].concat()
        };
        let huge = [&b"\x93NUMPY\x02\x00"[..], &u32::MAX.to_le_bytes(), &[b' '; 64]].concat();
        for (file, says) in [
            (b"".to_vec(), "no file of numpy.save"),
            (b"PK\x03\x04".to_vec(), "archive"),
            (huge, "its header has 4294967295 bytes"),
            (header("{"), "its header cannot be read"),
            (header(&"[".repeat(9000)), "its header cannot be read"),
            (header("{}"), "of the type null"),
            (header("[1, 2]"), "of the type null"),
            (npy(">f4", "(1, 2)", &[0; 8]), "of the type \">f4\""),
            (npy("<f8", "(1,)", &[0; 8]), "of the type \"<f8\""),
            (npy("|O", "(1,)", &[0; 8]), "of the type \"|O\""),
            (npy("|b1", "(2,)", &[1, 2]), "neither True nor False"),
            (header("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}"), "the order of C"),
            (header("{'descr': '<f4', 'shape': (1,)}"), "the order of C"),
            (header("{'descr': '<f4', 'fortran_order': False}"), "its shape is null"),
            (npy("<f4", "(0, 2)", &[]), "its shape is [0,2]"),
            (npy("<f4", "(-1, 2)", &[0; 8]), "its shape is [-1,2]"),
            (npy("<f4", "(1.5,)", &[0; 4]), "its shape is [1.5]"),
            (npy("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", &[0; 4]), "its shape is"),
            (npy("<f4", "(1, 3)", &[0; 8]), "f32 1x3, and 8 bytes follow"),
            (npy("<f4", "(1, 1)", &[0; 8]), "f32 1x1, and 8 bytes follow"),
            (npy("<f4", "(4611686018427387904, 4)", &[0; 8]), "and 8 bytes follow"),
        ] {
            let why = array("a", &file).unwrap_err();
            assert!(why.contains(says), "{why}, not: {says}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let path = scratch("values-finite").join("a.npy");
        let [nan, infinity] = [f32::NAN.to_le_bytes().to_vec(), f16::INFINITY.to_le_bytes().to_vec()];
        for file in [npy("<f4", "(1,)", &nan), npy("<f2", "(1,)", &infinity)] {
            std::fs::write(&path, file).unwrap();
            let error = InputValues::read(&format!("a={}", path.display())).unwrap_err().message();
            assert!(error.contains("infinite or NaN. Find out what makes them"), "{error}");
        }
    }

    #[test]
    fn an_option_names_files_for_inputs() {
        let folder = scratch("values-option");
        let [a, b] = ["a", "b"].map(|name| save_floats(&folder.join(name).with_extension("npy"), &[1], &[1.0]));
        let both = InputValues::read(&format!(" one={a} , two={b},")).unwrap();
        let has = |name: &str| both.tensor(&of(name, &[1]), None).unwrap().is_some();
        assert_eq!([has("one"), has("two"), has("three")], [true, true, false]);
        assert_eq!((both.is_empty(), both.shapes()), (false, " with one f32 1 with two f32 1".into()));
        let none = InputValues::read("").unwrap();
        assert_eq!((none.is_empty(), none.shapes()), (true, String::new()));
        let missing = folder.join("c.npy").display().to_string();
        for (text, says) in [
            (a.clone(), "cannot be read"),
            ("one=".into(), "Write input=file"),
            (format!("={a}"), "Write input=file"),
            (format!("one={a},one={b}"), "two files for the input one"),
            (format!("one={missing}"), "There is no file"),
            (format!("one={}", folder.display()), "it is a folder"),
            ("one=/dev/zero".into(), "it is a device"),
        ] {
            let error = InputValues::read(&text).unwrap_err().message();
            assert!(error.contains(says), "{error}");
        }
        let odd = save_floats(&folder.join("a,b=c\\d.npy"), &[1], &[1.0]);
        let written = odd.replace('\\', r"\\").replace(',', r"\,");
        let values = InputValues::read(&format!(r"in\=put={written},two={a}")).unwrap();
        assert_eq!(values.shapes(), " with in=put f32 1 with two f32 1");
        let error = InputValues::read(&format!("one={odd}")).unwrap_err().message();
        assert!(error.contains(r"a comma in it is written \,"), "{error}");
        std::fs::File::create(&missing).unwrap().set_len(1 << 40).unwrap();
        let error = InputValues::read(&format!("one={missing}")).unwrap_err().message();
        assert!(error.contains("it is larger than 256 MiB"), "{error}");
    }

    #[test]
    fn values_that_are_there_once_are_for_all_pictures() {
        let table = words("values-table", &[2, 2]);
        let (one, two) = (vec![0.0, 1.0, 2.0, 3.0], vec![0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0]);
        for values in [&table, &words("values-batch", &[1, 2, 2])] {
            assert_eq!(fits(values, &[-1, -1, 2], 1), Ok(("tpe f32 1x2x2".into(), one.clone())));
            assert_eq!(fits(values, &[-1, 2, 2], 2), Ok(("tpe f32 2x2x2".into(), two.clone())));
            assert_eq!(fits(values, &[2, 2, 2], 2), Ok(("tpe f32 2x2x2".into(), two.clone())));
            assert_eq!(fits(values, &[1, -1, 2], 4), Ok(("tpe f32 1x2x2".into(), one.clone())), "they share it");
        }
        assert_eq!(fits(&table, &[-1, 2], 4), Ok(("tpe f32 2x2".into(), one)), "a table of words has no batch");
        // One word is no batch of one.
        assert_eq!(fits(&words("values-one", &[1, 2]), &[-1, 2], 4), Ok(("tpe f32 1x2".into(), vec![0.0, 1.0])));
        // Which of them would be whose, where a batch is not full?
        assert!(fits(&words("values-two", &[2, 1, 2]), &[-1, -1, 2], 2).is_err());
        assert!(fits(&words("values-fixed", &[2, 1, 2]), &[2, 1, 2], 2).is_ok());
        assert!(fits(&table, &[1 << 60, 2, 2], 2).unwrap_err().contains("larger than any memory"));
    }

    #[test]
    fn values_of_another_shape_or_type_do_not_fit() {
        let values = words("values-misfit", &[1, 2, 3]);
        let error = fits(&values, &[-1, -1, 512], 1).unwrap_err();
        assert!(error.contains("words.npy does not fit its input tpe f32 ?x?x512: it is f32 1x2x3"), "{error}");
        assert!(error.ends_with("Save an array of float32 1x?x512, where ? is any number."), "{error}");
        assert!(fits(&values, &[1, 3, 3], 1).is_err() && fits(&values, &[3], 1).is_err());
        let error = values.tensor(&TensorDesc::new("tpe", DType::F16, &[1, 2, 3]), Some(1)).unwrap_err().message();
        assert!(error.ends_with("Save an array of float16 1x2x3."), "{error}");
    }

    #[test]
    fn inputs_that_a_model_does_not_have_are_named() {
        let values = words("values-inputs", &[1, 2, 2]);
        let picture = of("images", &[1, 3, 8, 8]);
        let check = |inputs: &[TensorDesc]| values.check(inputs, 0).map_err(|error| error.message());
        assert_eq!(check(&[picture.clone(), of("tpe", &[1, 2, 2])]), Ok(()));
        let error = check(&[picture.clone(), of("tpes", &[1]), of("mask", &[1])]).unwrap_err();
        assert!(error.contains("for tpe, and it has no such input; did you mean “tpes”?"), "{error}");
        assert!(error.ends_with("Name one of its inputs in input-values: tpes, mask."), "{error}");
        let error = check(&[of("tpe", &[1, 3, 8, 8]), of("mask", &[1])]).unwrap_err();
        assert!(error.contains("for tpe, which is the input of the picture"), "{error}");
        assert!(check(&[picture]).unwrap_err().ends_with("leave input-values unset."));
    }

    #[test]
    fn names_next_to_the_file_are_those_of_the_classes() {
        let folder = scratch("values-names");
        let path = folder.join("words.npy");
        let labels = |shape: &[usize], file: &str, text: &str| {
            for name in ["words.txt", "words.names"] {
                let _ = std::fs::remove_file(folder.join(name));
            }
            std::fs::write(folder.join(file), text).unwrap();
            let array = save_floats(&path, shape, &vec![0.5; shape.iter().product()]);
            InputValues::read(&format!("tpe={array}")).map(|values| values.labels).map_err(|error| error.message())
        };
        let names = ["red car", "dog"].map(String::from).to_vec();
        assert_eq!(labels(&[1, 2, 3], "words.txt", "red car\ndog\n"), Ok(names.clone()));
        assert_eq!(labels(&[2, 3], "words.names", "red car\ndog"), Ok(names));
        assert_eq!(labels(&[2, 3], "other.txt", "red car\n"), Ok(vec![]));
        assert_eq!(labels(&[2], "words.txt", "red car\n"), Ok(vec![]), "one vector is no list of words");
        let error = labels(&[1, 3, 2], "words.txt", "red car\ndog\n").unwrap_err();
        assert!(error.contains("words.txt has 2 names, and ") && error.contains("is for 3 words"), "{error}");
        assert!(labels(&[2, 3], "words.txt", "red car\n\ndog\n").unwrap_err().contains("Line 2 of the label file"));
    }
}
