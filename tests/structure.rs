// SPDX-License-Identifier: MPL-2.0
//! The house rules that a reader relies on: arrows between modules point one way, files form no circles, one name is
//! one type.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// Rooms of a crate from the lowest to the highest; each uses only those before it, and itself. Rooms of one line do not
/// use each other.
const FLOORS: [(&str, &[&[&str]]); 2] = [
    (
        "core/src",
        &[
            &["error"],
            &["base64", "json", "words", "options", "files", "counters", "dylib", "redact", "literal", "in_use"],
            &["cuda", "dtype", "vector", "npy"],
            &["memory"],
            &["tensor"],
            &["device", "dlpack"],
            &["image", "onnx"],
            &["heads", "track", "analytics", "gallery", "identity"],
            &["model"],
            &["postprocess"],
            &["backends"],
            &["session"],
        ],
    ),
    (
        "src",
        &[
            &["gst"],
            &[
                "trtpreprocess",
                "trtinfer",
                "trtnms",
                "trttrack",
                "trtmatch",
                "trtanalytics",
                "trtoverlay",
                "trtpublish",
            ],
            &["plugin"],
        ],
    ),
];

/// All crates of the workspace.
const CRATES: [&str; 6] = ["core/src", "publish/src", "src", "capi/src", "gst-trt/src", "streaming/src"];

/// What a file names: the paths that it uses, from the crate's root, the types that it defines, and what of it is public.
struct Parsed {
    paths: BTreeSet<Vec<String>>,
    types: Vec<String>,
    public: Vec<String>,
}

/// The files of a crate, by the path of their module.
type Modules = BTreeMap<String, Parsed>;

/// The files below a folder such as src: `core::tensor` is src/core/tensor.rs or src/core/tensor/mod.rs.
fn modules_of(folder: &str) -> Modules {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                collect(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs") {
                found.push(entry);
            }
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    collect(&source, &mut files);
    let name = |file: &PathBuf| {
        let path = file.strip_prefix(&source).unwrap().with_extension("");
        let parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
        parts.join("::").trim_end_matches("::mod").to_string()
    };
    files
        .iter()
        .filter(|file| !file.iter().any(|part| part == "tests" || part == "tests.rs"))
        .map(|file| {
            let (module, file) = (name(file), syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
            let mut names = Names { module: &module, paths: BTreeSet::new(), types: Vec::new() };
            names.visit_file(&file);
            let mut public = PublicItems::default();
            public.visit_file(&file);
            let Names { paths, types, .. } = names;
            (module, Parsed { paths, types, public: public.names })
        })
        .collect()
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test")
    })
}

/// The paths that a file uses, and the types that it defines.
struct Names<'a> {
    module: &'a str,
    paths: BTreeSet<Vec<String>>,
    types: Vec<String>,
}

