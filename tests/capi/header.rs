// SPDX-License-Identifier: MPL-2.0
//! The header: what it declares, and the layout of its structures.

use super::*;

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(path("capi/include/gsttrt.h")).unwrap();
    let names = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("gst_trt_")).map(str::to_string).collect::<BTreeSet<_>>()
    };
    let symbols = |library: &Path| {
        names(&printed(Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap()))
    };
    assert_eq!(names(&header), symbols(&library()));
    assert!(symbols(&target().join("libgsttrt.so")).is_empty(), "the plugin is no library for applications");
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let folder = scratch("capi-layout");
    let members = [
        ("struct_size", offset_of!(GstTrtFrame, struct_size)),
        ("format", offset_of!(GstTrtFrame, format)),
        ("width", offset_of!(GstTrtFrame, width)),
        ("height", offset_of!(GstTrtFrame, height)),
        ("color", offset_of!(GstTrtFrame, color)),
        ("reserved", offset_of!(GstTrtFrame, reserved)),
        ("planes", offset_of!(GstTrtFrame, planes)),
        ("strides", offset_of!(GstTrtFrame, strides)),
        ("bytes", offset_of!(GstTrtFrame, bytes)),
    ];
    let kinds = [
        ("SETTINGS", ErrorKind::Settings),
        ("NOT_FOUND", ErrorKind::NotFound),
        ("READ", ErrorKind::Read),
        ("MODEL", ErrorKind::Model),
        ("LIBRARY", ErrorKind::Library),
        ("RUN", ErrorKind::Run),
        ("WRONG_TYPE", ErrorKind::WrongType),
        ("NEGOTIATION", ErrorKind::Negotiation),
        ("DEVICE_LOST", ErrorKind::DeviceLost),
    ];
    let mut wanted: Vec<usize> = members.map(|(_, offset)| offset).to_vec();
    wanted.push(size_of::<GstTrtFrame>());
    wanted.extend(kinds.map(|(_, kind)| kind as usize));
    wanted.push(dlpack::exporter::PANIC as usize);
    wanted.extend(0..DType::ALL.len());
    let offsets = members.map(|(member, _)| format!("offsetof (GstTrtFrame, {member})")).to_vec();
    let kinds = kinds.map(|(name, _)| format!("GST_TRT_{name}")).to_vec();
    let types = DType::ALL.map(|dtype| format!("GST_TRT_{}", dtype.to_string().to_uppercase())).to_vec();
    let others = |name: &str| vec![name.to_string()];
    let numbers = [offsets, others("sizeof (GstTrtFrame)"), kinds, others("GST_TRT_PANIC"), types].concat().join(", ");
    let program = format!(
        "#include <gsttrt.h>\n#include <stdio.h>\nint main (void) {{ size_t all[] = {{ {numbers} }}; \
         for (size_t i = 0; i < sizeof (all) / sizeof (*all); i++) printf (\"%zu \", all[i]); return 0; }}\n"
    );
    for ending in ["c", "cpp"] {
        let source = folder.join(format!("layout.{ending}"));
        std::fs::write(&source, &program).unwrap();
        let built = folder.join(format!("layout-{ending}"));
        compile(&source, &built);
        let found = printed(Command::new(built).output().unwrap());
        assert_eq!(found.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<usize>>(), wanted);
    }
}
