// SPDX-License-Identifier: MPL-2.0
//! Programs that load the library.

use super::*;

#[test]
fn the_python_example_runs_a_model_and_detects() {
    let script = path("examples/session.py");
    let run = |model: &str| Command::new("/usr/bin/python3").arg(&script).arg(model).arg(library()).output().unwrap();
    let text = printed(run(&shapes()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["in  images 1x3x320x320, 1228800 bytes", "out output0 1x6300x7, 176400 bytes"]);
    assert!(lines[2].starts_with("greatest ") && lines[2] != "greatest 0.0", "{text}");
    assert!(lines.len() == 4 && lines[3].starts_with("disc 0.") && lines[3].contains(" at "), "{text}");
    // Boxes, and what masks are made of.
    let text = printed(run(&path("tests/models/shapes-seg.onnx")));
    for begin in ["out output", "greatest "] {
        assert_eq!(text.lines().filter(|line| line.starts_with(begin)).count(), 2, "{text}");
    }
    let error = String::from_utf8(run("/nowhere.onnx").stderr).unwrap();
    assert!(error.starts_with("Error: There is no model file /nowhere.onnx"), "{error}");
}

/// What it registered to run at the end of a program must still be there then.
#[test]
fn a_program_that_closes_the_library_ends_well() {
    let folder = scratch("capi-dlclose");
    let source = folder.join("close.c");
    std::fs::write(
        &source,
        r#"
#include <dlfcn.h>
#include <gsttrt.h>
#include <stdio.h>

int
main (int argc, char **argv)
{
  void *library = dlopen (argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
  GstTrtStatus (*gpu_count) (uint32_t *);
  uint32_t count;
  if (!library)
    return 1;
  *(void **) &gpu_count = dlsym (library, "gst_trt_gpu_count");
  if (!gpu_count)
    return 2;
  gpu_count (&count);
  if (dlclose (library))
    return 3;
  puts (dlopen (argv[argc - 1], RTLD_NOW | RTLD_NOLOAD) ? "stays" : "is gone");
  return 0;
}
"#,
    )
    .unwrap();
    let program = folder.join("close");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-D_GNU_SOURCE", "-I", &path("capi/include")]).arg(&source).args(["-ldl", "-o"]).arg(&program);
    assert!(cc.status().unwrap().success());
    let output = Command::new(&program).arg(library()).output().unwrap();
    assert_eq!(printed(output), "stays\n");
}