impl Names<'_> {
    /// The path from the crate's root; nothing for those of other crates.
    fn enter(&mut self, path: &[String]) {
        let above = |levels: usize| {
            let parts: Vec<&str> = self.module.split("::").collect();
            parts[..parts.len().saturating_sub(levels)].iter().map(|part| part.to_string()).collect::<Vec<_>>()
        };
        let supers = path.iter().take_while(|part| *part == "super").count();
        let absolute = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("self") => [above(0), path[1..].to_vec()].concat(),
            Some("super") => [above(supers), path[supers..].to_vec()].concat(),
            _ => return,
        };
        self.paths.insert(absolute);
    }

    fn enter_tree(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.enter_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.enter(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.enter(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.enter(prefix),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.enter_tree(prefix, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            syn::visit::visit_field(self, field);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.enter_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.enter(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        syn::visit::visit_path(self, path);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        syn::visit::visit_item_trait(self, item);
    }
}

/// Which files of a crate each file uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// A module and those inside it are one thing: they may use each other.
fn arrows(modules: &Modules) -> Arrows {
    let file_of = |path: &[String]| {
        (1..=path.len()).rev().map(|length| path[..length].join("::")).find(|module| modules.contains_key(module))
    };
    let within = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}::")) || b.starts_with(&format!("{a}::"));
    modules
        .iter()
        .filter(|(module, _)| {
            !["lib", "main", "test", "test::fakes", "test::recorded", "frame"].contains(&module.as_str())
        })
        .map(|(module, file)| {
            let uses = file.paths.iter().filter_map(|path| file_of(path));
            (module.clone(), uses.filter(|used| !within(module, used)).collect())
        })
        .collect()
}

/// One test of all that the sources say, because parsing them takes a second of a processor.
#[test]
fn sources_keep_the_rules() {
    let modules = CRATES.map(|folder| (folder, modules_of(folder)));
    let arrows = BTreeMap::from(modules.each_ref().map(|(folder, modules)| (*folder, arrows(modules))));
    let broken = [
        arrows_that_point_up(&arrows),
        files_in_circles(&arrows),
        backends_that_are_named(&arrows["core/src"]),
        names_of_several_types(&modules),
        what_is_public_and_not_used(&modules),
    ]
    .concat();
    assert!(broken.is_empty(), "{broken:#?}");
}

fn arrows_that_point_up(arrows: &BTreeMap<&str, Arrows>) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, floors) in FLOORS {
        let floor = |module: &str| {
            let room = module.split("::").next().unwrap();
            floors.iter().position(|rooms| rooms.contains(&room)).unwrap_or_else(|| panic!("{room} is on no floor"))
        };
        let room = |module: &str| module.split("::").next().unwrap().to_string();
        let up = arrows[folder]
            .iter()
            .flat_map(|(module, uses)| uses.iter().map(move |used| (module, used)))
            .filter(|(module, used)| room(module) != room(used) && floor(module) <= floor(used))
            .map(|(module, used)| format!("{folder}: an arrow points up: {module} uses {used}"));
        found.extend(up);
    }
    found
}

/// The files that use themselves by way of others.
fn circles(arrows: &Arrows) -> Vec<String> {
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            for used in arrows.get(module).into_iter().flatten() {
                if used == to {
                    return true;
                }
                if seen.insert(used.as_str()) {
                    next.push(used);
                }
            }
        }
        false
    };
    arrows.keys().filter(|module| reaches(module, module)).cloned().collect()
}

fn files_in_circles(arrows: &BTreeMap<&str, Arrows>) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, arrows) in arrows {
        // A crate of one file has no arrows; of the others, each has some.
        assert!(arrows.len() < 3 || arrows.values().any(|uses| !uses.is_empty()), "{folder}: no arrow was found");
        found.extend(circles(arrows).iter().map(|file| format!("{folder}: in a circle: {file}")));
    }
    found
}

#[test]
fn a_circle_is_found() {
    let uses = |module: &str, used: &str| (module.to_string(), BTreeSet::from([used.to_string()]));
    let arrows = BTreeMap::from([uses("a", "b"), uses("b", "c"), uses("c", "b"), uses("d", "a")]);
    assert_eq!(circles(&arrows), ["b", "c"]);
}

/// What runs models is known by the list of backends.
fn backends_that_are_named(arrows: &Arrows) -> Vec<String> {
    let is_one = |used: &String| {
        let all = ["backends::onnxruntime", "backends::openvino", "backends::rten", "backends::tensorrt"];
        all.iter().any(|one| used.starts_with(one))
    };
    arrows
        .iter()
        .filter(|(module, _)| !module.starts_with("backends"))
        .flat_map(|(module, uses)| {
            uses.iter().filter(|used| is_one(used)).map(move |used| format!("a backend is named: {module} uses {used}"))
        })
        .collect()
}

