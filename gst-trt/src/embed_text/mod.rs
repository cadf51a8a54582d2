// SPDX-License-Identifier: MPL-2.0
//! `gst-trt embed-text`: vectors of words by the text side of CLIP, as a gallery of trtmatch or an array for `input-values`.
//!
//! [`phrases`] are what is looked for. [`vocabulary`] reads the files of a [`tokenizer`], which makes tokens of them, and the
//! [`text_model`] vectors of these. An [`array`] is one of the two files that they are written to.

mod array;
mod phrases;
mod text_model;
mod tokenizer;
mod vocabulary;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gsttrt_core::backends::BackendPreference;
use gsttrt_core::backends::effect::without_effect;
use gsttrt_core::gallery::{GalleryEntry, file};
use gsttrt_core::vector::normalise;

use self::phrases::{PLACE, Phrase};
use self::text_model::{TextModel, TextNet};
use self::tokenizer::Tokenizer;
use crate::failure::{Failure, Status};
use crate::model_options::{HeededOptions, backend_words, backends, check_file};
use crate::progress::Display;
use crate::signals::Signals;
use crate::terminal::{print, print_error};

#[derive(clap::Args)]
#[command(after_help = "\
trtmatch names what is most like a phrase, by a model of pictures that was trained together with this model of texts: CLIP's image \
side. The names of a gallery that are given again get new vectors, and its other names stay.\n\n\
Templates make names more certain, such as --template \"a photo of a {}\" --template \"a blurry photo of a {}\". The vectors of \
all of them are averaged.")]
pub struct EmbedTextArgs {
    /// The text side of CLIP in ONNX, with its tokenizer.json in the same folder
    model: PathBuf,
    /// What to look for, such as "a red car", or car="a red car" to give it another name
    #[arg(required = true, value_name = "PHRASE")]
    phrases: Vec<String>,
    /// A gallery of trtmatch (.jsonl), made where there is none, or an array for input-values (.npy) with its names in a .txt file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The tokenizer: tokenizer.json, or vocab.json with merges.txt [default: next to the model]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// A sentence that each phrase is put in, in the place of {}; of several the vectors are averaged [default: the phrase alone]
    #[arg(long = "template", value_name = "TEXT")]
    templates: Vec<String>,
    /// Fill an array up to so many phrases, for detectors that take no other number
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: Option<u32>,
    /// What runs the model, on the CPU [default: cpu, the best that is here]
    #[arg(long, value_name = "NAME", value_parser = backends())]
    backend: Option<String>,
    /// Further properties of trtinfer, such as "threads=2"
    #[arg(long, value_name = "PROPERTIES", default_value = "", hide_default_value = true)]
    infer: String,
}

/// Pictures, their batches and engines are of no concern to it.
const HEEDED: HeededOptions = HeededOptions {
    subcommand: "embed-text",
    which: "runs a model of texts on the CPU",
    heeds: |name| {
        [
            "backend",
            "threads",
            "ort-library",
            "execution-providers",
            "openvino-library",
            "openvino-device",
            "engine-cache",
            "precision",
        ]
        .contains(&name)
    },
};

/// What arrays are filled up with, as YOLO-World's own demo does, and its name.
const BLANK: &str = " ";
const UNNAMED: &str = "-";

pub fn run(args: &EmbedTextArgs) -> Result<Status, Failure> {
    check_file(&args.model)?;
    let is_array = is_array(&args.output)?;
    let wanted = wanted(args, is_array)?;
    let templates = phrases::templates(&args.templates)?;
    // Before the work, not after it.
    let known = if is_array { None } else { known_length(&args.output, &wanted)? };
    let path = match &args.tokenizer {
        Some(path) => path.clone(),
        None => vocabulary::find(&args.model)?,
    };
    let tokenizer = vocabulary::read(&path)?;
    let signals = Signals::listen_for_engines()?;
    let model = open(args, &tokenizer)?;
    check_length(&args.output, known, model.vector_length())?;
    let texts = tokens(&tokenizer, &wanted, &templates, &model, &path)?;
    let display = Display::default();
    let mut task = display.task("loading");
    let (mut net, warning) = model.load(texts.len(), tokenizer.padding)?;
    if let Some(warning) = warning {
        task.line(&format!("Warning: {}", warning.message()));
    }
    drop(task);
    task = display.task("embedding");
    let mut vectors = Vec::with_capacity(texts.len());
    while vectors.len() < texts.len() {
        if let Some(signal) = signals.signal() {
            drop(task);
            print_error("It was stopped; nothing is written.");
            return Ok(Status::Interrupted(signal));
        }
        let done = vectors.len();
        task.show(Some(done as f64 / texts.len() as f64), || format!("{done} texts"));
        let some: Vec<&[u32]> = texts[done..].iter().take(net.rows()).map(Vec::as_slice).collect();
        vectors.extend(net.vectors(&some)?);
        // The file may have left it open.
        check_length(&args.output, known, vectors.iter().flatten().next().map(Vec::len))?;
    }
    drop(task);
    warn_of_pooled(&net, args);
    let entries = entries(&wanted, &templates, &vectors, &args.model)?;
    match is_array {
        true => save_array(args, &wanted, &entries)?,
        false => save_gallery(args, &entries)?,
    }
    Ok(Status::Done)
}

