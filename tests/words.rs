// SPDX-License-Identifier: MPL-2.0
//! Words that a reader would have to look up, or to ask about, with the plain word for each. No file has one of them,
//! neither in its text nor as a name.

use std::fs;
use std::path::{Path, PathBuf};

/// Words of texts, in lower case for all cases; also as a part of a name, as in `two_models_beside_each_other`.
const PROSE: [(&str, &str); 8] = [
    ("beside", "in the background”, “next to” or “in addition to"),
    ("lest", "so that … not"),
    ("anew", "again"),
    ("for ever", "forever”, or “never ends"),
    ("of its own accord", "by itself"),
    ("as good as none", "ignored"),
    ("all in all", "in total"),
    ("there is no thread to", "cannot start a thread to"),
];

/// Names that had no meaning outside of this project.
const NAMES: [(&str, &str); 24] = [
    ("told_of_batches", "warned_starved"),
    ("told_of_copies", "warned_copied"),
    ("come_to", "switch_to"),
    ("begin_announcing", "claim_report"),
    ("hand_over", "set_successor"),
    ("become_like", "apply"),
    ("bring_together", "gather"),
    ("shelves", "free_lists"),
    ("complaint", "last_caps_error”, or “error"),
    ("look_at", "file_changed”, or what it does"),
    ("give_up", "cancel”, or “abandon"),
    ("EVERYONE", "FULL_WARP_MASK"),
    ("FULL_MASK", "FULL_WARP_MASK"),
    ("GLANCE", "UNROLL"),
    ("PATIENCE", "TIMEOUT"),
    ("LOOK", "POLL_INTERVAL"),
    ("ModelPlan", "ModelConfig"),
    ("StreamPlan", "SourceConfig"),
    ("RecordPlan", "RecordConfig"),
    ("RegionKind", "Tiles"),
    ("along.cuh", "axis.cuh"),
    ("between.cuh", "interpolate.cuh"),
    ("mixer.cuh", "blend.cuh"),
    ("picture.rs", "path.rs"),
];

/// Each old word of a text: its line, the word, and the plain one.
fn old_words(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let lower = line.to_lowercase();
        let prose = PROSE.iter().filter(|(old, _)| has_word(&lower, old, char::is_alphanumeric));
        let names = NAMES.iter().filter(|(old, _)| has_word(line, old, |c| c.is_alphanumeric() || c == '_'));
        found.extend(prose.chain(names).map(|(old, plain)| (number, *old, *plain)));
    }
    found
}

/// Whether the word is there as a whole, not as a part of a longer one.
fn has_word(line: &str, word: &str, is_part: impl Fn(char) -> bool) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(&is_part) && !line[at + word.len()..].starts_with(&is_part))
}

/// All texts and sources, except for the changelog, which says what there was.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if name.starts_with('.') || ["target", "ptx", "__pycache__", "shared", "CHANGELOG.md"].contains(&&*name) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            collect(&path, found);
        } else if ["rs", "cu", "cuh", "py", "sh", "md"].iter().any(|ending| path.extension() == Some(ending.as_ref())) {
            found.push(path);
        }
    }
}

#[test]
fn no_file_has_an_old_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(root, &mut files);
    files.retain(|file| *file != root.join("tests/words.rs"));
    assert!(files.len() > 500, "{}", files.len());
    let mut found = Vec::new();
    for file in &files {
        let shown = file.strip_prefix(root).unwrap().display();
        let words = old_words(&fs::read_to_string(file).unwrap());
        found.extend(words.iter().map(|(line, old, plain)| format!("{shown}:{line}: “{old}”: say “{plain}”")));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn an_old_word_is_found_as_a_whole() {
    let words = |text| old_words(text).into_iter().map(|(line, old, _)| (line, old)).collect::<Vec<_>>();
    assert_eq!(words("It is loaded\nBeside the pipeline, lest it waits."), [(2, "beside"), (2, "lest")]);
    assert_eq!(words("self.shelves.lock(); // for ever"), [(1, "for ever"), (1, "shelves")]);
    assert_eq!(words("“beside” runs_beside_it"), [(1, "beside")]);
    assert_eq!(words("besides, a latest celestial FOR_EVERYONE; for every frame; come_together"), []);
    assert_eq!(old_words("const PATIENCE: u32")[0].2, "TIMEOUT");
}