fn names_of_several_types(modules: &[(&str, Modules)]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // Of all crates: a reader of one has the others at hand.
    for (folder, modules) in modules {
        let prefix = folder.strip_suffix("/src").map_or("plugin::".to_string(), |name| format!("{name}::"));
        for (module, file) in modules {
            for name in &file.types {
                places.entry(name.clone()).or_default().push(format!("{prefix}{module}"));
            }
        }
    }
    // A GObject class or a meta and its implementation have one name, as in all of gstreamer-rs.
    let is_class =
        |modules: &[String]| matches!(modules, [class, imp] if imp == class || *imp == format!("{class}::imp"));
    let twice = places.iter().filter(|(_, modules)| modules.len() > 1 && !is_class(modules));
    twice.map(|(name, modules)| format!("{name} is several types: {modules:?}")).collect()
}

/// The compiler says what is never used of a crate's own, but not of what other crates of the workspace may use.
fn what_is_public_and_not_used(modules: &[(&str, Modules)]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in
        CRATES.into_iter().chain(["core/tests", "gst-trt/tests", "streaming/tests", "tests", "tests/bench", "examples"])
    {
        collect(&root.join(folder), &["rs"], &mut files);
    }
    // What applications are offered need not be used here.
    let offered = fs::read_to_string(root.join("tests/api.txt")).unwrap();
    let offered: BTreeSet<&str> = offered.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let names = modules.iter().flat_map(|(_, modules)| modules.values().flat_map(|file| &file.public));
    let names = names.filter(|name| !offered.contains(name.as_str()));
    let mut named: HashMap<&[u8], usize> = names.map(|name| (name.as_bytes(), 0)).collect();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for word in line.as_bytes().split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_') {
                if let Some(count) = named.get_mut(word) {
                    *count += 1;
                }
            }
        }
    }
    let mut unused = Vec::new();
    for (folder, modules) in modules {
        for (module, file) in modules {
            let is_unused = |name: &&String| named.get(name.as_bytes()) == Some(&1);
            let names = file.public.iter().filter(is_unused);
            unused.extend(names.map(|name| format!("nothing uses {folder}, {module}: {name}")));
        }
    }
    unused
}

/// Names of functions, methods and types that are public.
#[derive(Default)]
struct PublicItems {
    names: Vec<String>,
}

impl PublicItems {
    fn note(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.names.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for PublicItems {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        // What C calls has a name for C.
        if item.sig.abi.is_none() {
            self.note(&item.vis, &item.sig.ident);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.vis, &item.sig.ident);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.note(&item.vis, &item.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.note(&item.vis, &item.ident);
    }
}

/// Files of a folder and those in it, but for the benches.
fn collect(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("tests/bench") {
            collect(&entry, endings, found);
        } else if entry.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
            found.push(entry);
        }
    }
}

/// The lines that are no comments, and the files that have them: those of tests, or of the product.
fn lines_of(tests: bool) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let others = ["tests", "core/tests", "gst-trt/tests", "streaming/tests", "python/tests", "python/gsttrt"];
    for folder in CRATES.into_iter().chain(others) {
        collect(&root.join(folder), &["rs", "py", "c", "sh"], &mut files);
    }
    assert!(files.len() > 500, "{}", files.len());
    let mut found = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let file = file.strip_prefix(root).unwrap();
        let is_test =
            file.iter().any(|part| ["test", "test.rs", "tests", "tests.rs"].iter().any(|known| part == *known));
        // Of other files, the tests are at the end.
        let parts = if is_test { ("", &*text) } else { text.split_once("\nmod tests {").unwrap_or((&*text, "")) };
        let wanted = if tests { parts.1 } else { parts.0 };
        let lines = wanted.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.extend(lines.map(|line| (file.into(), line.trim().to_string())));
    }
    found
}

/// What a thread does that nothing wakes.
const PAUSES: [&str; 5] = [
    concat!("sle", "ep("),
    concat!("park_", "timeout("),
    concat!("yield_", "now("),
    concat!("spin_", "loop("),
    concat!("try_", "wait("),
];