/// Whether the vectors go into an array, and not into a gallery.
fn is_array(output: &Path) -> Result<bool, Failure> {
    match output.extension().and_then(|ending| ending.to_str()).unwrap_or_default() {
        "npy" => Ok(true),
        "jsonl" => Ok(false),
        _ => {
            let shown = output.display();
            let remedy = "Give a name that ends in .jsonl for a gallery, or in .npy for an array";
            Err(format!("Cannot write {shown}: what it is to be is known by its ending. {remedy}.").into())
        }
    }
}

/// Numbers of the vectors that stay in the gallery, if some do: those of names that are given again go.
fn known_length(gallery: &Path, wanted: &[Phrase]) -> Result<Option<usize>, Failure> {
    let given: HashSet<&str> = wanted.iter().map(|phrase| phrase.name.as_str()).collect();
    Ok(file::check_change(gallery, |name| !given.contains(name))?)
}

/// Refuses vectors of another length than those that stay.
fn check_length(gallery: &Path, known: Option<usize>, length: Option<usize>) -> Result<(), Failure> {
    match (known, length) {
        (Some(known), Some(length)) if known != length => Err(file::of_another_model(gallery, known, length).into()),
        _ => Ok(()),
    }
}

/// The phrases, with those that fill an array up.
fn wanted(args: &EmbedTextArgs, is_array: bool) -> Result<Vec<Phrase>, Failure> {
    let mut wanted = phrases::phrases(&args.phrases)?;
    // What a gallery cannot have as a name is told before the work.
    wanted.iter().try_for_each(|phrase| GalleryEntry::new(&phrase.name, &[1.0]).map(drop))?;
    if let Some(count) = args.count {
        let (given, count) = (wanted.len(), count as usize);
        if !is_array {
            return Err("--count is for arrays, whose names end in .npy. Leave it out for a gallery.".into());
        }
        if given > count {
            return Err(
                format!("{given} phrases are given, and --count is {count}. Give fewer, or a larger count.").into()
            );
        }
        wanted.resize(count, Phrase { name: UNNAMED.into(), text: BLANK.into() });
    }
    Ok(wanted)
}

fn open(args: &EmbedTextArgs, tokenizer: &Tokenizer) -> Result<TextModel, Failure> {
    let options = HEEDED.read(&[], &args.infer)?;
    let word = backend_words().find(|word| args.backend.as_deref() == Some(word));
    let backend = word.map_or(options.backend, BackendPreference::from);
    let model = TextModel::open(&args.model, backend, options.options.clone(), tokenizer.context)?;
    if let Some(warning) = without_effect(&options.options, &[], model.backend())? {
        print_error(&format!("Warning: {}", warning.message()));
    }
    Ok(model)
}

/// The tokens of each phrase in each of the sentences.
fn tokens(
    tokenizer: &Tokenizer,
    wanted: &[Phrase],
    templates: &[String],
    model: &TextModel,
    path: &Path,
) -> Result<Vec<Vec<u32>>, Failure> {
    // Not every backend refuses numbers beyond the table: one may read what lies behind it.
    let check = |token: u32, of: &str| -> Result<(), Failure> {
        let Some(known) = model.vocabulary().filter(|&known| u64::from(token) >= known) else { return Ok(()) };
        let (path, model) = (path.display(), model.name());
        let what = format!("The tokenizer {path} makes the token {token} {of}, and {model} knows {known}");
        Err(format!("{what}. Give the tokenizer of this model, by --tokenizer.").into())
    };
    let of_text = |text: String| -> Result<Vec<u32>, Failure> {
        let tokens = tokenizer.encode(&text).map_err(|why| format!("Cannot use the phrase “{text}”: {why}."))?;
        let (count, most) = (tokens.len(), model.length());
        if count > most {
            let what = format!("“{text}” has {count} tokens, and the model takes {most}, with those of start and end");
            return Err(format!("{what}. Use fewer words: a text that is cut off says something else.").into());
        }
        if let Some(&token) = tokens.iter().max() {
            check(token, &format!("of “{text}”"))?;
        }
        Ok(tokens)
    };
    let texts = wanted.iter().flat_map(|Phrase { text, .. }| {
        let sentence = move |template: &String| phrases::sentence(if text == BLANK { PLACE } else { template }, text);
        templates.iter().map(sentence)
    });
    let tokens = texts.map(of_text).collect::<Result<_, _>>()?;
    check(tokenizer.padding, "to fill texts up")?;
    Ok(tokens)
}

fn warn_of_pooled(net: &TextNet, args: &EmbedTextArgs) {
    if net.is_pooled() {
        let model = args.model.display();
        print_error(&format!(
            "Warning: {model} gives pooler_output alone, which CLIP projects before it compares it with pictures. If nothing is \
             recognised, export the output text_embeds."
        ));
    }
}

/// The vector of each phrase: the mean of those of its sentences.
fn entries(
    wanted: &[Phrase],
    templates: &[String],
    vectors: &[Option<Vec<f32>>],
    model: &Path,
) -> Result<Vec<GalleryEntry>, Failure> {
    let entry = |(phrase, vectors): (&Phrase, &[Option<Vec<f32>>])| -> Result<GalleryEntry, Failure> {
        let of_sentences: Option<Vec<&[f32]>> = vectors.iter().map(|vector| vector.as_deref()).collect();
        let Some(vector) = of_sentences.and_then(|vectors| mean(&vectors)) else {
            let (model, text) = (model.display(), &phrase.text);
            let why = "some of its numbers are infinite or NaN, or all are 0";
            return Err(
                format!("{model} gives no vector of “{text}”: {why}. Export the model in 32-bit floats.").into()
            );
        };
        Ok(GalleryEntry::new(&phrase.name, &vector)?)
    };
    wanted.iter().zip(vectors.chunks(templates.len())).map(entry).collect()
}

/// The mean of vectors of the length 1, of that length again; `None` where they are opposites.
fn mean(vectors: &[&[f32]]) -> Option<Vec<f32>> {
    let (first, others) = vectors.split_first()?;
    let mut sum = first.to_vec();
    for vector in others {
        sum.iter_mut().zip(*vector).for_each(|(sum, number)| *sum += number);
    }
    // One has its length already.
    (others.is_empty() || normalise(&mut sum)).then_some(sum)
}

fn save_gallery(args: &EmbedTextArgs, entries: &[GalleryEntry]) -> Result<(), Failure> {
    let is_other = |name: &str| entries.iter().all(|entry| entry.name != name);
    let all = file::change_and_keep(&args.output, is_other, entries)?.gallery;
    let (count, dims, gallery) = (counted(entries.len(), "vector"), all.dims(), args.output.display());
    let (vectors, names) = (counted(all.len(), "vector"), counted(all.names().len(), "name"));
    print(&format!("{count} of {dims} numbers written to {gallery}, which has {vectors} of {names}"))
}

fn save_array(args: &EmbedTextArgs, wanted: &[Phrase], entries: &[GalleryEntry]) -> Result<(), Failure> {
    array::write(&args.output, entries)?;
    let blank = wanted.iter().filter(|phrase| phrase.text == BLANK).count();
    let (count, dims) =
        (counted(entries.len() - blank, "vector"), entries.first().map_or(0, |entry| entry.vector.len()));
    let filled = if blank > 0 { format!(", filled up to {},", entries.len()) } else { String::new() };
    let (array, names) = (args.output.display(), array::names_of(&args.output));
    print(&format!("{count} of {dims} numbers{filled} written to {array}, and their names to {}", names.display()))
}

fn counted(count: usize, of: &str) -> String {
    if count == 1 { format!("1 {of}") } else { format!("{count} {of}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_vectors_has_the_length_1() {
        assert_eq!(mean(&[&[0.6, 0.8]]), Some(vec![0.6, 0.8]));
        assert_eq!(mean(&[&[1.0, 0.0], &[0.0, 1.0]]), Some(vec![0.5f32.sqrt(); 2]));
        assert_eq!(mean(&[&[1.0, 0.0], &[1.0, 0.0], &[-1.0, 0.0]]), Some(vec![1.0, 0.0]));
        assert_eq!(mean(&[&[1.0, 0.0], &[-1.0, 0.0]]), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn a_file_is_known_by_its_ending() {
        assert!(is_array(Path::new("a.jsonl/words.npy")).unwrap());
        assert!(!is_array(Path::new("words.jsonl")).unwrap());
        for other in ["words", "words.npz", "words.txt"] {
            let said = is_array(Path::new(other)).unwrap_err().to_string();
            assert!(said.contains("ends in .jsonl for a gallery, or in .npy for an array"), "{said}");
        }
    }
}