/// Who looks again and again takes a processor from others, and sees late what it waits for. Locks, channels, `poll` and conditions
/// wake a thread, and have limits. What these files wait for wakes nobody; so often it is written there.
#[test]
fn threads_are_woken_by_what_they_wait_for() {
    let exceptions = [
        ("core/src/backends/exit.rs", 1),             // the end of the process
        ("core/src/cuda/driver/fence.rs", 3),         // a GPU, whose interrupts come late
        ("gst-trt/src/serve/http/connections.rs", 1), // a pause after an error of the system
        ("gst-trt/src/serve/rtsp/connections.rs", 1), // the same
        ("gst-trt/src/serve/webrtc/port.rs", 2),      // the same, and other work comes first
        ("gst-trt/src/signals.rs", 1),                // the limit of what does not notice a signal
    ];
    let mut found = BTreeMap::new();
    for (file, line) in lines_of(false) {
        if PAUSES.iter().any(|pause| line.contains(pause)) {
            *found.entry(file).or_insert(0) += 1;
        }
    }
    assert_eq!(found, BTreeMap::from(exceptions.map(|(file, count)| (PathBuf::from(file), count))));
}

/// A test that sleeps waits too long, or passes by chance. One that waits without a pause takes a processor from what it waits for.
#[test]
fn no_test_waits_by_the_clock() {
    let [word, _, gives_way, spins, _] = PAUSES;
    // A measurement, and threads that are to meet.
    let exceptions = ["tests/common/awake.rs", "capi/src/results.rs"];
    let sleeps = |(file, line): &(PathBuf, String)| {
        let is_script = file.extension().is_some_and(|ending| ending == "sh");
        let is_busy = line.contains(gives_way) || line.contains(spins);
        line.contains(&*if is_script { word.replace('(', " ") } else { word.into() })
            || is_busy && !exceptions.iter().any(|exception| file == Path::new(exception))
    };
    let sleeping: Vec<_> = lines_of(true).into_iter().filter(sleeps).collect();
    assert!(sleeping.is_empty(), "{sleeping:#?}");
}

/// What a test leaves is under target/, by `scratch`.
#[test]
fn no_test_leaves_files_in_the_temporary_folder() {
    // Engines are kept only where no other user may write, and are removed at the end.
    let exceptions =
        ["core/tests/common/scratch.rs", "core/src/backends/tensorrt/cache/tests.rs", "tests/fuzz/engine_cache.rs"];
    let call = concat!("temp_", "dir()");
    let leaves = |(file, line): &(PathBuf, String)| {
        line.contains(call) && !exceptions.iter().any(|exception| file == Path::new(exception))
    };
    let leaving: Vec<_> = lines_of(true).into_iter().filter(leaves).collect();
    assert!(leaving.is_empty(), "{leaving:#?}");
}

/// These macros end a thread with a panic where their reader has gone, such as a terminal that was closed. The program has functions
/// that do not.
#[test]
fn the_program_prints_by_its_own_functions() {
    let prints = |(file, line): &(PathBuf, String)| {
        file.starts_with("gst-trt/src") && ["print!(", "println!("].iter().any(|name| line.contains(name))
    };
    let printing: Vec<_> = lines_of(false).into_iter().filter(prints).collect();
    assert!(printing.is_empty(), "{printing:#?}");
}

/// A streaming thread holds that lock while it waits for room downstream, so an event that is to free it would wait too.
#[test]
fn no_element_takes_the_stream_lock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &["rs"], &mut files);
    let takes = |file: &&PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        // The base class takes it to read its segment.
        text.contains(concat!("stream_", "lock(")) || text.contains(concat!("obj()", ".segment()"))
    };
    assert!(files.len() > 50);
    let found: Vec<_> = files.iter().filter(takes).collect();
    assert!(found.is_empty(), "{found:?}");
}
